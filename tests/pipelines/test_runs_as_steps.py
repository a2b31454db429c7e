"""Runs as steps: what makes a training stale, and which command goes on with a run that is there already."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.pipelines import Pipeline, load_pipeline
from tonnage.pipelines.commands import TONNAGE, render_command
from tonnage.pipelines.fingerprints import digest_step
from tonnage.runs import EventKind, RunFolder
from tonnage.testing import run_spec

WORKLOAD = """
kind: train
model: all-minilm-l6-v2
data: {samples: 4, seq_len: 32, epochs: 1}
train: {global_batch: 4}
run:
  task: sequence-classification
  weights: here
  learning_rate: 1e-4
  data:
    train: [rows/a.jsonl, "rows/b-*.jsonl"]
    test: ../test.jsonl
    columns: {text: text, label: label}
"""
PIPELINE = """
name: texts
steps:
  train: {run: train.tonnage.yaml}
  evaluate: {evaluate: train, data: ../test.jsonl}
  predict: {predict: train, data: "{evaluate.nothing}", output: out.jsonl}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    folder = tmp_path / "work"
    (folder / "rows").mkdir(parents=True)
    (folder / "here").mkdir()
    for name in ("rows/a", "rows/b-1", "rows/b-2", "../test"):
        (folder / f"{name}.jsonl").write_text(json.dumps({"text": name, "label": "x"}) + "\n")
    (folder / "train.tonnage.yaml").write_text(WORKLOAD)
    (folder / "texts.pipeline.yaml").write_text(PIPELINE.replace('"{evaluate.nothing}"', "rows/a.jsonl"))
    return load_pipeline(folder / "texts.pipeline.yaml")


def test_the_rows_of_a_workload_are_inputs_of_its_step(pipeline: Pipeline) -> None:
    """Every local file of rows counts, also by pattern and outside the folder; a changed row changes the digest."""
    before = digest_step(pipeline, pipeline.step("train"))
    assert set(before) == {
        "train.tonnage.yaml", "rows/a.jsonl", "rows/b-1.jsonl", "rows/b-2.jsonl", "../test.jsonl",
    }  # fmt: skip
    (pipeline.folder / "rows" / "b-2.jsonl").write_text(json.dumps({"text": "other", "label": "x"}) + "\n")
    after = digest_step(pipeline, pipeline.step("train"))
    assert {name for name in before if before[name] != after[name]} == {"rows/b-2.jsonl"}
    assert set(digest_step(pipeline, pipeline.step("evaluate"))) == {"../test.jsonl"}
    assert set(digest_step(pipeline, pipeline.step("predict"))) == {"rows/a.jsonl"}


def test_missing_rows_fail_the_step_with_their_line(pipeline: Pipeline) -> None:
    """What the run would say, before anything is started."""
    (pipeline.folder / "rows" / "a.jsonl").unlink()
    with pytest.raises(InputError, match=r"train.tonnage.yaml:\d+: .*no such file"):
        digest_step(pipeline, pipeline.step("train"))


def test_a_run_that_is_there_is_gone_on_with(pipeline: Pipeline, tmp_path: Path) -> None:
    """None: start it. Alive: follow it. Stopped, failed, or its supervisor killed: resume it. Ended well: show it."""

    def command() -> tuple[str, ...]:
        return render_command(pipeline, pipeline.step("train"), run="one", home=tmp_path)[len(TONNAGE) :]

    assert command() == ("run", "train.tonnage.yaml", "--name", "one", "--yes")
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.create(run_spec("one"))
    folder.record(EventKind.SUBMITTED, who="cli")
    folder.record(EventKind.STARTED, who="supervisor")
    with folder.pid_file.open("w") as lock:  # what a living supervisor holds
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert command() == ("logs", "one", "--follow")
    assert command() == ("resume", "one")
    for kind, words in ((EventKind.STOPPED, "resume"), (EventKind.FAILED, "resume"), (EventKind.SUCCEEDED, "show")):
        folder.record(kind, who="supervisor")
        assert command() == (words, "one")
