"""The pipeline file at the door: what it means, and each way it can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.cli.running import run
from tonnage.errors import WorkloadError
from tonnage.pipelines import Pipeline, load_pipeline
from tonnage.pipelines.report import render_graph

GOOD = """
name: sections
steps:
  prepare: {command: "python make.py --out {rows}", outputs: {rows: rows.jsonl}}
  train: {run: train.tonnage.yaml, needs: prepare}
  evaluate: {evaluate: train, data: "{prepare.rows}", require: {accuracy: ">= 0.6"}}
  register: {register: train, name: sections, alias: champion, needs: [evaluate]}
  predict: {predict: train, data: "{prepare.rows}", output: out.jsonl}
"""


def read(tmp_path: Path, text: str) -> Pipeline:
    path = tmp_path / "a.pipeline.yaml"
    path.write_text(text)
    return load_pipeline(path)


def test_needs_follow_from_what_a_step_uses(tmp_path: Path) -> None:
    """A model or an output that is used is a need, whether or not it is listed."""
    pipeline = read(tmp_path, GOOD)
    assert pipeline.step("evaluate").needs == ("train", "prepare")
    assert pipeline.step("evaluate").require == (("accuracy", ">=", 0.6),)
    assert [step.name for step in pipeline.steps][:2] == ["prepare", "train"]
    assert pipeline.after(frozenset({"evaluate"})) == {"evaluate", "register"}
    assert render_graph(pipeline).count("-->") == 7


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("needs: prepare", "needs: prepar", r"a.pipeline.yaml:5: `steps.train.needs`: no step is named 'prepar'"),
        ("evaluate: train,", "evaluate: prepare,", "step 'prepare' trains no model"),
        ('">= 0.6"', "0.6", r">= 0\.9"),
        ("{prepare.rows}", "{prepare.row}", "no output of step 'prepare' is named 'row'"),
        ("output: out.jsonl", "output: rows.jsonl", "writes rows.jsonl, as step 'prepare' does"),
        ("{register: train, name: sections,", "{register: train,", r"`steps.register.name`: is missing"),
        ("run: train.tonnage.yaml", "run: train.tonnage.yaml, alias: a", "a step with `run` takes no `alias`"),
        ("run: train.tonnage.yaml, ", "", "does nothing"),
        ("run: train.tonnage.yaml", "run: x, command: y", "has command and run"),
        ("needs: prepare", "needs: register", "waits for itself"),
        ("--out {rows}", "--out '{rows}", "expected a command"),
        ("needs: prepare", "need: prepare", "unknown key"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """Each fault says file, line and key."""
    assert old in GOOD
    with pytest.raises(WorkloadError, match=expected):
        read(tmp_path, GOOD.replace(old, new))


def test_a_dry_run_prints_each_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command lines are complete, and nothing is written."""
    path = tmp_path / "a.pipeline.yaml"
    path.write_text(GOOD)
    assert run(["pipeline", "run", str(path), "--dry-run", "-o", "csv"]) == 0
    said = capsys.readouterr().out
    assert "python make.py --out rows.jsonl" in said
    assert "tonnage run train.tonnage.yaml --name sections-train-FINGERPRINT" in said
    assert "tonnage predict sections-train-FINGERPRINT --data rows.jsonl --out out.jsonl" in said
    assert [one.name for one in tmp_path.iterdir()] == ["a.pipeline.yaml"]
