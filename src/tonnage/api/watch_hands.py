"""What alerts do to runs: save, verify and stop; go on with half of the micro-batch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.api.home_runs import find_run, run_names
from tonnage.api.runs import ResumeOptions, resume, stop
from tonnage.api.watch_figures import runs_of_budget
from tonnage.errors import InputError, TonnageError
from tonnage.settings import Settings

if TYPE_CHECKING:
    from tonnage.runs.folder import RunFolder

SAVE_S: Final = 240.0  # a stop is followed for so long; the run's own supervisor goes on with it
LOOK_EVERY_S: Final = 0.5


def stop_verified(settings: Settings, run: str | None) -> str:
    """Ask one run, or every run under way, to save and end, and say what was saved. TonnageError where a checkpoint
    could not be verified."""
    return _stopped(settings, [run] if run is not None else run_names(settings.home), named=run is not None)


def stop_budget(settings: Settings, budget: str) -> str:
    """The same for all runs that spend of a budget."""
    return _stopped(settings, runs_of_budget(settings, budget), named=False)


def halve_micro_batch(settings: Settings, run: str) -> str:
    """Save, stop, and go on with half of the micro-batch: the batch that a step learns from stays, by accumulation.

    InputError where it is 1 already, or the run is at a place or has ended.
    """
    from tonnage.runs.journal import EventKind

    folder = find_run(settings, run)
    if folder.place_file.exists():
        raise InputError(f"'{run}' is not on this machine: its micro-batch is set where it was started",
                         hint=f"tonnage stop {run}; change `run.micro_batch` and start it again")  # fmt: skip
    now = _micro_batch(folder)
    if now <= 1:
        raise InputError(f"the micro-batch of '{run}' is {now}: there is no smaller one",
                         hint="`recompute: full`, `method: lora`, or a device with more memory")  # fmt: skip
    stop(run, wait=True, settings=settings)
    folder.record(EventKind.MICRO_BATCH, who="watch", micro_batch=now, next_micro_batch=now // 2)
    resume(run, ResumeOptions(), settings=settings)
    return f"'{run}' goes on with a micro-batch of {now // 2}, it was {now}; {_last_words(folder)}"


def _micro_batch(folder: RunFolder) -> int:
    """The samples that a device holds at once now."""
    from tonnage.runs.journal import EventKind

    spec = folder.spec()
    share = max(spec.training.global_batch // max(spec.launch.processes, 1), 1)
    kinds = (EventKind.OUT_OF_MEMORY, EventKind.MICRO_BATCH)
    smaller = [int(one.fields["next_micro_batch"]) for one in folder.events() if one.kind in kinds]
    return min([spec.training.micro_batch or share, share, *smaller])


def _stopped(settings: Settings, names: list[str], *, named: bool) -> str:
    asked: list[str] = []
    for name in names:
        try:
            stop(name, wait=False, settings=settings)
            asked.append(name)
        except InputError:  # it has ended
            if named:
                raise
    if not asked:
        return "no run is under way: nothing to stop"
    until = time.monotonic() + SAVE_S
    folders = {name: find_run(settings, name) for name in asked}
    here = [one for one in folders.values() if not one.place_file.exists()]  # of others no word comes by itself
    while time.monotonic() < until and any(not one.state().state.ended for one in here):
        time.sleep(LOOK_EVERY_S)
    outcomes, unsaved = [], []
    for name, folder in folders.items():
        if not folder.state().state.ended:
            outcomes.append(f"{name} still saves")
            continue
        words = _last_words(folder)
        outcomes.append(f"{name} is {folder.state().state.value}: {words}")
        if not _is_saved(folder):
            unsaved.append(f"{name}: {words}")
    if unsaved:
        raise TonnageError(f"stopped, but no checkpoint of now was verified: {'; '.join(unsaved)}",
                           hint="an older one may be there: tonnage show RUN")  # fmt: skip
    return f"{'; '.join(outcomes)}; go on with `tonnage resume {asked[0]}`"


def _last_words(folder: RunFolder) -> str:
    messages = [str(one.fields["message"]) for one in folder.events() if one.fields.get("message")]
    return messages[-1] if messages else ""


def _is_saved(folder: RunFolder) -> bool:
    """Whether nothing is lost: a whole checkpoint of the last step, or the finished model."""
    from tonnage.runs.journal import EventKind
    from tonnage.runs.states import RunStatus
    from tonnage.supervisor.verification import checkpoint_fault

    state = folder.state()
    saved = [one for one in folder.events() if one.kind is EventKind.CHECKPOINT]
    if state.state is RunStatus.SUCCEEDED:
        return True
    return bool(saved) and state.checkpoint_step == state.step and not checkpoint_fault(
        Path(str(saved[-1].fields.get("path", ""))))  # fmt: skip
