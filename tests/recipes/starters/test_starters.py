"""Starters run as they are: each file is plannable and runnable, and its task can be learned."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from tonnage.cli import run
from tonnage.recipes.starters import STARTERS, make_starter
from tonnage.runs.folder import RunFolder
from tonnage.runs.locations import files_at
from tonnage.runs.reading import load_run_spec
from tonnage.runs.states import WorkerExit
from tonnage.workload.loading import load_workload
from tonnage.workload.run_terms import OWN_TASK, Task

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
BETTER = {  # figure of the model, of the baseline, and whether more is better
    "sequence-classification": ("accuracy", "majority_accuracy", True),
    "token-classification": ("f1", None, True),
    "question-answering": ("f1", "nearest_sentence_f1", True),
    "causal-lm": ("perplexity", "token_frequency_perplexity", False),
    "sequence-to-sequence": ("rouge_l", "copied_source_rouge_l", True),
    "image-classification": ("accuracy", "majority_accuracy", True),
    "boosted-trees": ("rmse", "mean_rmse", False),
    "mlp": ("rmse", "mean_rmse", False),
}


def written(task: str, folder: Path) -> Path:
    assert run(["init", task, "--out", str(folder)]) == 0
    return folder / f"{task}.tonnage.yaml"


def carried_out(file: Path) -> dict[str, Any]:
    """The result of the run of a file, in this process."""
    from tonnage.recipes.worker import run_worker

    folder = RunFolder(file.parent / "run")
    folder.create(load_run_spec(file, as_of=AS_OF))
    assert run_worker(folder) == WorkerExit.DONE
    result: dict[str, Any] = json.loads(folder.result_file.read_text())
    return result


def test_every_task_has_a_starter() -> None:
    """And `tonnage init` completes each of them."""
    from tonnage.api.starting import TASKS

    assert set(STARTERS) == {*get_args(Task)} - {OWN_TASK} == set(TASKS)


@pytest.mark.parametrize("task", [task for task in get_args(Task) if task != OWN_TASK])
def test_a_starter_is_a_workload_and_a_run(task: Task, tmp_path: Path) -> None:
    """The file written reads as a workload to plan and as a run; its rows and model are where it says."""
    pytest.importorskip("safetensors", reason="the extra `train`")
    file = written(task, tmp_path)
    assert load_workload(file, as_of=AS_OF).name == task
    spec = load_run_spec(file, as_of=AS_OF)
    assert spec.task == task
    assert Path(spec.data.train.location).is_relative_to(tmp_path / "data")
    assert files_at(spec.data.train.location)
    assert make_starter(task) == make_starter(task)


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is there stops it before anything is written; --force writes."""
    (tmp_path / "data").mkdir()
    mine = tmp_path / "data" / "flats.csv"
    mine.write_text("mine")
    assert run(["init", "mlp", "--out", str(tmp_path)]) == 2
    assert "flats.csv is there" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*.*")) == [mine]
    assert run(["init", "mlp", "--out", str(tmp_path), "--force"]) == 0
    assert mine.read_text() != "mine"


def test_a_task_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with the nearest; --list prints all."""
    assert run(["init", "sequence-clasification"]) == 2
    assert "sequence-classification" in capsys.readouterr().err
    assert run(["init"]) == 2
    assert run(["init", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(STARTERS) + 1  # and `compare`


def test_the_generation_starter_speaks(tmp_path: Path) -> None:
    """Its weights, made without training, write sentences of the stories' own words, each kept once."""
    pytest.importorskip("transformers", reason="the extra `train`")
    file = written("text-generation", tmp_path)
    file.write_text(file.read_text().replace("items: 200", "items: 32"))
    result = carried_out(file)
    rows = [json.loads(line) for line in (tmp_path / "run" / "generated.jsonl").read_text().splitlines()]
    assert result["metrics"]["kept_texts"] == len(rows) > 5
    words = {word for row in rows for word in row["text"].split()}
    assert "the" in words
    assert all(row["text"].startswith("the") for row in rows if row["prompt"].endswith(("on", "at", "under", "over")))


def test_the_tree_starter_learns(tmp_path: Path) -> None:
    """A whole run of the quickest starter: far below the error of the mean."""
    pytest.importorskip("xgboost", reason="the extra `tabular`")
    result = carried_out(written("boosted-trees", tmp_path))
    assert result["metrics"]["rmse"] < 0.5 * result["baseline"]["mean_rmse"]


@pytest.mark.slow
@pytest.mark.parametrize("task", BETTER)
def test_every_starter_learns(task: str, tmp_path: Path) -> None:
    """A whole run of each starter ends better than its simple baseline."""
    pytest.importorskip("transformers", reason="the extra `train`")
    result = carried_out(written(task, tmp_path))
    metric, simple, more = BETTER[task]
    found, against = result["metrics"][metric], 0.5 if simple is None else result["baseline"][simple]
    assert (found > against) is more, result
