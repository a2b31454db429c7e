"""A task of an installed package, by its entry point."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tonnage.errors import InputError, WorkloadError
from tonnage.recipes import tasks
from tonnage.recipes.task import Evaluation, Prepared
from tonnage.recipes.tasks import own_program
from tonnage.recipes.worker import run_worker
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.reading import load_run_spec
from tonnage.runs.spec import LaunchSpec, RunSpec
from tonnage.runs.states import WorkerExit

torch = pytest.importorskip("torch", reason="the extra `train`")


class Brightness(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Which half of a small picture is brighter."""

    def __init__(self) -> None:
        super().__init__()
        self.classify = torch.nn.Linear(16, 2)

    def forward(self, pixels: Any, labels: Any) -> Any:
        logits = self.classify(pixels.flatten(1))
        return SimpleNamespace(loss=torch.nn.functional.cross_entropy(logits, labels), logits=logits)


def collate(items: Any) -> dict[str, Any]:
    return {name: torch.stack([item[name] for item in items]) for name in ("pixels", "labels")}


def evaluate(model: Any, items: Any, batch: int) -> Evaluation:  # noqa: ARG001
    given = collate(items)
    right = (model(**given).logits.argmax(-1) == given["labels"]).float().mean()
    return Evaluation(metrics={"accuracy": float(right)}, samples=len(items))


def prepare(spec: RunSpec) -> Prepared:
    """Pictures of 4 x 4 points at random."""
    assert spec.column("picture") == "path"
    drawn = torch.rand(64, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = (drawn[:, 2:].mean((1, 2)) > drawn[:, :2].mean((1, 2))).long()
    pictures = [{"pixels": one, "labels": label} for one, label in zip(drawn, labels, strict=True)]
    return Prepared(
        model=Brightness(), train=pictures[:48], validation=pictures[48:], test=None, collate=collate,
        longest=lambda items: range(len(items)), tokens=lambda _: 0, evaluate=evaluate,
        save=lambda model, path: torch.save(model.state_dict(), path / "model.pt"),
    )  # fmt: skip


def entry(value: str) -> EntryPoint:
    return EntryPoint(name="pictures", value=value, group=tasks.GROUP)


@pytest.fixture
def spec(write_rows: Any, run_spec: Callable[..., RunSpec]) -> RunSpec:
    training = {"max_steps": 60, "epochs": 100.0, "learning_rate": 0.05, "precision": "fp32"}
    rows = write_rows("rows.jsonl", [{"path": "a.png"}])
    made = run_spec("own", rows, roles=(), data={"columns": (("picture", "path"),)}, training=training)
    return replace(made, program="pictures", launch=LaunchSpec(device="cpu", threads=1))


def test_it_is_trained_as_any_other(spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop takes what the package prepared, learns, judges and saves by its functions."""
    monkeypatch.setattr(tasks, "own_program", lambda name: {"pictures": prepare}[name])
    folder = RunFolder(tmp_path / "run")
    folder.create(spec)
    assert run_worker(folder) == WorkerExit.DONE
    assert json.loads(folder.result_file.read_text())["metrics"]["accuracy"] > 0.8
    assert (folder.model / "model.pt").exists()


def test_a_program_is_found_by_its_name() -> None:
    """Of the installed ones; a name that is not there, or a module that cannot be loaded, is told with what to do."""
    assert own_program("pictures", [entry("json:loads")]) is json.loads
    with pytest.raises(InputError, match="no entry point 'photos'") as caught:
        own_program("photos", [entry("json:loads")])
    assert "pictures" in str(caught.value.hint)
    for value in ("no_such_package:prepare", "json:prepare"):
        with pytest.raises(InputError, match="cannot be loaded"):
            own_program("pictures", [entry(value)])


def test_a_missing_program_ends_the_run_as_bad_input(spec: RunSpec, tmp_path: Path) -> None:
    """Before any step, and it is not started again."""
    folder = RunFolder(tmp_path / "run")
    folder.create(replace(spec, program="nowhere"))
    assert run_worker(folder) == WorkerExit.BAD_INPUT
    [said] = [event for event in folder.events() if event.kind is EventKind.STOPPING]
    assert "no entry point 'nowhere'" in said.fields["message"]


FILE = """\
kind: train
model: bert-base-uncased
data: {{samples: 10, seq_len: 8}}
run:
  task: {task}
  weights: hf://google-bert/bert-base-uncased
  data: {{train: rows.jsonl, columns: {{picture: path}}}}
{more}
"""


@pytest.mark.parametrize(
    ("task", "more", "said"),
    [
        ("own", "", "`run.program`: is missing"),
        ("own", "  program: pictures\n  tracking: {register_as: mine}", "no known way to be asked"),
        ("causal-lm", "  program: pictures", "has its own program"),
    ],
)
def test_what_cannot_be_is_told_with_its_key(task: str, more: str, said: str, tmp_path: Path) -> None:
    """Nothing is read or started for it."""
    (tmp_path / "rows.jsonl").touch()
    file = tmp_path / "mine.tonnage.yaml"
    file.write_text(FILE.format(task=task, more=more))
    with pytest.raises(WorkloadError) as caught:
        load_run_spec(file)
    assert said in str(caught.value)


def test_a_file_names_program_and_any_role(tmp_path: Path) -> None:
    """Roles are the program's own."""
    (tmp_path / "rows.jsonl").touch()
    file = tmp_path / "mine.tonnage.yaml"
    file.write_text(FILE.format(task="own", more="  program: pictures"))
    spec = load_run_spec(file)
    assert (spec.task, spec.program, spec.column("picture")) == ("own", "pictures", "path")
