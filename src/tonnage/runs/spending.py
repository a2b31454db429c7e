"""What a run took: the time its machines were held, from the journal, and the bill where a price was given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from tonnage.runs.journal import Event, EventKind
from tonnage.runs.spec import GuardSpec
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass

_ENDS: Final = frozenset({EventKind.SUCCEEDED, EventKind.FAILED, EventKind.STOPPED, EventKind.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendSession:
    """Machines held from a start to an end, waits between restarts included. A resumed run has several."""

    number: int  # from 1
    attempts: int  # starts of the processes in it
    started_at: datetime
    ended_at: datetime | None  # None: still running, or lost without a word
    seconds: float  # to its end, or to the last that was heard of it
    usd_per_hour: float | None
    usd: float | None  # every billing quantum begun is paid; None: no price was given, and unknown is not free


def sessions_of(events: Iterable[Event], guard: GuardSpec) -> tuple[SpendSession, ...]:
    """The sessions in a journal, oldest first."""
    groups: list[list[Event]] = []
    ended = True
    for event in events:
        if ended and event.kind is EventKind.STARTED:
            groups.append([event])
            ended = False
        elif groups:
            groups[-1].append(event)
            ended = ended or event.kind in _ENDS or event.kind is EventKind.LOST
    return tuple(_session(number, group, guard) for number, group in enumerate(groups, start=1))


def _session(number: int, events: Sequence[Event], guard: GuardSpec) -> SpendSession:
    started = events[0].at
    ended = next((event.at for event in events if event.kind in _ENDS), None)
    heard = ended or max(event.at for event in events if event.kind is not EventKind.LOST)
    seconds = max((heard - started).total_seconds(), 0.0)
    return SpendSession(
        number=number,
        attempts=sum(event.kind is EventKind.STARTED for event in events),
        started_at=started,
        ended_at=ended,
        seconds=seconds,
        usd_per_hour=guard.usd_per_hour,
        usd=None if guard.usd_per_hour is None else _billed(seconds, guard.usd_per_hour, guard.billing_quantum_s),
    )


def _billed(seconds: float, usd_per_hour: float, quantum_s: float) -> float:
    """The bill: as the guards count it.

    >>> _billed(61.0, 60.0, 60.0)
    2.0
    """
    paid_s = math.ceil(seconds / quantum_s - 1e-9) * quantum_s if quantum_s > 0 else seconds
    return paid_s / SECONDS_PER_HOUR * usd_per_hour
