"""Hours of the week at which a service has another least number of replicas: nights, weekends, opening hours."""

from __future__ import annotations

import re
from typing import Final

from tonnage.errors import InputError
from tonnage.values import dataclass

DAY_S: Final = 86_400.0
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS: Final = re.compile(
    r"(?:(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))?:)?(?P<begin>[\d.]{1,5})-(?P<end>[\d.]{1,5})=(?P<least>\d{1,5})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """From one hour of the day to another, on some days (0: Monday), at least so many replicas."""

    begin_h: float
    end_h: float
    least: int
    days: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)

    def __post_init__(self) -> None:
        if not (0 <= self.begin_h < 24 and 0 < self.end_h <= 24 and self.begin_h != self.end_h):
            raise InputError(f"hours {self.begin_h:g} to {self.end_h:g}", hint="hours of a day: 0 to 24, not the same")
        if self.least < 0 or not self.days or any(not 0 <= day <= 6 for day in self.days):
            raise InputError(f"at least {self.least} replicas on days {self.days}", hint="days are 0 (Monday) to 6")

    def covers(self, day: int, hour: float) -> bool:
        """Whether the moment lies inside. Hours over midnight belong to the day on which they begin."""
        if self.begin_h < self.end_h:
            return day in self.days and self.begin_h <= hour < self.end_h
        return (day in self.days and hour >= self.begin_h) or ((day - 1) % 7 in self.days and hour < self.end_h)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekSchedule:
    """The hours of a week. `offset_s`: seconds from Monday 00:00 to second 0 of the clock in use."""

    hours: tuple[Hours, ...]
    offset_s: float = 0.0

    def least_at(self, at_s: float, otherwise: int) -> int:
        """The least number of replicas: of the hours that cover the moment the highest, else `otherwise`."""
        since = at_s + self.offset_s
        day, hour = int(since // DAY_S) % 7, since % DAY_S / 3600.0
        return max((one.least for one in self.hours if one.covers(day, hour)), default=otherwise)


def parse_hours(text: str) -> Hours:
    """Hours such as `8-20=4` or `mon-fri:22-6=1`. InputError says what was expected.

    >>> parse_hours("sat-mon:8-20=4").days
    (5, 6, 0)
    """
    found = _HOURS.fullmatch(text.strip().casefold())
    names = (found["first"] or "mon", found["last"] or found["first"] or "sun") if found else ()
    if found is None or any(name not in DAYS for name in names) or text.count(".") > 2:
        raise InputError(f"'{text}' is not a schedule", hint="write it as 8-20=4 or mon-fri:22-6=1")
    first, last = (DAYS.index(name) for name in names)
    days = tuple((first + step) % 7 for step in range((last - first) % 7 + 1))
    try:
        begin_h, end_h = float(found["begin"]), float(found["end"])
    except ValueError:
        raise InputError(f"'{text}' is not a schedule", hint="write it as 8-20=4 or mon-fri:22-6=1") from None
    return Hours(begin_h=begin_h, end_h=end_h, least=int(found["least"]), days=days)
