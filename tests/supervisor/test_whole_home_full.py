"""The whole home on a small disk that fills up: every process of a run, as the command line starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tonnage.runs import EventKind, RunFolder, RunSpec
from tonnage.runs.journal import CUT
from tonnage.runs.liveness import is_held, workers_lock
from tonnage.runs.spec import DataSource, DataSpec, dump_spec

ROOT = Path(__file__).parents[2]
SIZE = "24m"  # tmpfs: room for a home, its database and a short run
LONGEST_S = 120.0
STEPS = 400


def mounted(folder: Path) -> bool:
    """Whether a small file system could be mounted there."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mounted(folder):
        pytest.skip("no tmpfs can be mounted here: that needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


class Home:
    """A home on the disk, and `tonnage` at it."""

    def __init__(self, disk: Path, beside: Path) -> None:
        self.disk, self.home = disk, disk / "home"
        self.home.mkdir()
        (self.home / "rows.csv").write_text("a,b\n1,2\n")
        data = DataSpec(train=DataSource(location=str(self.home / "rows.csv"), format="csv"))
        self.spec = beside / "spec.json"
        self.spec.write_text(dump_spec(RunSpec(name="one", task="mlp", data=data)))
        self.folder = RunFolder(self.home / "runs" / "one")
        pretence = {"steps": STEPS, "step_s": 0.02, "checkpoint_every": 20}
        self.environ = {
            **os.environ, "PYTHONPATH": str(ROOT / "src"), "TONNAGE_HOME": str(self.home),
            "TONNAGE_WORKER": "tonnage.testing.worker", "TONNAGE_FAKE": json.dumps(pretence),
            "TMPDIR": str(disk), "MLFLOW_TRACKING_URI": "none",
        }  # fmt: skip

    def begin(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tonnage", *words]
        return subprocess.Popen(
            command, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.disk
        )

    def fill(self) -> None:
        """Not a byte is left."""
        with (self.disk / "filler").open("ab", buffering=0) as file:
            while True:
                try:
                    file.write(b"\0" * 4096)
                except OSError:
                    break

    def make_room(self) -> None:
        (self.disk / "filler").unlink()

    def is_quiet(self) -> bool:
        return not is_held(self.folder.pid_file) and not is_held(workers_lock(self.folder))

    def wait(self, true: Callable[[], bool], why: Callable[[], object]) -> None:
        until = time.monotonic() + LONGEST_S
        while not true():
            assert time.monotonic() < until, why()
            time.sleep(0.05)

    def words(self) -> str:
        files = (self.folder.journal_file, self.folder.path / "supervisor.log")
        return "\n".join(one.read_text() for one in files if one.exists())


@pytest.mark.slow
def test_a_run_whose_home_fills_up_ends_with_its_reason_and_goes_on(disk: Path, tmp_path: Path) -> None:
    """Worker, shim, supervisor, reporter and client all meet the full disk. The run ends as DiskFull, by its own
    supervisor, as soon as there is room for the word or in what was kept for it; `resume` ends it with every loss."""
    home = Home(disk, tmp_path)
    client = home.begin("run", str(home.spec))
    home.wait(lambda: home.folder.journal_file.exists() and home.folder.state().step >= 0
              and (home.folder.state().checkpoint_step or 0) >= 40, home.words)  # fmt: skip
    home.fill()
    said = client.communicate(timeout=LONGEST_S)
    home.wait(home.is_quiet, home.words)
    state = home.folder.state()
    assert (state.state.value, state.reason and state.reason.value) == ("failed", "DiskFull"), home.words()
    assert client.returncode == 1, said
    assert "one failed (DiskFull)" in said[1]
    assert "tonnage/cli" not in said[1], said[1]  # a worker's own traceback may be in the log that is followed
    again = home.begin("resume", "one")
    refused = again.communicate(timeout=LONGEST_S)
    assert again.returncode != 0
    assert "tonnage/cli" not in refused[1], refused[1]
    home.wait(home.is_quiet, home.words)
    home.make_room()
    done = home.begin("resume", "one")
    out, err = done.communicate(timeout=LONGEST_S)
    assert done.returncode == 0, (out, err, home.words())
    assert home.folder.state().state.value == "succeeded"
    lines = [line for line in home.folder.metrics_file.read_text().splitlines() if not line.endswith(CUT)]
    losses = {line["step"]: line["loss"] for line in map(json.loads, lines)}
    assert losses == {step: 1 / step for step in range(1, STEPS + 1)}
    assert "Traceback" not in (home.folder.path / "supervisor.log").read_text()


@pytest.mark.slow
def test_processes_that_only_look_after_a_run_outlive_a_full_disk(disk: Path, tmp_path: Path) -> None:
    """A worker that writes nothing while the disk is full never notices: supervisor, shim, reporter and client go on,
    and the journal has every event once there is room."""
    home = Home(disk, tmp_path)
    home.environ["TONNAGE_FAKE"] = json.dumps(
        {"steps": 6, "step_s": 2.0, "checkpoint_every": 100, "allow_at": str(tmp_path / "go")}
    )
    client = home.begin("run", str(home.spec))
    waits = home.folder.path / "fake-starts-0"
    home.wait(lambda: waits.exists() and waits.read_text() == "1", home.words)
    time.sleep(1)  # the worker waits for its first step now
    supervisor = psutil.Process(int(home.folder.pid_file.read_text()))
    below = {one.pid for one in supervisor.children(recursive=True)}
    home.fill()
    time.sleep(8)  # beats, samples, reports and looks in the meantime
    assert supervisor.is_running(), home.words()
    assert below <= {one.pid for one in supervisor.children(recursive=True)}
    assert client.poll() is None
    home.make_room()
    (tmp_path / "go").touch()
    said = client.communicate(timeout=LONGEST_S)
    assert client.returncode == 0, (said, home.words())
    kinds = [event.kind for event in home.folder.events()]
    assert kinds.count(EventKind.STARTED) == 1
    assert EventKind.SUCCEEDED in kinds
    assert "Traceback" not in said[1] + home.words()
