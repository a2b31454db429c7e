"""Reservations whose run has ended are settled by its measured hours; those that nothing was started for go."""

from __future__ import annotations

import math
import os
import platform
from datetime import UTC, datetime, timedelta
from typing import Final

import psutil

from tonnage.budgets.book import OpenEntry, ReservationBook
from tonnage.budgets.file import MICRO_USD
from tonnage.budgets.standing import SettledCost
from tonnage.runs.folder import RunFolder
from tonnage.runs.guards import sessions_of
from tonnage.runs.liveness import observed_state, read_heartbeat
from tonnage.runs.states import RunStatus

LOST_AFTER: Final = timedelta(minutes=2)  # between a reservation and the first word of a slow supervisor
HELD_FOR: Final = timedelta(hours=1)  # of another host: a service renews its lease in a quarter of it
UNSTARTED_AFTER: Final = timedelta(hours=1)  # where the client's process cannot be looked at, or its number is reused


def sweep(book: ReservationBook, *, now: datetime | None = None) -> None:
    """Settle or release every open reservation whose run has ended or was never started."""
    at = now or datetime.now(UTC)
    for entry in book.open_entries():
        _sweep_one(book, entry, at)


def _sweep_one(book: ReservationBook, entry: OpenEntry, now: datetime) -> None:
    if entry.kind != "run":
        _sweep_held(book, entry, now)
        return
    if not entry.started and _client_lives(entry, now):
        return
    folder = RunFolder(entry.folder)
    if not folder.path.exists():
        if entry.started:  # deleted before it was settled: what it took can no longer be known
            book.settle(
                entry.number, SettledCost(micro_usd=entry.bound_micro_usd, started_at=entry.reserved_at, ended_at=now)
            )
        else:
            book.release(entry.number)
        return
    state = observed_state(folder, now=now)
    if not state.state.ended or (state.state is RunStatus.LOST and now - entry.reserved_at < LOST_AFTER):
        return
    spent = _spent(folder, entry)
    if spent is None:
        book.release(entry.number)
    else:
        book.settle(entry.number, spent)


def _sweep_held(book: ReservationBook, entry: OpenEntry, now: datetime) -> None:
    """A service or batch that died without a word: how much of its reservation it took is not known, so all counts."""
    if entry.host == platform.node():
        gone = not _process_lives(entry.pid, entry.reserved_at)
    else:
        gone = now - entry.reserved_at > HELD_FOR
    if gone:
        spent = SettledCost(micro_usd=entry.bound_micro_usd, started_at=entry.reserved_at, ended_at=now)
        book.close_lease(entry.number, spent)


def _process_lives(pid: int, since: datetime) -> bool:
    """Whether the process that reserved is there: one that began later has its number only."""
    try:
        return psutil.Process(pid).create_time() <= since.timestamp() + 1.0
    except psutil.NoSuchProcess:
        return False


def _client_lives(entry: OpenEntry, now: datetime) -> bool:
    """Whether the process that reserved may still be about to start the run."""
    if now - entry.reserved_at >= UNSTARTED_AFTER:
        return False
    if entry.host != platform.node():
        return True
    try:
        os.kill(entry.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def spent_so_far(entry: OpenEntry, now: datetime) -> SettledCost | None:
    """What a reservation that is not settled has taken until now, as far as it was heard of; None: nothing yet.

    A service is asked nothing: all of its lease counts, which is a quarter of an hour.
    """
    if entry.kind == "service":
        return SettledCost(micro_usd=entry.bound_micro_usd, started_at=entry.reserved_at, ended_at=now)
    if entry.kind == "batch" or not (entry.folder / "spec.json").exists():
        return None
    return _spent(RunFolder(entry.folder), entry)


def _spent(folder: RunFolder, entry: OpenEntry) -> SettledCost | None:
    """What the sessions since the reservation took, by journal and heartbeat; None where there was none."""
    sessions = sessions_of(folder.events(), folder.spec().guard)
    own = sessions[entry.earlier_sessions :]
    if not own:
        return None
    ended_at = max(one.started_at + timedelta(seconds=one.seconds) for one in own)
    costs = [one.usd for one in own if one.usd is not None]
    if len(costs) < len(own):
        return SettledCost(micro_usd=None, started_at=own[0].started_at, ended_at=ended_at)
    total = sum(costs)
    beat = read_heartbeat(folder)
    if beat is not None and beat.spent_usd is not None and beat.at >= own[0].started_at:
        earlier = sum(one.usd or 0.0 for one in sessions[: entry.earlier_sessions])
        total = max(total, beat.spent_usd - earlier)  # of a run that was lost: it was heard of after its journal's end
        ended_at = max(ended_at, beat.at) if own[-1].ended_at is None else ended_at
    return SettledCost(micro_usd=math.ceil(total * MICRO_USD - 1e-6), started_at=own[0].started_at, ended_at=ended_at)
