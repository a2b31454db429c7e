"""Runs Tonnage itself on this machine's NVIDIA GPU, under 6 minutes: what it predicts beside what it then measures.

    pip install -e '.[train]'
    python benchmarks/gpu_runs.py                          # writes rows, reports and a log under benchmarks/results
    python benchmarks/gpu_runs.py --device cpu --tiny      # two minutes on any machine: checks the script, not a GPU
    python benchmarks/gpu_runs.py --dry-run                # prints the runs, touches nothing

Nothing is downloaded: models have the shapes of BERT-base and of a Llama of 1.2 billion parameters with random weights,
texts are random words of one length. First `tonnage calibrate --local` measures the GPU, then `tonnage run` trains:
a classifier in bf16, the same in fp16 whose worker is killed once and goes on from its checkpoint, LoRA adapters on the
Llama, the classifier again (what the first run taught), the Llama again, and trees where XGBoost has a CUDA build. For
each, `tonnage show` gives predicted beside measured. A run that the clock does not leave time for is left out and said.
The measured rows are in the columns of the training facts, as `tonnage runs export` writes them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

RESULTS = Path(__file__).parent / "results"
SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS: Final = 2000
KILL_AFTER_S: Final = 60.0  # for a worker to show up and to reach its checkpoint
LEAST_S: Final = {"cuda": 45.0, "cpu": 25.0}  # a run is not started with less left

BERT: Final = {
    "architectures": ["BertModel"], "model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12,
    "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 30522, "max_position_embeddings": 512,
    "type_vocab_size": 2, "pad_token_id": 0,
}  # fmt: skip
LLAMA: Final = {  # the shape of Llama 3.2 1B
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192,
    "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "tie_word_embeddings": True, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
SMALL: Final = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "vocab_size": 2048,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Run:
    """One `tonnage run`: the file it is of, the name it gets, and whether its worker is killed once."""

    file: str
    name: str
    kill: bool = False


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What differs between a GPU and a check on a processor."""

    length: int  # tokens of a text to classify
    batch: int
    steps: int
    block: int  # tokens of a packed block
    blocks: int  # in a step
    lora_steps: int
    rows: int  # of the table


GPU = Sizes(length=128, batch=32, steps=400, block=512, blocks=8, lora_steps=60, rows=200_000)
CPU = Sizes(length=32, batch=8, steps=60, block=64, blocks=4, lora_steps=30, rows=500)


def runs(tables: bool) -> Iterator[Run]:
    """In the order they are carried out: the first ones teach the later ones."""
    yield Run(file="classify", name="classify-first")
    yield Run(file="adapters", name="adapters-first")
    yield Run(file="classify-killed", name="classify-killed", kill=True)
    yield Run(file="classify", name="classify-again")
    yield Run(file="adapters", name="adapters-again")
    if tables:
        yield Run(file="trees", name="trees")


# ---- models, rows and files


def write_models(folder: Path, *, tiny: bool, device: str) -> None:
    """A config with a tokenizer beside it; for adapters a base with random weights, made where there is room."""
    write_model(folder / "bert", BERT | (SMALL if tiny else {}))
    shape = LLAMA | (SMALL | {"num_key_value_heads": 1, "head_dim": 32} if tiny else {})
    write_model(folder / "llama", shape)
    made = subprocess.run([sys.executable, "-c", MAKE_WEIGHTS, str(folder / "llama"), device], check=False)
    if made.returncode:
        raise SystemExit("error: the weights of the Llama could not be made")


MAKE_WEIGHTS: Final = """
import sys, torch, transformers
folder, device = sys.argv[1:]
config = transformers.AutoConfig.from_pretrained(folder)
torch.manual_seed(0)
with torch.device(device):
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
model.to("cpu").save_pretrained(folder)
"""  # in a process of its own: one that has touched the GPU holds memory of it


def write_model(folder: Path, shape: dict[str, Any]) -> None:
    """config.json and a tokenizer of whole words."""
    ends = shape["model_type"] == "llama"
    words = [*SPECIAL, *(f"w{number}" for number in range(WORDS - len(SPECIAL)))]
    folder.mkdir(parents=True)
    write_json(folder / "config.json", shape)
    special = [
        {"id": at, "content": word, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for at, word in enumerate(SPECIAL)
    ]  # fmt: skip
    around = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
              {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]  # fmt: skip
    known = {name: {"id": name, "ids": [SPECIAL.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    template = {"type": "TemplateProcessing", "single": around, "pair": around, "special_tokens": known}
    write_json(
        folder / "tokenizer.json",
        {
            "version": "1.0", "added_tokens": special, "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None if ends else template, "decoder": None, "truncation": None, "padding": None,
            "model": {"type": "WordLevel", "vocab": {word: at for at, word in enumerate(words)}, "unk_token": "[UNK]"},
        },
    )  # fmt: skip
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 100_000, "pad_token": "[PAD]",
            "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]",
            **({"eos_token": "[SEP]"} if ends else {}),
        },
    )  # fmt: skip


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def write_rows(folder: Path, sizes: Sizes) -> None:
    """Random words of one length, in two classes; blocks of words; a table whose label follows from its columns."""
    draw = random.Random(0)
    folder.mkdir(parents=True)
    words = [f"w{number}" for number in range(WORDS - len(SPECIAL))]
    with (folder / "texts.jsonl").open("w", encoding="utf-8") as file:
        for _ in range(sizes.batch * 40):
            label = draw.randrange(2)
            text = [words[label], *draw.choices(words, k=sizes.length - 3)]
            file.write(json.dumps({"text": " ".join(text), "label": ("no", "yes")[label]}) + "\n")
    with (folder / "blocks.jsonl").open("w", encoding="utf-8") as file:
        for _ in range(sizes.blocks * 40):
            file.write(json.dumps({"text": " ".join(draw.choices(words, k=sizes.block - 1))}) + "\n")
    with (folder / "table.csv").open("w", encoding="utf-8") as file:
        file.write(",".join([*(f"x{number}" for number in range(20)), "y"]) + "\n")
        for _ in range(sizes.rows):
            values = [draw.random() for _ in range(20)]
            file.write(",".join(f"{one:.5f}" for one in (*values, values[0] + values[1] * values[2])) + "\n")


def write_files(folder: Path, sizes: Sizes, *, device: str, half: str, bf16: str) -> None:
    """The workload files. `half` and `bf16`: the precisions of the two classifiers, by what the device has."""
    for name, precision, every in (("classify", bf16, 100), ("classify-killed", half, max(10, sizes.steps // 8))):
        (folder / f"{name}.tonnage.yaml").write_text(
            f"""kind: train
model: ./bert
data: {{samples: {sizes.batch * 38}, seq_len: {{mean: {sizes.length}, max: {sizes.length}}}, epochs: 100}}
train: {{method: full, global_batch: {sizes.batch}, micro_batch: {sizes.batch}, precision: {precision}}}
run:
  task: sequence-classification
  weights: new
  data: {{train: data/texts.jsonl, columns: {{text: text, label: label}}, validation_fraction: 0.05}}
  max_steps: {sizes.steps}
  log_every: 20
  warmup: 0.1
{_shared(device, every)}"""
        )
    (folder / "adapters.tonnage.yaml").write_text(
        f"""kind: train
model: ./llama
data: {{samples: {sizes.blocks * 38}, seq_len: {{mean: {sizes.block}, max: {sizes.block}}}, epochs: 100}}
train:
  method: lora
  lora: {{rank: 16, targets: all-linear}}
  global_batch: {sizes.blocks}
  micro_batch: {sizes.blocks // 2}
  precision: {bf16}
run:
  task: causal-lm
  weights: ./llama
  data: {{train: data/blocks.jsonl, columns: {{text: text}}, validation_fraction: 0.05}}
  learning_rate: 1e-4
  max_steps: {sizes.lora_steps}
  log_every: 10
{_shared(device, 100)}"""
    )
    (folder / "trees.tonnage.yaml").write_text(
        f"""kind: tabular
tabular: {{rows: {sizes.rows}, features: 20, method: boosted-trees, trees: 200, depth: 8, bins: 256}}
run:
  data: {{train: data/table.csv, columns: {{label: y}}, validation_fraction: 0.1}}
  objective: regression
  learning_rate: 0.1
{_shared(device, 100)}"""
    )


def _shared(device: str, every: int) -> str:
    return f"  device: {device}\n  checkpoint: {{every_steps: {every}}}\n  tracking: {{uri: none}}\n"


# ---- carried out


@dataclass(kw_only=True)
class Bench:
    """Carries the runs out in a home of their own, and keeps what each said."""

    device: str
    folder: Path
    home: Path
    end: float  # by time.monotonic
    said: list[str] = field(default_factory=list)  # the log
    shown: dict[str, Any] = field(default_factory=dict)  # name -> what `tonnage show` said
    failed: list[str] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        return self.end - time.monotonic()

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.said.append(text)

    def tonnage(self, *words: str, timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
        """One command of Tonnage, its words in the log, with the seconds it took."""
        command, began = [sys.executable, "-m", "tonnage", *words], time.monotonic()
        environ = os.environ | {"TONNAGE_HOME": str(self.home), "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
        environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1") if self.device == "cpu" else "4"
        try:
            done = subprocess.run(
                command, cwd=self.folder, env=environ, capture_output=True, text=True, check=False, timeout=timeout_s
            )
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(command, 124, "", "no time left")
        taken = time.monotonic() - began
        self.said.append(f"$ tonnage {' '.join(words)}  -> {done.returncode} in {taken:.1f} s\n{done.stderr[-6000:]}")
        return done

    def calibrate(self) -> None:
        done = self.tonnage("calibrate", "--local", "--device", self.device, "--usd-per-hour", "3", "-q",
                            timeout_s=self.left_s)  # fmt: skip
        self.say(f"calibrate: exit {done.returncode}")
        if done.returncode:
            self.failed.append("calibrate")
            self.say(done.stderr[-3000:])

    def carry_out(self, run: Run) -> None:
        """One run to its end, killed once where it is to be; what was predicted beside what it measured."""
        hours = f"{max(self.left_s - 20, 20) / 3600:.5f}"
        words = ("run", f"{run.file}.tonnage.yaml", "--name", run.name, "-y", "--max-hours", hours)
        if run.kill:
            self.tonnage(*words, "--detach", timeout_s=60)
            killed = kill_worker(self.home / "runs" / run.name, min(KILL_AFTER_S, self.left_s))
            self.say(f"{run.name}: worker {'killed after ' + killed if killed else 'NOT killed'}")
            if not killed:
                self.failed.append(f"{run.name}: its worker was not killed")
            code = self._follow(run.name)
        else:
            code = self.tonnage(*words, timeout_s=max(self.left_s, 30)).returncode
        self._show(run.name, code)

    def _follow(self, name: str) -> int:
        while self.left_s > 5:
            done = self.tonnage("show", name, "-o", "json")
            self.said.pop()
            state = json.loads(done.stdout)["state"] if done.returncode == 0 else ""
            if state in ("succeeded", "failed", "stopped", "lost"):
                return 0 if state == "succeeded" else 1
            time.sleep(1.0)
        return 124

    def _show(self, name: str, code: int) -> None:
        done = self.tonnage("show", name, "-o", "json")
        if done.returncode:
            self.failed.append(f"{name}: nothing to show")
            self.say(f"{name}: nothing to show: {done.stderr[-2000:]}")
            return
        shown = self.shown[name] = json.loads(done.stdout)
        if code or shown["state"] != "succeeded":
            self.failed.append(f"{name}: {shown['state']}")
            log = self.home / "runs" / name / "log.txt"
            self.said.append(log.read_text(errors="replace")[-6000:] if log.exists() else "no log")
        for line in lines_of(name, shown):
            self.say(line)


def lines_of(name: str, shown: dict[str, Any]) -> Iterator[str]:
    """What was predicted beside what was measured, for people."""
    measured = shown["measured"]
    yield f"{name}: {shown['state']}, {measured['device']}, starts {shown['starts']}, lost steps {shown['lost_steps']}"
    if shown["why_not_predicted"]:
        yield f"  not predicted: {shown['why_not_predicted']}"
    for one in shown["figures"]:
        said, value = one["predicted"], one["measured"]
        range_ = f"{said['value']:.4g} ({said['low']:.4g} to {said['high']:.4g})"
        off = "" if one["off_fraction"] is None else f", {100 * one['off_fraction']:+.1f} %"
        inside = {True: "inside", False: "OUTSIDE", None: "not measured"}[one["inside"]]
        yield f"  {one['figure']:16} predicted {range_:38} measured {_number(value)} {inside}{off}"
    names = ("median_step_s", "p90_step_s", "data_wait_fraction", "gpu_utilization_fraction", "power_w")
    yield "  " + ", ".join(f"{key} {_number(measured[key])}" for key in names if measured.get(key) is not None)
    peaks = {key: value for key, value in measured.items() if key.startswith("peak_") and value}
    yield "  " + ", ".join(f"{key.removesuffix('_bytes')} {value / 2**30:.3f} GiB" for key, value in peaks.items())
    for reason in shown["why"]:
        yield f"  why: {reason}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def kill_worker(folder: Path, wait_s: float) -> str | None:
    """SIGKILL to the run's worker once a checkpoint is written; what was there then, None where none came in time."""
    import psutil

    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        found = [one for one in (folder / "checkpoints").glob("*") if not one.name.startswith(".")]
        for process in psutil.process_iter(["cmdline"]) if found else ():
            words = process.info["cmdline"] or []
            if "tonnage.recipes.worker" in words and str(folder) in words:
                process.kill()
                return f"{len(found)} checkpoints"
        time.sleep(0.1)
    return None


def trees_run_here(device: str) -> bool:
    """Whether XGBoost is here, with CUDA where a GPU is measured."""
    if find_spec("xgboost") is None:
        return False
    import xgboost

    return device == "cpu" or bool(xgboost.build_info().get("USE_CUDA"))


def write_results(bench: Bench, out: Path, stem: str) -> None:
    """Rows as facts, what `show` said as one file, the device's profile, the log."""
    out.mkdir(parents=True, exist_ok=True)
    bench.tonnage("runs", "export", str((out / f"gpu_runs_training_{stem}.csv").absolute()))
    write_json(out / f"gpu_runs_shown_{stem}.json", bench.shown)
    for profile in (bench.home / "devices").glob("*.json"):
        shutil.copy(profile, out / f"gpu_runs_profile_{stem}.json")
    (out / f"gpu_runs_{stem}.log").write_text("\n".join(bench.said) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="toy shapes, to check the script")
    parser.add_argument("--minutes", type=float, default=5.6, help="all of it; what does not fit in is left out")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this run alone; may be repeated")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--dry-run", action="store_true", help="print the runs and stop")
    given = parser.parse_args()
    planned = [run for run in runs(trees_run_here(given.device)) if not given.only or run.name in given.only]
    if given.dry_run:
        print("\n".join(f"{run.name}: {run.file}.tonnage.yaml{', killed once' * run.kill}" for run in planned))
        return 0
    if given.device == "cuda" and not _cuda():
        print("error: torch sees no CUDA device\nhint: --device cpu --tiny checks the script", file=sys.stderr)
        return 2
    end = time.monotonic() + 60 * given.minutes
    sizes = CPU if given.tiny else GPU
    with tempfile.TemporaryDirectory(prefix="tonnage-gpu-runs-") as place:
        folder = Path(place) / "work"
        write_models(folder, tiny=given.tiny, device=given.device)
        write_rows(folder / "data", sizes)
        on_cpu = given.device == "cpu"
        write_files(folder, sizes, device=given.device, half="fp32" if on_cpu else "fp16", bf16="fp32" if on_cpu else
                    "bf16")  # fmt: skip
        bench = Bench(device=given.device, folder=folder, home=Path(place) / "home", end=end)
        bench.say(f"models and rows made, {bench.left_s:.0f} s left")
        bench.calibrate()
        for run in planned:
            if bench.left_s < LEAST_S[given.device]:
                bench.failed.append(f"{run.name}: left out for lack of time (--minutes)")
                continue
            bench.carry_out(run)
            bench.say(f"  {bench.left_s:.0f} s left")
        name = next((one["measured"]["device"] for one in bench.shown.values()), given.device)
        stem = f"{name.lower().replace(' ', '-').replace('(', '').replace(')', '')}_{datetime.now(UTC):%Y-%m-%d}"
        write_results(bench, given.out, stem)
    for line in bench.failed:
        print(f"failed: {line}", file=sys.stderr)
    return 1 if bench.failed else 0


def _cuda() -> bool:
    """Asked of another process, so that this one holds no memory of the GPU."""
    asked = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
