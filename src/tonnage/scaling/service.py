"""What is scaled and what is seen of it: the settings of a service, hours of the week with another least number of
replicas, and what its load was since the last decision.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from tonnage.errors import InputError
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.scaling.reasons import ScalingReason
MOST_REPLICAS: Final = 10_000
DAY_S: Final = 86_400.0
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS: Final = re.compile(
    r"(?:(?P<first>[a-z]{3})(?:-(?P<last>[a-z]{3}))?:)?(?P<begin>[\d.]{1,5})-(?P<end>[\d.]{1,5})=(?P<least>\d{1,5})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledService:
    """A service of equal replicas: how many may run, what each carries, how long one takes to start.

    With `to_zero_after_s` silence ends all replicas, whatever that does to the promise when requests come again.
    The promise is on the wait for a free slot: `promised_fraction` of requests wait at most `promise_s`.
    """

    slots: int = 16
    start_up_s: float = 60.0
    promise_s: float = 2.0
    promised_fraction: float = 0.99
    least: int = 0
    most: int = 20
    to_zero_after_s: float | None = None  # without any request, with a least of 0; None: if the promise allows it

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise InputError(f"{self.slots} slots a replica: at least one is needed")
        if not 0 <= self.least <= self.most <= MOST_REPLICAS or self.most < 1:
            raise InputError(
                f"{self.least} to {self.most} replicas", hint=f"0 <= least <= most, most from 1 to {MOST_REPLICAS:,}"
            )
        for name in ("start_up_s", "promise_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name} is {value:g}: it must be at least 0")
        if self.to_zero_after_s is not None and not self.to_zero_after_s >= 0:
            raise InputError(f"to 0 replicas after {self.to_zero_after_s:g} s: it must be at least 0")
        if not 0 < self.promised_fraction < 1:
            raise InputError(f"a promise to {self.promised_fraction:g} of requests: above 0 and below 1")

    def within(self, count: float, least: int | None = None) -> int:
        """A number of replicas brought into the range; `least` in place of the service's own."""
        low = self.least if least is None else max(least, self.least)
        return int(min(max(math.ceil(count - 1e-9), low), self.most))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is seen of a service at a decision: counts since the last one, and the state now."""

    arrived: int  # requests that came since the last decision
    finished: int  # requests answered since the last decision
    finished_work_s: float  # slot-seconds those took
    waiting: int  # requests without a slot
    running: int  # requests in a slot
    ready: int  # replicas that take requests
    starting: int  # replicas on their way
    late: int = 0  # requests since the last decision that waited longer than promised

    def __post_init__(self) -> None:
        if min(self.arrived, self.finished, self.waiting, self.running, self.ready, self.starting, self.late) < 0:
            raise InputError(f"an observation counts below 0: {self}")


S = TypeVar("S")


class Policy(Protocol, Generic[S]):
    """One way to decide. It is asked every `interval_s`; all that it remembers is in the state it returns."""

    @property
    def name(self) -> str: ...
    @property
    def interval_s(self) -> float: ...
    def begin(self) -> S: ...
    def decide(self, state: S, seen: Observation, at_s: float) -> tuple[S, int, ScalingReason]: ...


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
