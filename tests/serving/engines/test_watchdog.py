"""No engine outlives the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tonnage.serving.engines.watchdog import end_engines, processes_of, started_at

STARTS = """
import sys, time
from pathlib import Path
from tonnage.serving.engines.engine import EngineCommand
from tonnage.serving.engines.processes import start_engine, stop_engine
argv = (sys.executable, "-S", "-c", sys.argv[2])
def start(name):
    command = EngineCommand(engine="e", argv=argv, host="127.0.0.1", port=0, health="/")
    return start_engine(command, Path(sys.argv[1]) / name)
stopped = start("stopped")
stop_engine(stopped, grace_s=0.0)
print(*(start(name).process.pid for name in ("a", "b")), flush=True)
time.sleep(600)
"""
ENGINE = """
import os, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
open(f"{os.getpid()}.child", "w").write(str(child.pid))
time.sleep(600)
"""
DEAF = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "open(str(os.getpid()) + '.deaf', 'w').write('1'); "
)


def test_engines_end_with_a_killed_parent(tmp_path: Path) -> None:
    """kill -9 of the process that started two engines: they and workers in sessions of their own end, their logs say
    why; an engine that had been stopped is not mentioned."""
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTS, str(tmp_path), ENGINE], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert parent.stdout is not None
    engines = [int(pid) for pid in parent.stdout.readline().split()]
    children = [_child(tmp_path / f"{pid}.child") for pid in engines]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 60
    while any(_lives(pid) for pid in (*engines, *children)):
        assert time.monotonic() < until, "an engine outlived the process that had started it"
        time.sleep(0.02)
    assert all(f"process {parent.pid}" in (tmp_path / name / "engine.log").read_text() for name in "ab")
    assert (tmp_path / "stopped" / "engine.log").read_text() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_descendants_and_sessions_belong_to_an_engine() -> None:
    """This process and its child belong to an engine of this pid; pid 1 does not."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = processes_of({os.getpid(): started_at(os.getpid())})
        assert {os.getpid(), child.pid} <= set(found)
        assert 1 not in found
        assert found[child.pid] == started_at(child.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_pid_that_was_given_again_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of an engine's pid that began at another time is not the engine's, and is not ended for it."""
    monkeypatch.setattr("tonnage.serving.engines.watchdog.GRACE_S", 0.2)
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as other:
        start = started_at(other.pid)
        assert start is not None
        end_engines({other.pid: (start - 1, str(tmp_path / "log"))}, os.getpid())
        assert other.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_of_its_own_session_ends_though_its_engine_went_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that does not hear SIGTERM is killed, though at that time nothing tells any more whose it was."""
    monkeypatch.setattr("tonnage.serving.engines.watchdog.GRACE_S", 0.5)
    with subprocess.Popen([sys.executable, "-S", "-c", ENGINE.replace("import time; ", DEAF)], cwd=tmp_path) as engine:
        worker = _child(tmp_path / f"{engine.pid}.child")
        _child(tmp_path / f"{worker}.deaf")
        reaper = threading.Thread(target=engine.wait)
        reaper.start()
        end_engines({engine.pid: (started_at(engine.pid), str(tmp_path / "log"))}, os.getpid())
        reaper.join()
        assert not _lives(worker)


def _child(file: Path) -> int:
    until = time.monotonic() + 60
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return int(file.read_text())


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
