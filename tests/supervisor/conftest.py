"""A run folder with a job, and supervisors as processes of their own: quick in their pace, else as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tonnage.files import write_whole
from tonnage.runners import make_runner
from tonnage.runs import EventKind, RunFolder, RunSpec, RunState
from tonnage.runs.job import dump_job
from tonnage.runs.liveness import is_held, workers_lock
from tonnage.runs.spec import DataSource, DataSpec

ROOT = Path(__file__).parents[2]
LONGEST_S = 60.0  # a bound for a test that hangs, not a claim
QUICK = (
    "import sys; from pathlib import Path; from tonnage.runs import RunFolder\n"
    "from tonnage.runs.restarts import RestartPolicy\n"
    "from tonnage.supervisor.supervising import Pace, supervise\n"
    "folder = RunFolder(Path(sys.argv[1]))\n"
    "supervise(folder, pace=Pace(tick_s=0.02, beat_s=0.1, forecast_s=0.2, grace_s=2.0),\n"
    "  policy=RestartPolicy(max_restarts=folder.spec().launch.max_restarts, first_delay_s=0.05),\n"
    "  reporting=False)\n"
)


def is_alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be collected does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@dataclass
class Bench:
    """One run, its supervisor, and what is seen of both."""

    folder: RunFolder
    environment: dict[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *, before: str = "", **pretence: Any) -> subprocess.Popen[bytes]:
        """A supervisor over a worker that pretends this; `before`: code of the supervisor's process, run first."""
        with (self.folder.path / "supervisor.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", before + QUICK, str(self.folder.path)],
                env=self.environment | {"TONNAGE_FAKE": json.dumps(pretence)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def run(self, **pretence: Any) -> RunState:
        """The same, to its end."""
        self.start(**pretence).wait(LONGEST_S)
        return self.folder.state()

    def until(self, seen: Callable[[], Any]) -> Any:
        """Wait until `seen` says something true."""
        end = time.monotonic() + LONGEST_S
        while not (found := seen()):
            if time.monotonic() > end:
                pytest.fail(f"not seen; {self.words()}")
            time.sleep(0.01)
        return found

    def until_step(self, step: int) -> None:
        """Wait until the workers have logged this step."""
        self.until(lambda: f'"step": {step},' in self.metrics())

    def metrics(self) -> str:
        path = self.folder.metrics_file
        return path.read_text() if path.exists() else ""

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.folder.events()]

    def words(self) -> str:
        """Journal and logs, for a failure's message."""
        files = (self.folder.journal_file, self.folder.path / "supervisor.log", self.folder.log_file)
        return "\n".join(path.read_text() for path in files if path.exists())

    def shim_pid(self) -> int:
        return int(next(e for e in reversed(list(self.folder.events())) if e.kind is EventKind.STARTED).fields["pid"])

    def worker_pids(self) -> list[int]:
        return [process.pid for process in psutil.Process(self.shim_pid()).children(recursive=True)]

    def is_quiet(self) -> bool:
        """Nobody holds the run any more, neither supervisor nor workers."""
        return not is_held(self.folder.pid_file) and not is_held(workers_lock(self.folder))

    def stop_all(self) -> None:
        for process in self.started:
            if process.poll() is None:
                for below in psutil.Process(process.pid).children(recursive=True):
                    below.kill()
                process.kill()
            process.wait()


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """A bench from changes to the specification."""
    made: list[Bench] = []

    def make(**changes: Any) -> Bench:
        data = DataSpec(train=DataSource(location="rows.csv", format="csv"))
        spec = RunSpec(**({"name": "one", "task": "mlp", "data": data} | changes))
        folder = RunFolder(tmp_path / "runs" / "one")
        folder.create(spec)
        runner = make_runner(spec.launch.runner, cores=1, worker="tonnage.testing.worker", environ={})
        write_whole(folder.job_file, dump_job(runner.render(spec, folder)))
        folder.record(EventKind.SUBMITTED, who="cli", name="one")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TONNAGE_")}
        bench = Bench(folder, environment | {"PYTHONPATH": str(ROOT / "src"), "TONNAGE_HOME": str(tmp_path / "home")})
        made.append(bench)
        return bench

    yield make
    for bench in made:
        bench.stop_all()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
