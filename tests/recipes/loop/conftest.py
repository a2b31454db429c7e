"""Runs of the tiny task for the tests of the loop: made, started as processes, read back."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import CUT, Event, EventKind
from tonnage.runs.spec import CheckpointSpec, DataSource, DataSpec, LaunchSpec, RunSpec, TrainingSpec

HERE = Path(__file__).parent


@dataclass(frozen=True)
class TinyRun:
    """One run of the tiny task in a folder of its own."""

    folder: RunFolder

    def start(self, *arguments: str, script: str = "tiny.py", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a worker program to its end."""
        command = [sys.executable, str(HERE / script), str(self.folder.path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environ(**environment), timeout=900)

    def work(self, program: Any = None) -> int:
        """Be the worker, in this process; its exit code."""
        from tonnage.recipes.worker import run_worker

        return run_worker(self.folder, program=program or load_tiny().prepare)

    def lines(self) -> list[dict[str, Any]]:
        """Whole lines of the metrics, as they were written."""
        text = self.folder.metrics_file.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.split("\n")[:-1] if not line.endswith(CUT)]

    def curve(self) -> dict[int, tuple[float, float, float]]:
        """Loss, learning rate and tokens by step. A step logged twice must say the same both times."""
        found: dict[int, tuple[float, float, float]] = {}
        for line in self.lines():
            said = (line["loss"], line["learning_rate"], line["tokens"])
            assert found.setdefault(line["step"], said) == said, f"step {line['step']} differs from its repetition"
        return found

    def events(self, kind: EventKind) -> list[Event]:
        return [event for event in self.folder.events() if event.kind is kind]

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.folder.result_file.read_text(encoding="utf-8"))
        return found


@cache
def load_tiny() -> ModuleType:
    """The tiny task as a module: tests are no package, so it has no name to import it by."""
    said = importlib.util.spec_from_file_location("tonnage_tests_tiny", HERE / "tiny.py")
    assert said is not None
    assert said.loader is not None
    module = importlib.util.module_from_spec(said)
    said.loader.exec_module(module)
    return module


@pytest.fixture
def tiny() -> ModuleType:
    """The module of the tiny task."""
    return load_tiny()


def environ(**more: str) -> Mapping[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


def tiny_spec(name: str = "tiny", *, dropout: float = 0.1, samples: int = 200, **training: Any) -> RunSpec:
    """A run of the tiny task: 60 steps of 16, dropout on, every step logged."""
    said = {
        "global_batch": 16, "max_steps": 60, "epochs": 100.0, "log_every_steps": 1, "precision": "fp32",
        "learning_rate": 1e-3, **training,
    }  # fmt: skip
    return RunSpec(
        name=name, task="sequence-classification", model=str(dropout),
        data=DataSpec(train=DataSource(location=str(samples), format="jsonl")), training=TrainingSpec(**said),
        launch=LaunchSpec(device="cpu", threads=1), checkpoint=CheckpointSpec(every_steps=5),
    )  # fmt: skip


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., TinyRun]:
    """Make the folder of a tiny run; `checkpoint`, `launch` and `task` replace parts of the specification."""

    def make(name: str = "tiny", **said: Any) -> TinyRun:
        parts = {key: said.pop(key) for key in ("checkpoint", "launch", "task") if key in said}
        folder = RunFolder(tmp_path / name)
        folder.create(replace(tiny_spec(name, **said), **parts))
        return TinyRun(folder)

    return make
