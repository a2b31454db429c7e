"""The trials of a sweep as runs: started, watched and ended as those of `tonnage run` are."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tonnage.api.home_runs import runs_folder
from tonnage.errors import TonnageError
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import has_supervisor, observed_state, read_heartbeat
from tonnage.runs.states import RunStatus
from tonnage.sweeps.engine import SeenTrial

if TYPE_CHECKING:
    from tonnage.reports.rendering import Report
    from tonnage.settings import Settings
    from tonnage.sweeps.folder import SweepFolder
    from tonnage.sweeps.sweep import Sweep
    from tonnage.trials.study import OptunaStudy

WHO = "sweep"


class TrialRuns:
    """Runs by the number of their trial."""

    def __init__(self, sweep: Sweep, settings: Settings, *, on: str | None = None) -> None:
        self._sweep, self._settings, self._on = sweep, settings, on
        self._ask_at: dict[int, float] = {}  # when its place is asked of a trial again
        self._read: dict[int, tuple[int, SeenTrial]] = {}  # size of the journal, and what it said

    def observe(self, number: int) -> SeenTrial | None:
        folder = self._folder(number)
        if not folder.spec_file.exists():
            return None
        self._settle(number, folder)
        alive = has_supervisor(folder)
        size = folder.journal_file.stat().st_size if folder.journal_file.exists() else 0
        known = self._read.get(number)
        if known is not None and alive and known[0] == size:  # no progress was reported since
            return known[1]
        seen = _look(folder, alive=alive)
        self._read[number] = (size, seen)
        return seen

    def start(self, number: int, values: Mapping[str, Any]) -> None:
        from tonnage.api.launching import prepare_spec, start

        start(prepare_spec(self._settings, self._sweep.spec(number, values, cores=self._cores()), on=self._on))

    def _cores(self) -> int:
        """What trials that run at a time share: this machine's, or of a place as often as there are trials."""
        from tonnage.api.placing import executor_at
        from tonnage.runners.machine import look_at_machine

        if self._on is None:
            return look_at_machine().cores
        return executor_at(self._settings, self._on).place.cores * self._sweep.terms.parallel

    def _settle(self, number: int, folder: RunFolder) -> None:
        """Ask the place of a trial that is elsewhere, not more often than a followed run asks."""
        from tonnage.api.placing import settle
        from tonnage.cli.following import ASK_PLACE_EVERY_S

        if folder.place_file.exists() and time.monotonic() >= self._ask_at.get(number, 0.0):
            self._ask_at[number] = time.monotonic() + ASK_PLACE_EVERY_S
            if not settle(self._settings, folder) and folder.state().state.ended:
                self._collect(number, folder)

    def _collect(self, number: int, folder: RunFolder) -> None:
        """What a finished trial has measured decides about the next: it comes here once."""
        from tonnage.api.placing import collect_at

        self._ask_at[number] = math.inf
        if fault := collect_at(self._settings, folder):
            self._ask_at[number] = 0.0  # asked again
            raise TonnageError(fault, hint="`tonnage sweep FILE --resume` goes on")

    def resume(self, number: int) -> None:
        from tonnage.api.resuming import resume_run

        resume_run(self._folder(number), {}, self._settings)

    def stop(self, number: int) -> None:
        from tonnage.api.launching import runner_of
        from tonnage.api.placing import executor_of

        folder = self._folder(number)
        (executor_of(self._settings, folder) or runner_of(folder)).stop(folder, by=WHO, reason="the sweep stops")

    def cancel(self, number: int) -> None:
        from tonnage.api.launching import runner_of
        from tonnage.api.placing import executor_of

        folder = self._folder(number)
        (executor_of(self._settings, folder) or runner_of(folder)).cancel(
            folder, by=WHO, reason="worse than the median of the sweep"
        )

    def _folder(self, number: int) -> RunFolder:
        return RunFolder(runs_folder(self._settings.home) / self._sweep.run_name(number))


def _look(folder: RunFolder, *, alive: bool) -> SeenTrial:
    state, beat = observed_state(folder), read_heartbeat(folder)
    return SeenTrial(
        state=state.state,
        over=state.state.ended and not alive,
        reason=state.reason,
        message=state.message,
        step=state.step,
        metrics=_metrics(folder) if state.state is RunStatus.SUCCEEDED else {},
        evaluations={
            int(event.fields["step"]): event.fields["metrics"]
            for event in folder.events(brief=True)
            if event.kind is EventKind.EVALUATED and not event.fields.get("finished")
        },
        seconds=None if beat is None else beat.held_s,
        usd=None if beat is None else beat.spent_usd,
    )


def _metrics(folder: RunFolder) -> dict[str, float]:
    try:
        return dict(json.loads(folder.result_file.read_text(encoding="utf-8")).get("metrics") or {})
    except (FileNotFoundError, ValueError):
        return {}


def result_of(sweep: Sweep, folder: SweepFolder, study: OptunaStudy, runs: TrialRuns) -> Report:
    """Every trial so far; of those under way, how far they are."""
    from tonnage.sweeps.report import SweepResult, sweep_report

    tried = tuple(study.tried())
    seen = [runs.observe(one.number) for one in tried]
    return sweep_report(
        SweepResult(
            sweep=sweep,
            folder=folder.path,
            tried=tried,
            seconds=folder.seconds(),
            steps=tuple(0 if one is None else one.step for one in seen),
            usd=tuple(None if one is None else one.usd for one in seen),
        )
    )
