"""Going on with a run elsewhere: which place can, and how the place it was at is left."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from tonnage.errors import PlanRefused, TonnageError

if TYPE_CHECKING:
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.liveness import Heartbeat
    from tonnage.runs.spec import GuardSpec
    from tonnage.settings import Settings

ANY: Final = "any"  # --on any
PLAN: Final = "plan"  # --on plan


def first_that_can(settings: Settings, folder: RunFolder, *, last: Collection[str] = ()) -> str:
    """The first place, in the order of places.toml and then this machine, that refuses nothing.

    `last`: places to ask after all others. PlanRefused with the reason of each where none can.
    """
    from tonnage.api.placing import known_places
    from tonnage.places.file import LOCAL

    names = [*known_places(settings).names, LOCAL]
    against = []
    for name in sorted(names, key=lambda one: one in last):
        fault = refusal_at(settings, name, folder)
        if not fault:
            return name
        against.append(fault)
    raise PlanRefused(
        "no place can carry it: " + " | ".join(against), hint="`tonnage places check PLACE` says what mends it"
    )


def refusal_at(settings: Settings, name: str, folder: RunFolder) -> str:
    """What prevents a run at a place, with its name; empty where nothing does. The place is asked."""
    from tonnage.api.placing import executor_at

    try:
        refused = [one.message for one in executor_at(settings, name).check(folder) if one.kind == "refused"]
    except TonnageError as error:
        refused = [error.message]
    return f"{name}: {'; '.join(one.removeprefix(f'{name}: ') for one in refused)}" if refused else ""


def place_of(folder: RunFolder) -> str:
    """The name of the place where a run is, or was last."""
    from tonnage.places.file import LOCAL
    from tonnage.places.record import read_record

    record = read_record(folder)
    return record.place if record is not None else folder.state().place or LOCAL


def leave_place(settings: Settings, folder: RunFolder) -> str:
    """End what is left of a run at its place and bring here all that it has saved.

    Empty; or why the place does not answer. The run is then written down as lost: what its place still does
    of it ends as soon as it sees the newer submission, and is never taken.
    """
    from tonnage.api.placing import executor_of
    from tonnage.runs.journal import EventKind
    from tonnage.runs.liveness import SILENT_AFTER_S, heartbeat_file, read_heartbeat, write_heartbeat
    from tonnage.runs.states import RunReason

    executor, fault = executor_of(settings, folder), ""
    if executor is not None:
        try:
            executor.teardown(folder)
        except TonnageError as error:
            fault = error.message
    ended = folder.state().state.ended
    if fault and not ended:
        reason = RunReason.SUPERVISOR_LOST.value
        folder.record(EventKind.LOST, who="cli", reason=reason, message=f"{place_of(folder)} does not answer: {fault}")
    if folder.mirror_file.exists():
        folder.mirror_file.unlink()
        beat = read_heartbeat(folder)
        if beat is not None:
            now = datetime.now(UTC)
            if fault and not ended:  # machines of a run that had ended were no longer its own
                beat = with_silence(beat, folder.spec().guard, now=now)
            write_heartbeat(folder, replace(beat, at=now - timedelta(seconds=SILENT_AFTER_S + 1)))
        else:
            heartbeat_file(folder).unlink(missing_ok=True)
    return fault


def with_silence(beat: Heartbeat, guard: GuardSpec, *, now: datetime) -> Heartbeat:
    """A heartbeat whose machines may have been held, and billed, until now: their place does not say that they end.

    Limits in money and hours count that time, whether or not the run still worked.
    """
    from tonnage.runs.guards import billed_usd

    silent_s = max((now - beat.at).total_seconds(), 0.0)
    usd = beat.spent_usd
    if guard.usd_per_hour is not None:
        usd = (usd or 0.0) + billed_usd(silent_s, guard.usd_per_hour, guard.billing_quantum_s)
    return replace(beat, held_s=beat.held_s + silent_s, spent_usd=usd)
