"""What the contract suite of places needs of each: an executor, how to take its machines away, how to lose it.

A test of a place derives from `PlaceTrial` or fills it in; docs/places.md says how a new place joins the suite.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tonnage.places.contract import Executor, Submission, Verb, gap_of
from tonnage.places.states import PlaceState, PlaceStatus
from tonnage.runners.runner import Local
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import DataSource, DataSpec, RunSpec
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceTrial:
    """One place under the suite. `home` has its runs; nothing else uses it."""

    executor: Executor
    home: Path
    longest_s: float = 60.0
    preempt: Callable[[RunFolder], None] | None = None  # take the run's machines away, and give them back
    out_of_reach: Callable[[], Executor] | None = None  # the same place without an answer
    alive: Callable[[RunFolder], int] | None = None  # jobs of this run that live, as the place itself tells
    environ: tuple[tuple[str, str], ...] = ()  # of the workers

    def lacks(self, verb: Verb) -> str:
        """The reason of a declared gap; empty where the place has the verb."""
        gap = gap_of(self.executor.gaps, verb)
        return gap.reason if gap else ""

    def write(self, name: str) -> RunFolder:
        """A run that is written down and not submitted."""
        self.home.mkdir(parents=True, exist_ok=True)
        rows = self.home / "rows.csv"
        rows.write_text("a,b\n1,2\n")
        folder = RunFolder(self.home / "runs" / name)
        data = DataSpec(train=DataSource(location=str(rows), format="csv"))
        folder.create(RunSpec(name=name, task="mlp", data=data))
        return folder

    def submission(self, folder: RunFolder, number: int = 1, **pretence: Any) -> Submission:
        """What submits a run whose worker pretends (`tonnage.testing.worker.Pretence`)."""
        spec, there = folder.spec(), self.executor.folder_there(folder)
        python = self.executor.place.python or sys.executable
        runner = Local(cores=1, worker="tonnage.testing.worker", python=python)
        job = runner.render(spec, there)
        env = (*job.env, *self.environ, ("TONNAGE_FAKE", json.dumps(pretence)), ("MLFLOW_TRACKING_URI", "none"))
        return self.executor.render(spec, replace(job, env=env), folder, number=number)

    def start(self, folder: RunFolder, number: int = 1, **pretence: Any) -> str:
        """Submit a run, as `tonnage run` and `resume` do; the job's id."""
        folder.record(EventKind.SUBMITTED, who="cli", name=folder.path.name, place=self.executor.name)
        return self.executor.submit(self.submission(folder, number, **pretence), folder)

    def status(self, folder: RunFolder) -> PlaceState:
        """What the place says now, with all that the run has written since."""
        self.executor.logs(folder)
        return self.executor.status(folder)

    def reach(self, folder: RunFolder, *wanted: PlaceStatus) -> PlaceState:
        """Wait for one of these states."""
        found: list[PlaceState] = []

        def there() -> bool:
            found.append(self.status(folder))
            return found[-1].status in wanted

        self.wait(there, lambda: f"{folder.path.name} is {found[-1]}, not {wanted}")
        return found[-1]

    def wait(self, true: Callable[[], bool], said: Callable[[], str] = lambda: "") -> None:
        """Until it holds. AssertionError after `longest_s`."""
        until = time.monotonic() + self.longest_s
        while not true():
            if time.monotonic() > until:
                raise AssertionError(said() or "it did not come so far in time")
            time.sleep(0.02)
