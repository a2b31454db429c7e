"""For the tests on a GPU (`make test-gpu`): starters, changed and carried out by the command line, each in a new home.

Everything here is made on the spot: tiny models with random weights, rows of the starters. Without a CUDA device the
tests are skipped and say why; TONNAGE_GPU_TESTS_ON=cpu runs those on a processor that need no GPU to mean something,
to check the tests themselves.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.spec import CheckpointSpec, DataSource, DataSpec, LaunchSpec, RunSpec, TrainingSpec

SOURCES = Path(__file__).parents[2] / "src"
TINY = Path(__file__).parents[1] / "recipes" / "loop" / "tiny.py"
LONGEST_S = 240.0  # of one command


@cache
def why_no_gpu() -> str | None:
    """Asked of another process, so that this one holds no memory of the GPU."""
    asked = "import torch; print(torch.cuda.is_available(), torch.__version__)"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False, timeout=120)
    said = done.stdout.split()
    if not said:
        return "PyTorch is not installed (extra 'train')"
    return None if said[0] == "True" else f"PyTorch {said[1]} sees no CUDA device"


@pytest.fixture
def cuda() -> str:
    """The device of a test that means something on a GPU alone."""
    if (why := why_no_gpu()) is not None:
        pytest.skip(why)
    return "cuda"


@pytest.fixture
def device() -> str:
    """cuda, or a processor where the tests themselves are checked."""
    if os.environ.get("TONNAGE_GPU_TESTS_ON") == "cpu":
        return "cpu"
    if (why := why_no_gpu()) is not None:
        pytest.skip(why)
    return "cuda"


def merged(known: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """`more` over `known`, section by section."""
    found = dict(known)
    for key, value in more.items():
        below = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if below else value
    return found


@dataclass(frozen=True)
class Home:
    """A place with a home of its own, in which commands are given as a user gives them."""

    path: Path

    def tonnage(self, *words: str, good: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        """One command to its end; a failure of it is one of the test, unless that is what is looked for."""
        done = subprocess.run(
            [sys.executable, "-m", "tonnage", *words], cwd=self.path, env=self.environ(**environ), capture_output=True,
            text=True, check=False, timeout=LONGEST_S,
        )  # fmt: skip
        if good:
            assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        return done

    def environ(self, **more: str) -> dict[str, str]:
        paths = [str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {
            "TONNAGE_HOME": str(self.path / "home"), "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1",
            "MLFLOW_TRACKING_URI": "none", "NO_COLOR": "1", "OMP_NUM_THREADS": "2",
        }  # fmt: skip
        return {**os.environ, **own, **more}

    def starter(self, task: str, **changes: Any) -> Path:
        """The file of a starter with some sections changed, e.g. `train={"precision": "fp16"}`."""
        self.tonnage("init", task, "--out", str(self.path), "--force")
        file = self.path / f"{task}.tonnage.yaml"
        said = merged(yaml.safe_load(file.read_text(encoding="utf-8")), changes)
        file.write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
        return file

    def run(self, file: Path, name: str, *, good: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        """`tonnage run` to the run's end."""
        return self.tonnage("run", str(file), "--name", name, "-y", good=good, **environ)

    def folder(self, name: str) -> RunFolder:
        return RunFolder(self.path / "home" / "runs" / name)

    def result(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.folder(name).result_file.read_text(encoding="utf-8"))
        return found

    def shown(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.tonnage("show", name, "-o", "json").stdout)
        return found

    def events(self, name: str, kind: EventKind) -> list[Event]:
        return [event for event in self.folder(name).events() if event.kind is kind]

    def losses(self, name: str) -> dict[int, float]:
        """By step; a step done twice must have come to the same both times."""
        found: dict[int, float] = {}
        for line in self.folder(name).metrics_file.read_text(encoding="utf-8").splitlines():
            said = json.loads(line)
            assert found.setdefault(said["step"], said["loss"]) == said["loss"], f"step {said['step']} differs"
        return found

    def wait_for(self, name: str, done: Callable[[], bool]) -> None:
        end = time.monotonic() + LONGEST_S
        while not done():
            assert time.monotonic() < end, self.log(name)
            time.sleep(0.02)

    def log(self, name: str) -> str:
        files = (self.folder(name).journal_file, self.folder(name).log_file, self.folder(name).path / "supervisor.log")
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in files if file.exists())

    def write_weights(self) -> None:
        """Random weights for the starter's config, so that adapters have a base. In a process of its own."""
        code = (
            "import sys, torch, transformers as t\n"
            "torch.manual_seed(0)\n"
            "config = t.AutoConfig.from_pretrained(sys.argv[1])\n"
            "t.AutoModelForCausalLM.from_config(config).save_pretrained(sys.argv[1])\n"
        )
        model = str(self.path / "model")
        subprocess.run([sys.executable, "-c", code, model], check=True, timeout=LONGEST_S, capture_output=True)

    def workers(self, name: str) -> list[psutil.Process]:
        """The processes that train."""
        shims = [event.fields["pid"] for event in self.events(name, EventKind.STARTED)]
        return [
            one for shim in shims if psutil.pid_exists(shim) for one in psutil.Process(shim).children(recursive=True)
            if "tonnage.recipes.worker" in one.cmdline()
        ]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def work_on_tiny(device: str) -> Callable[..., int]:
    """Carries out a run of the loop's tiny task in this process; its exit code."""
    said = importlib.util.spec_from_file_location("tonnage_tests_tiny_gpu", TINY)
    assert said is not None
    assert said.loader is not None
    tiny = importlib.util.module_from_spec(said)
    said.loader.exec_module(tiny)

    def work(folder: RunFolder, **training: Any) -> int:
        from tonnage.recipes.worker import run_worker

        given = {
            "global_batch": 64, "max_steps": 5, "epochs": 100.0, "log_every_steps": 1, "precision": "fp32", **training,
        }  # fmt: skip
        launch = LaunchSpec(device="cuda" if device == "cuda" else "cpu", threads=1)
        folder.create(
            RunSpec(
                name="one", task="sequence-classification", model="0.0",
                data=DataSpec(train=DataSource(location="200", format="jsonl")), training=TrainingSpec(**given),
                launch=launch, checkpoint=CheckpointSpec(every_steps=5),
            )
        )  # fmt: skip
        return run_worker(folder, program=tiny.prepare)

    return work
