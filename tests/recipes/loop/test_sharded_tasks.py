"""Every task, whole and shared out over two processes: saved, resumed, evaluated."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.ports import free_port

from tonnage.recipes.starters.models import encoder_decoder, image_encoder
from tonnage.recipes.starters.rows import PICTURE, pictures
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import CheckpointSpec, DataSource, LaunchSpec, RunSpec, TabularSpec, Task

pytest.importorskip("transformers", reason="the extra `train`")
pytestmark = [pytest.mark.slow]

WORDS = ["red", "green", "blue", "ball", "hat", "door", "car", "lamp"]
STEPS, HALF = 6, 3


def rows_of(task: Task) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Rows of a task, and the roles of their columns."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randrange(4, 9))) for _ in range(80)]
    match task:
        case "sequence-classification":
            return [{"text": text, "label": text.split()[0]} for text in texts], ("text", "label")
        case "token-classification":
            rows = [
                {"tokens": text.split(), "tags": ["B-X" if w == "hat" else "O" for w in text.split()]} for text in texts
            ]
            return rows, ("tokens", "tags")
        case "question-answering":
            answers = [{"text": [text.split()[-1]], "answer_start": [text.rindex(" ") + 1]} for text in texts]
            rows = [
                {"question": "what is last", "context": text, "answers": answer}
                for text, answer in zip(texts, answers, strict=True)
            ]
            return rows, ("question", "context", "answers")
        case "causal-lm":
            return [{"text": text} for text in texts], ("text",)
        case "sequence-to-sequence":
            return [{"source": text, "target": " ".join(reversed(text.split()))} for text in texts], (
                "source",
                "target",
            )
        case _:
            return [{"a": draw.random(), "b": draw.random(), "label": draw.choice("xy")} for _ in texts], ("label",)


@pytest.fixture
def make_folder(tmp_path: Path, write_rows: Any, run_spec: Callable[..., RunSpec], tiny_model: Any) -> Any:
    """The folder of a short run of a task over two processes."""

    def make(task: Task, sharding: str) -> RunFolder:
        rows, roles = rows_of(task)
        config, form = None, "jsonl"
        place = write_rows("rows.jsonl", rows)
        if task == "image-classification":
            place, roles, form = write_pictures(tmp_path), ("image", "label"), "images"
            config = write_files(tmp_path / "model", image_encoder(PICTURE))
        elif task == "sequence-to-sequence":
            texts = [text for row in rows for text in row.values()]
            config = write_files(tmp_path / "model", encoder_decoder(texts))
        elif task != "mlp":
            texts = [" ".join(str(value) for value in row.values()) for row in rows]
            config = tiny_model("llama" if task == "causal-lm" else "bert", texts)
        spec = run_spec(
            task, place, config=config, roles=roles,
            data={"validation_fraction": 0.25, "train": DataSource(location=str(place), format=form)},
            training={
                "sharding": sharding, "max_steps": STEPS, "epochs": 100.0, "global_batch": 8, "log_every_steps": 1,
                "evaluate_every_steps": HALF, "stride": 4, "learning_rate": 1e-3,
            },
            tabular=TabularSpec(hidden_layers=(16, 16)), checkpoint=CheckpointSpec(every_steps=HALF),
            launch=LaunchSpec(runner="torchrun", processes=2, device="cpu", threads=1),
        )  # fmt: skip
        folder = RunFolder(tmp_path / "home" / "runs" / "shared")
        folder.create(replace(spec, name="shared"))
        return folder

    return make


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    return folder


def write_pictures(folder: Path) -> Path:
    """80 small pictures; the pattern that finds them."""
    for name, content in pictures(80, random.Random(0)).items():
        place = folder / "pictures" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder / "pictures" / "*" / "*.png"


def work(folder: RunFolder) -> None:
    """Two workers of the run, to their end."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1",
        "--master-port", str(free_port()), "-m", "tonnage.recipes.worker", str(folder.path),
    ]  # fmt: skip
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=900
    )
    assert ended.returncode == 0, ended.stderr[:8000]


def losses(folder: RunFolder) -> dict[int, float]:
    lines = [json.loads(line) for line in folder.metrics_file.read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines}


@pytest.mark.parametrize("sharding", ["ddp", "zero2", "zero3"])
@pytest.mark.parametrize(
    "task",
    [
        "sequence-classification", "token-classification", "question-answering", "causal-lm", "mlp",
        "sequence-to-sequence", "image-classification",
    ],
)  # fmt: skip
def test_a_run_over_two_processes_leaves_its_model(make_folder: Any, task: Task, sharding: str) -> None:
    """The finished model is saved and judged as it was in the run; from its first checkpoint the same run follows."""
    from tonnage.recipes.judging import judge_run

    folder = make_folder(task, sharding)
    work(folder)
    first, curve = json.loads(folder.result_file.read_text()), losses(folder)
    assert set(curve) == set(range(1, STEPS + 1))
    folder.record(EventKind.SUCCEEDED, who="test")
    judged = judge_run(folder, device="cpu")
    said = first["metrics"]
    assert {name: pytest.approx(value, abs=1e-4) for name, value in judged.metrics.items()} == said

    for path in (folder.model, folder.checkpoints / f"step-{STEPS:08d}"):
        shutil.rmtree(path)
    for path in (folder.result_file, folder.metrics_file):
        path.unlink()
    work(folder)
    resumed = next(event for event in folder.events() if event.kind is EventKind.RESUMED)
    assert resumed.fields["step"] == HALF
    assert losses(folder) == {step: pytest.approx(curve[step], abs=1e-5) for step in range(HALF + 1, STEPS + 1)}
    assert json.loads(folder.result_file.read_text())["metrics"] == {
        name: pytest.approx(value, abs=1e-4) for name, value in said.items()
    }
