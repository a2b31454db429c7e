"""What a run took: the time of each attempt from the journal, and its price where one was given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tonnage.runs.journal import Event, EventKind

_ENDS: Final = frozenset(
    {EventKind.RESTARTING, EventKind.SUCCEEDED, EventKind.FAILED, EventKind.STOPPED, EventKind.CANCELLED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One start of a run's processes."""

    number: int  # from 1
    started_at: datetime
    ended_at: datetime | None  # None: still running, or lost without a word
    seconds: float  # to its end, or to the last event heard of it
    usd_per_hour: float | None

    @property
    def usd(self) -> float | None:
        """None where no price was given: unknown is not free."""
        return None if self.usd_per_hour is None else self.seconds / 3600 * self.usd_per_hour


def attempts_of(events: Iterable[Event], usd_per_hour: float | None) -> tuple[Attempt, ...]:
    """The attempts in a journal, oldest first. What ended without a word counts to the last event before the next."""
    groups: list[list[Event]] = []
    for event in events:
        if event.kind is EventKind.STARTED:
            groups.append([event])
        elif groups:
            groups[-1].append(event)
    return tuple(_attempt(number, group, usd_per_hour) for number, group in enumerate(groups, start=1))


def _attempt(number: int, events: Sequence[Event], usd_per_hour: float | None) -> Attempt:
    started = events[0].at
    ended = next((event.at for event in events if event.kind in _ENDS), None)
    heard = ended or max((event.at for event in events if event.kind is not EventKind.LOST), default=started)
    seconds = max((heard - started).total_seconds(), 0.0)
    return Attempt(
        number=number, started_at=started, ended_at=ended, seconds=seconds, usd_per_hour=usd_per_hour
    )  # fmt: skip
