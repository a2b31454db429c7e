"""What is measured and kept beside a run: samples, the store, the tracker, and that their failures are their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tonnage.runs import EventKind, RunStatus
from tonnage.store import open_store
from tonnage.supervisor import reporting
from tonnage.tracking import TrackingUnavailable

from .conftest import LONGEST_S, Bench


def start(bench: Bench, **environment: str) -> subprocess.Popen[bytes]:
    """The reporting process as the supervisor starts it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tonnage.supervisor.reporting", str(bench.folder.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=bench.environment | {"MLFLOW_TRACKING_URI": "none"} | environment,
    )
    bench.started.append(process)
    return process


def finish(process: subprocess.Popen[bytes]) -> str:
    """End its input, wait, and return what it wrote."""
    return process.communicate(timeout=LONGEST_S)[1].decode()


def test_a_run_is_sampled_and_indexed(bench: Bench) -> None:
    """Samples of the processes named in the journal, and at the end the run in the store with its state."""
    bench.folder.record(EventKind.STARTED, who="supervisor", attempt=1, pid=os.getpid(), command="python")
    process = start(bench)
    bench.until(bench.folder.samples_file.exists)
    bench.folder.record(EventKind.SUCCEEDED, who="supervisor", step=3)
    bench.folder.result_file.write_text('{"steps": 3, "metrics": {}}')
    said = finish(process)
    with open_store(f"sqlite:///{bench.environment['TONNAGE_HOME']}/tonnage.db") as store:
        rows = store.runs()
    assert [(row.name, row.state) for row in rows] == [("one", RunStatus.SUCCEEDED)], said


def test_a_broken_store_is_told_and_nothing_else_breaks(bench: Bench) -> None:
    """A database that cannot be opened: said on stderr, samples go on, the process ends well."""
    bench.folder.record(EventKind.STARTED, who="supervisor", attempt=1, pid=os.getpid(), command="python")
    process = start(bench, TONNAGE_DATABASE_URL="sqlite:////proc/nowhere/all.db")
    bench.until(bench.folder.samples_file.exists)
    said = finish(process)
    assert process.returncode == 0
    assert "the store failed" in said or "the store, at the end, failed" in said


@pytest.mark.slow
def test_the_reporter_killed(make_bench: Callable[..., Bench]) -> None:
    """SIGKILL to the reporter: the run does not notice, and is in the store at its end all the same."""
    import psutil

    bench = make_bench()
    quick = "-c", "import sys; from pathlib import Path; from tonnage.runs import RunFolder\n" \
        "from tonnage.supervisor.supervising import supervise\nsupervise(RunFolder(Path(sys.argv[1])))"  # fmt: skip
    environment = bench.environment | {"MLFLOW_TRACKING_URI": "none", "TONNAGE_FAKE": '{"steps": 200, "step_s": 0.02}'}
    supervisor = subprocess.Popen([sys.executable, *quick, str(bench.folder.path)], env=environment)
    bench.started.append(supervisor)
    bench.until_step(3)
    below = psutil.Process(supervisor.pid).children()
    reporter = next(one for one in below if "tonnage.supervisor.reporting" in one.cmdline())
    reporter.send_signal(signal.SIGKILL)
    supervisor.wait(LONGEST_S)
    assert bench.folder.state().state is RunStatus.SUCCEEDED, bench.words()
    with open_store(f"sqlite:///{bench.environment['TONNAGE_HOME']}/tonnage.db") as store:
        assert [row.state for row in store.runs()] == [RunStatus.SUCCEEDED]


@pytest.mark.slow
def test_tracking_down_never_stops_a_run(bench: Bench) -> None:
    """A server that refuses connections: noted once in the journal, with the run's end reported all the same."""
    pytest.importorskip("mlflow")
    bench.folder.record(EventKind.STARTED, who="supervisor", attempt=1, pid=os.getpid(), command="python")
    process = start(bench, MLFLOW_TRACKING_URI="http://127.0.0.1:9", MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")
    bench.until(lambda: EventKind.TRACKING_LOST in bench.kinds())
    finish(process)
    assert process.returncode == 0
    assert bench.kinds().count(EventKind.TRACKING_LOST) == 1


def test_the_same_trouble_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of ours is a line, without where it came from; again and again it is one line; then that it is over."""
    said: list[str] = []
    monkeypatch.setattr(reporting, "complain", said.append)
    monkeypatch.setattr(reporting, "_failing", {})

    def broken() -> None:
        raise TrackingUnavailable("http://host", "404 Not Found")

    def bug() -> None:
        raise ZeroDivisionError("figure")

    for _ in range(20):
        assert not reporting.attempted("tracking", broken)
    assert said == ["tracking failed: MLflow at http://host: 404 Not Found"]
    assert reporting.attempted("tracking", lambda: None)
    assert reporting.attempted("tracking", lambda: None)
    assert said[1:] == ["tracking works again"]
    reporting.attempted("tracking", bug)
    assert "Traceback" in said[-1]
