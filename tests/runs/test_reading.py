"""A workload file with a `run` section becomes the specification of a run; each fact comes from its one place."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import WorkloadError
from tonnage.runs.reading import load_run_spec
from tonnage.runs.spec import RunSpec, dump_spec, load_spec
from tonnage.spot_instances.knowledge import other_machines
from tonnage.workload.jobs import Lora, TrainJob
from tonnage.workload.loading import load_workload

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
TRAIN = """\
kind: train
model: bert-base-uncased
data: {samples: 100, seq_len: {mean: 12, max: 64}, epochs: 2}
train: {global_batch: 16, precision: bf16, method: lora, lora: {rank: 4}, optimizer: sgd}
run:
  task: sequence-classification
  weights: hf://google-bert/bert-base-uncased
  data:
    train: rows.jsonl
    columns: {label: kind}
"""
TABLE = """\
kind: tabular
tabular: {rows: 10, features: 2, trees: 50, depth: 3}
run:
  data: {train: rows.csv, columns: {label: rent}, features: [area, age]}
"""
WRITE = """\
kind: batch
model: gpt2
batch: {items: 500, input_tokens: {mean: 8, max: 20}, output_tokens: {mean: 10, max: 30}}
run: {task: text-generation, weights: hf://openai-community/gpt2, data: {train: rows.jsonl}}
"""


def read(text: str, folder: Path) -> RunSpec:
    for name in ("rows.jsonl", "rows.csv"):
        (folder / name).touch()
    file = folder / "mine.tonnage.yaml"
    file.write_text(text)
    load_workload(file, as_of=AS_OF)  # whatever runs can be planned
    return load_run_spec(file, as_of=AS_OF)


def test_a_training_is_read(tmp_path: Path) -> None:
    """What `data` and `train` say is not said again in `run`; paths start from the file; roles have default columns."""
    spec = read(TRAIN, tmp_path)
    assert (spec.name, spec.task, spec.model) == ("mine", "sequence-classification", "bert-base-uncased")
    assert spec.weights == "hf://google-bert/bert-base-uncased"
    assert spec.data.train.location == str(tmp_path / "rows.jsonl")
    assert spec.data.columns == (("text", "text"), ("label", "kind"))
    training = spec.training
    assert (training.epochs, training.global_batch, training.max_tokens) == (2.0, 16, 64)
    assert (training.precision, training.method, training.lora) == ("bf16", "lora", Lora(rank=4))
    assert (training.optimizer, training.learning_rate) == ("sgd", 2e-5)
    assert load_spec(dump_spec(spec), where="spec.json") == spec


@pytest.mark.parametrize("model", ["bloom-7b1", "gpt-oss-20b", "gpt2"])
def test_a_run_attends_as_its_plan_does(model: str, tmp_path: Path) -> None:
    """transformers has no fused kernel for BLOOM and gpt-oss: the run starts with the attention that was planned."""
    spec = read(TRAIN.replace("bert-base-uncased\ndata", f"{model}\ndata"), tmp_path)
    job = load_workload(tmp_path / "mine.tonnage.yaml", as_of=AS_OF).job
    assert isinstance(job, TrainJob)
    assert spec.training.attention == job.attention == ("sdpa" if model == "gpt2" else "eager")


def test_a_table_is_read(tmp_path: Path) -> None:
    """The method is the task; its learning rate is that of the method unless given."""
    spec = read(TABLE, tmp_path)
    assert (spec.task, spec.data.features, spec.data.train.format) == ("boosted-trees", ("area", "age"), "csv")
    assert (spec.tabular.trees, spec.tabular.depth, spec.training.learning_rate) == (50, 3, 0.1)
    assert read(TABLE.replace("trees: 50", "method: mlp"), tmp_path).training.learning_rate == 1e-3


def test_generation_is_read(tmp_path: Path) -> None:
    """Items and lengths of the batch are what is written."""
    spec = read(WRITE, tmp_path)
    assert (spec.generation.prompts, spec.generation.max_new_tokens, spec.training.max_tokens) == (500, 30, 20)
    assert spec.data.columns == (("prompt", "prompt"),)


def test_the_best_needs_evaluations(tmp_path: Path) -> None:
    """Keys that judge evaluations on the way are refused where there are none."""
    spec = read(TRAIN + "  evaluate_every: 50\n  keep_best: true\n  best_by: macro_f1\n  early_stopping: 3\n", tmp_path)
    assert (spec.training.keep_best, spec.training.best_by, spec.training.early_stopping) == (True, "macro_f1", 3)
    with pytest.raises(WorkloadError, match="no figure of sequence-classification is named 'macro_fl'") as raised:
        read(TRAIN + "  evaluate_every: 50\n  keep_best: true\n  best_by: macro_fl\n", tmp_path)
    assert raised.value.hint
    assert "macro_f1" in raised.value.hint
    with pytest.raises(WorkloadError, match="nothing is evaluated on the way"):
        read(TRAIN + "  early_stopping: 3\n", tmp_path)
    with pytest.raises(WorkloadError, match="judged once, at its end"):
        read(TABLE + "  keep_best: true\n", tmp_path)


def test_checkpoints_where_the_file_does_not_say_when(tmp_path: Path) -> None:
    """The plan's interval where it is stated; the rate at which machines are taken back where notices are watched."""

    def saved(more: str) -> tuple[float | None, float | None]:
        said = read(TRAIN + more, tmp_path).checkpoint
        return said.every_s, said.ends_per_hour

    assert saved("") == (None, None)
    assert saved("buy: {checkpoint_interval: 20m}\n") == (1200.0, None)
    assert saved("  notices: aws\n") == (None, other_machines().per_h)
    assert saved("  notices: aws\nbuy: {interruptions_per_hour: 0.5}\n") == (None, 0.5)
    assert saved("  checkpoint: {every_steps: 7}\nbuy: {checkpoint_interval: 20m}\n") == (None, None)


def test_all_keys_of_a_run(tmp_path: Path) -> None:
    """Launch, limits, checkpoints and tracking reach the specification in its units."""
    more = """\
  runner: torchrun
  processes: 2
  restarts: 5
  notices: aws
  clip_norm: 0
  checkpoint: {every: 15m, every_steps: 50, keep: 2, asynchronous: false}
  limits: {max_cost_usd: 5, usd_per_hour: 2, billing_quantum: 1h, max_hours: 3, idle: 20m}
  tracking: {experiment: e, register_as: m, alias: champion}
"""
    spec = read(TRAIN + more, tmp_path)
    assert (spec.launch.runner, spec.launch.processes, spec.launch.max_restarts) == ("torchrun", 2, 5)
    assert spec.launch.notices == ("aws",)
    assert spec.training.clip_norm is None
    assert (spec.checkpoint.every_s, spec.checkpoint.every_steps, spec.checkpoint.keep) == (900.0, 50, 2)
    assert (spec.guard.max_cost_usd, spec.guard.usd_per_hour, spec.guard.billing_quantum_s) == (5.0, 2.0, 3600.0)
    assert (spec.guard.max_s, spec.guard.idle_s) == (10_800.0, 1200.0)
    assert (spec.tracking.register_as, spec.tracking.alias) == ("m", "champion")


def test_weights_of_a_package_and_new_ones(tmp_path: Path) -> None:
    """`pkg://` is a folder inside an installed package; `new` takes the config that the model names."""
    spec = read(TRAIN.replace("hf://google-bert/bert-base-uncased", "pkg://tonnage/workload"), tmp_path)
    assert spec.weights is not None
    assert (Path(spec.weights) / "loading.py").exists()
    (tmp_path / "config.json").write_text(
        '{"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, '
        '"intermediate_size": 8, "vocab_size": 9, "max_position_embeddings": 64, "type_vocab_size": 2}'
    )
    new = TRAIN.replace("hf://google-bert/bert-base-uncased", "new").replace("bert-base-uncased", "./config.json")
    spec = read(new.replace("method: lora, lora: {rank: 4}, ", ""), tmp_path)
    assert (spec.weights, spec.config) == (None, str(tmp_path / "config.json"))


def test_a_password_is_not_written_down(tmp_path: Path) -> None:
    """A database URL with a password is refused; with `${NAME}` in its place it is kept as it stands."""
    given = '{location: "postgresql://me:%s@host/db", query: select 1}'
    with pytest.raises(WorkloadError, match=r"found a password in 'postgresql://me:\*\*\*@host/db'") as caught:
        read(TRAIN.replace("rows.jsonl", given % "secret"), tmp_path)
    assert "secret" not in str(caught.value)
    spec = read(TRAIN.replace("rows.jsonl", given % "${PGPASSWORD}"), tmp_path)
    assert "${PGPASSWORD}" in dump_spec(spec)


@pytest.mark.parametrize("location", ["https://me:secret@host/rows.jsonl?sig=s3cret", "https://host/rows?token=s3cret"])
def test_a_location_that_is_refused_is_shown_without_its_signature(tmp_path: Path, location: str) -> None:
    """Refused for its password, or since its end tells no format: the message goes to logs."""
    with pytest.raises(WorkloadError, match=r"https://(me:\*\*\*@)?host/rows(\.jsonl)?\?\*\*\*") as caught:
        read(TRAIN.replace("rows.jsonl", f'"{location}"'), tmp_path)
    assert "s3cret" not in str(caught.value)


FAULTS: list[tuple[str, dict[str, str], int, str, str]] = [
    ("an unknown key", {"  task:": "  taks: x\n  task:"}, 6, "run.taks", "unknown key 'taks'"),
    ("an unknown task", {"sequence-classification": "classify"}, 6, "run.task", "found 'classify'"),
    ("an unknown role", {"label: kind": "lable: kind"}, 10, "run.data.columns.lable", "is no role"),
    ("no such file", {"rows.jsonl": "row.jsonl"}, 9, "run.data.train", "no such file"),
    ("no format", {"rows.jsonl": "rows.xlsx"}, 9, "run.data.train", "tells no format"),
    ("no such weights", {"hf://google-bert/bert-base-uncased": "./nowhere"}, 7, "run.weights", "no such folder"),
    ("no such package", {"hf://google-bert/bert-base-uncased": "pkg://nope/x"}, 7, "run.weights", "no Python package"),
    (
        "new without config",
        {"hf://google-bert/bert-base-uncased": "new"},
        4,
        "train.method",
        "new weights are all trained",
    ),
    ("local with two", {"  task:": "  processes: 2\n  task:"}, 6, "run.processes", "is one process"),
    ("cost unknown", {"  task:": "  limits: {max_cost_usd: 5}\n  task:"}, 6, "run.limits.max_cost_usd", "not known"),
    ("objective", {"train: {": "train: {objective: language-model, "}, 4, "train.objective", "learns classification"),
    ("layers split", {"train: {": "train: {tensor_parallel: 2, "}, 4, "train.tensor_parallel", "splits no layers"),
    ("alias", {"  task:": "  tracking: {alias: a}\n  task:"}, 6, "run.tracking.alias", "nothing is registered"),
]


@pytest.mark.parametrize(("change", "line", "key", "said"), [one[1:] for one in FAULTS], ids=[one[0] for one in FAULTS])
def test_faults_are_told_with_line_and_key(
    change: dict[str, str], line: int, key: str, said: str, tmp_path: Path
) -> None:
    """Each names file, line, key, and what to write."""
    text = TRAIN
    for old, new in change.items():
        text = text.replace(old, new)
    with pytest.raises(WorkloadError) as caught:
        read(text, tmp_path)
    error = caught.value
    assert (error.file, error.line, error.key) == (str(tmp_path / "mine.tonnage.yaml"), line, key)
    assert said in str(error)
    assert error.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: train\nmodel: bert-base-uncased\ndata: {samples: 1, seq_len: 8}\n", "says nothing of how to run it"),
        ("kind: serve\nmodel: gpt2\nserve: {rate_per_s: 1, input_tokens: 8, output_tokens: 8}\n", "is no run"),
        (TABLE.replace("run:", "run:\n  runner: ray\n  processes: 2"), "carried out by one process"),
        (WRITE.replace("hf://openai-community/gpt2", "new"), "new weights write noise"),
    ],
)
def test_what_cannot_be_run(text: str, said: str, tmp_path: Path) -> None:
    """Files without a run, of other kinds, and runs that make no sense."""
    with pytest.raises(WorkloadError, match=said) as caught:
        read(text, tmp_path)
    assert caught.value.hint


def test_several_files_are_kept_in_order(tmp_path: Path) -> None:
    """A list of locations; each must be there."""
    (tmp_path / "more.jsonl").touch()
    given: dict[str, Any] = {"rows.jsonl": "[rows.jsonl, more.jsonl]"}
    spec = read(TRAIN.replace("rows.jsonl", given["rows.jsonl"]), tmp_path)
    assert spec.data.train.more == (str(tmp_path / "more.jsonl"),)
