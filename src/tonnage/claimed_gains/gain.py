"""A promised gain, and what became of it for one workload: a figure with its interval, or what is missing; and the
gains that comparison documents promise most often.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, hypot, log
from typing import Final, Literal, get_args

from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

Unit = Literal["saving", "times", "spread"]  # part of the cost; times as fast; relative difference between providers
Verdict = Literal["holds", "open", "does not hold", "unknown"]
Subject = Literal["spot", "autoscaling", "right-sizing", "arm", "h100", "a100", "providers"]
Lack = Literal[
    "no spot price",
    "never on spot",
    "no on-demand price",
    "no traffic",
    "not a service",
    "too short a trace",
    "no relied-on option",
    "no other machine",
    "not another machine's name",
    "no local profile",
    "not measured here",
    "device does not hold it",
    "engine of processors",
    "engine not modelled",
    "no rows on these processors",
    "no rows by provider",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisedGain:
    """A gain as documents promise it. `least`: part of the cost that is saved, or a multiple of the speed; of `spread`
    the most that providers may differ. `most`: the upper end that is promised, where there is one."""

    subject: Subject
    unit: Unit
    least: float
    most: float | None = None

    def verdict(self, figure: Figure | None) -> Verdict:
        """What an 80 % interval says: it holds (or fails) where both ends do, and is open where they disagree."""
        if figure is None:
            return "unknown"
        if self.unit == "spread":
            return "holds" if figure.high <= self.least else "does not hold" if figure.low > self.least else "open"
        return "holds" if figure.low >= self.least else "does not hold" if figure.high < self.least else "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of two things that are compared: its name, and its cost in USD (of the job; of a month for a service) or its
    rate per second."""

    name: str
    usd: Figure | None = None
    per_s: Figure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Among:
    """The same gain for every pair that could be made: how many, and the least, the median and the greatest (parts)."""

    pairs: int
    least: float
    median: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapestOnDemand:
    """What spot saves beside the cheapest machine on demand, whichever that is. `saved`: a part of its cost."""

    name: str
    saved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingFleet:
    """The fleet behind a gain by scaling. `least` and `most` None: one machine carries the busy rate.

    `kept_fraction`: of requests, those that find a machine below the most it carries within the promise.
    """

    machine: str
    fixed: int
    least: int | None = None
    most: int | None = None
    kept_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedNeeded:
    """What a cheaper processor must reach: the gain holds where it does `speed` of the other one's work at
    `price` of its price (parts); the middle one of so many `pairs`."""

    price: float
    speed: float
    pairs: int


Evidence = CheapestOnDemand | FollowingFleet | SpeedNeeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """One target for one workload. `figure` None: `lack` says what is missing, and `said` in whose words.

    `before` and `after`: the two sides behind the figure. `among`: the same over all pairs that could be made.
    """

    target: PromisedGain
    figure: Figure | None = None
    lack: Lack | None = None
    said: str = ""
    before: Side | None = None
    after: Side | None = None
    among: Among | None = None
    evidence: Evidence | None = None

    @property
    def verdict(self) -> Verdict:
        return self.target.verdict(self.figure)


def saved(before: Figure, after: Figure, *, same_machine: bool) -> Figure:
    """The part of `before` that `after` saves, with its 80 % interval.

    On the same machine both costs follow one unknown throughput, so that their ends belong together. Of two machines
    the errors are taken as independent: the half-widths of the logarithm of the ratio add in squares.
    """
    ratio = after.value / before.value
    if same_machine:
        ends = sorted((after.low / before.low, after.high / before.high, ratio))
        return Figure(value=1.0 - ratio, low=1.0 - ends[-1], high=1.0 - ends[0])
    up = hypot(log(after.high / after.value), log(before.value / before.low))
    down = hypot(log(after.value / after.low), log(before.high / before.value))
    return Figure(value=1.0 - ratio, low=1.0 - ratio * exp(up), high=1.0 - ratio * exp(-down))


def times(slow: Figure, fast: Figure) -> Figure:
    """How many times `fast` is `slow`; both rates per second, their errors independent."""
    ratio = fast.value / slow.value
    up = hypot(log(fast.high / fast.value), log(slow.value / slow.low))
    down = hypot(log(fast.value / fast.low), log(slow.high / slow.value))
    return Figure(value=ratio, low=ratio * exp(-down), high=ratio * exp(up))


SUBJECTS: Final[tuple[str, ...]] = get_args(Subject)
TARGETS: Final = (
    PromisedGain(subject="spot", unit="saving", least=0.60, most=0.80),
    PromisedGain(subject="autoscaling", unit="saving", least=0.40),
    PromisedGain(subject="right-sizing", unit="saving", least=0.25),
    PromisedGain(subject="arm", unit="saving", least=0.20),
    PromisedGain(subject="h100", unit="times", least=10.0),
    PromisedGain(subject="a100", unit="times", least=6.0),
    PromisedGain(subject="providers", unit="spread", least=0.05),
)


def with_least(given: Mapping[str, float]) -> tuple[PromisedGain, ...]:
    """The targets with other figures for the subjects of `given`. Raises InputError for an unknown subject and for a
    figure that cannot be: a saving lies below 1, every figure above 0."""
    for name, least in given.items():
        if name not in SUBJECTS:
            hint = did_you_mean(nearest(name, SUBJECTS, count=1), f"known: {', '.join(SUBJECTS)}")
            raise InputError(f"no gain is named '{name}'", hint=hint)
        unit = next(one.unit for one in TARGETS if one.subject == name)
        if not (math.isfinite(least) and least > 0) or (unit != "times" and least >= 1):
            expected = "a multiple above 0, such as 10" if unit == "times" else "a part between 0 and 1, such as 0.6"
            raise InputError(f"{name}: found {least:g}, expected {expected}")
    return tuple(replace(one, least=given[one.subject], most=None) if one.subject in given else one for one in TARGETS)


def only(targets: Sequence[PromisedGain], subjects: Sequence[str]) -> tuple[PromisedGain, ...]:
    """Those of `subjects`; all where none is named."""
    return tuple(one for one in targets if not subjects or one.subject in subjects)
