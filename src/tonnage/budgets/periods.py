"""The periods of budgets: days, weeks from Monday, months, all in UTC, and a lifetime without an end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

from tonnage.values import dataclass

Period = Literal["day", "week", "month", "lifetime"]


@dataclass(frozen=True, slots=True)
class PeriodWindow:
    """From `start` up to, and without, `end`; None: unbounded."""

    start: datetime | None
    end: datetime | None

    def share_of(self, start: datetime, end: datetime) -> float:
        """The part of the time from `start` to `end` that lies in this window, 0 to 1; of an instant 0 or 1.

        >>> night = datetime(2026, 1, 1, 18, tzinfo=UTC), datetime(2026, 1, 2, 6, tzinfo=UTC)
        >>> window_of("day", night[0]).share_of(*night)
        0.5
        """
        whole_s = (end - start).total_seconds()
        if whole_s <= 0:
            return float((self.start is None or start >= self.start) and (self.end is None or start < self.end))
        first = start if self.start is None else max(start, self.start)
        last = end if self.end is None else min(end, self.end)
        return max(0.0, (last - first).total_seconds()) / whole_s


def window_of(period: Period, now: datetime) -> PeriodWindow:
    """The period that `now` lies in.

    >>> str(window_of("week", datetime(2026, 11, 24, 11, tzinfo=UTC)).start)
    '2026-11-23 00:00:00+00:00'
    >>> str(window_of("month", datetime(2026, 12, 31, tzinfo=UTC)).end)
    '2027-01-01 00:00:00+00:00'
    """
    if period == "lifetime":
        return PeriodWindow(None, None)
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return PeriodWindow(day, day + timedelta(days=1))
    if period == "week":
        monday = day - timedelta(days=day.weekday())
        return PeriodWindow(monday, monday + timedelta(days=7))
    first = day.replace(day=1)
    return PeriodWindow(first, (first + timedelta(days=32)).replace(day=1))
