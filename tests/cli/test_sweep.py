"""`tonnage sweep` as a user types it: trials are real runs under supervisors, killed, interrupted and resumed."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs import RunFolder, RunStatus
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import has_supervisor, is_held

pytest.importorskip("optuna")

Run = Callable[..., subprocess.CompletedProcess[str]]
LONGEST_S = 90.0
FILE = """\
kind: tabular
tabular: {rows: 100, features: 2, method: mlp, epochs: 1}
run:
  data: {train: rows.csv}
sweep:
  parameters: {run.learning_rate: {low: 1e-4, high: 1e-1, log: true}}
  objective: accuracy
  trials: 3
"""
FAKE = {"TONNAGE_WORKER": "tonnage.testing.worker", "MLFLOW_TRACKING_URI": "none"}


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "rows.csv").write_text("a,label\n1,2\n")
    path = tmp_path / "one.tonnage.yaml"
    path.write_text(FILE)
    return str(path)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """The runs of the test's home; what still runs at the end is cancelled."""
    folder = tmp_path / "home" / "runs"
    yield folder
    for path in folder.glob("*"):
        (path / "cancel").write_text("")
        wait_for(lambda path=path: not is_held(path / "supervisor.pid"))  # type: ignore[misc]


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST_S
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def begin(file: str, environment: dict[str, str], env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tonnage", "sweep", file, "-y"],
        env=environment | env, cwd=Path(file).parent, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def starts(folder: Path) -> int:
    """How many times a run was submitted."""
    return sum(event.kind is EventKind.SUBMITTED for event in RunFolder(folder).events())


def pretend(**fields: object) -> dict[str, str]:
    return FAKE | {"TONNAGE_FAKE": json.dumps(fields)}


def held_back(gate: Path) -> dict[str, str]:
    """Trials that wait for a file before their first step."""
    return pretend(steps=3, allow_at=str(gate))


def test_killed_and_resumed(
    inside: Run, environment: dict[str, str], file: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 of the sweep in its second trial: that one runs on alone, the resumed sweep takes it up where it is,
    starts the third, and starts none twice."""
    gate = tmp_path / "go"
    gate.write_text("")
    sweep = begin(file, environment, held_back(gate))
    wait_for(lambda: (runs / "one-001" / "spec.json").exists())
    wait_for(lambda: RunFolder(runs / "one-001").state().state is RunStatus.SUCCEEDED)
    gate.unlink()
    wait_for(lambda: (runs / "one-002").exists() and has_supervisor(RunFolder(runs / "one-002")))
    os.kill(sweep.pid, signal.SIGKILL)
    sweep.communicate()
    shown = inside("sweep", "--show", "one", "-o", "json")
    assert json.loads(shown.stdout)["state"] == "unfinished", shown.stderr
    refused = inside("sweep", file, "-y")
    assert refused.returncode == 2
    assert "--resume` goes on with it" in refused.stderr
    gate.write_text("")
    for name, value in held_back(gate).items():
        monkeypatch.setenv(name, value)
    done = inside("sweep", file, "--resume", "-o", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["state"] == "done"
    assert [one["state"] for one in document["trials"]] == ["complete"] * 3
    assert {path.name: starts(path) for path in runs.glob("*")} == {"one-001": 1, "one-002": 1, "one-003": 1}
    specs = [RunFolder(runs / f"one-00{number}").spec() for number in (1, 2, 3)]
    assert {one.sweep for one in specs} == {"one"}
    assert [one.training.learning_rate for one in specs] == [
        one["values"]["run.learning_rate"] for one in document["trials"]
    ]


@pytest.mark.slow
def test_interrupted_and_resumed(tonnage: Run, environment: dict[str, str], file: str, runs: Path) -> None:
    """Ctrl-C: the trial under way saves a checkpoint and stops, the exit code is 130; the resumed sweep resumes it."""
    sweep = begin(file, environment, pretend(steps=3000, step_s=0.05))
    wait_for(
        lambda: RunFolder(runs / "one-001").state().state is RunStatus.RUNNING if (runs / "one-001").exists() else False
    )
    sweep.send_signal(signal.SIGINT)
    _, said = sweep.communicate(timeout=LONGEST_S)
    assert sweep.returncode == 130, said
    stopped = RunFolder(runs / "one-001").state()
    assert stopped.state is RunStatus.STOPPED
    assert stopped.checkpoint_step == stopped.step > 0
    done = tonnage("sweep", file, "--resume", "-o", "json", env=pretend(steps=3))
    assert done.returncode == 0, done.stderr
    assert f"goes on from step {stopped.step}" in done.stderr
    assert [one["state"] for one in json.loads(done.stdout)["trials"]] == ["complete"] * 3
    assert {path.name: starts(path) for path in runs.glob("*")} == {"one-001": 2, "one-002": 1, "one-003": 1}


@pytest.mark.slow
def test_trials_that_really_learn(tonnage: Run, runs: Path, tmp_path: Path) -> None:
    """Four trainings of trees: the best of the table has the lowest error, its values in its specification, and is
    found by `--show` as it was; all files of the sweep are the user's alone."""
    pytest.importorskip("xgboost")
    rows = "\n".join(f"{n},{n % 7},{3 * n + (n % 7)}" for n in range(120))
    (tmp_path / "rows.csv").write_text(f"a,b,label\n{rows}\n")
    file = tmp_path / "trees.tonnage.yaml"
    file.write_text("""\
kind: tabular
tabular: {rows: 120, features: 2, method: boosted-trees, trees: 5, depth: 2}
run: {data: {train: rows.csv}, objective: regression, threads: 1}
sweep:
  parameters: {tabular.trees: [1, 30], run.learning_rate: [0.01, 0.5]}
  objective: rmse
  sampler: grid
  parallel: 2
""")
    done = tonnage("sweep", str(file), "-y", "-o", "json", env={"MLFLOW_TRACKING_URI": "none"})
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [one["state"] for one in document["trials"]] == ["complete"] * 4
    best: Any = min(document["trials"], key=lambda one: one["objective"])
    assert best["values"] == {"tabular.trees": 30, "run.learning_rate": 0.5}
    assert document["best"] == {"trial": best["trial"], "run": best["run"]}
    spec = RunFolder(runs / best["run"]).spec()
    assert (spec.tabular.trees, spec.training.learning_rate) == (30, 0.5)
    result = json.loads((runs / best["run"] / "result.json").read_text())
    assert result["metrics"]["rmse"] == pytest.approx(best["objective"])
    shown = tonnage("sweep", "--show", "trees", "-o", "json")
    assert json.loads(shown.stdout)["trials"] == document["trials"], shown.stderr
    folder = tmp_path / "home" / "sweeps" / "trees"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {0o600}


def test_bad_input(inside: Run, file: str, tmp_path: Path) -> None:
    """Exit code 2 with what to do, and no home is made."""
    text = Path(file).read_text()
    cases = [
        (("sweep",), text, "tonnage sweep FILE"),
        (("sweep", file), text.partition("sweep:")[0], "docs/sweep.md"),
        (("sweep", file), text.replace("run.learning_rate:", "run.learning_rat:"), "run.learning_rate"),
        (("sweep", file), text.replace("objective: accuracy", "objective: accurancy"), "'accuracy'"),
        (("sweep", file, "--name", "../up"), text, "--name"),
        (("sweep", file, "--resume"), text, "leave out --resume"),
        (("sweep", "--show", "one"), text, "begins one"),
        (("sweep", str(tmp_path / "none.yaml")), text, "no such file"),
    ]
    for arguments, content, said in cases:
        Path(file).write_text(content)
        done = inside(*arguments)
        assert done.returncode == 2, arguments
        assert said in done.stderr
        assert "hint:" in done.stderr
    assert not (tmp_path / "home").exists()


def test_without_optuna(tonnage: Run, file: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """The extra is named before anything begins."""
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "optuna.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join([str(tmp_path / "shadow"), environment["PYTHONPATH"]])
    done = tonnage("sweep", file, env={"PYTHONPATH": path})
    assert done.returncode == 2
    assert "pip install 'tonnage[sweep]'" in done.stderr
    assert not (tmp_path / "home").exists()
