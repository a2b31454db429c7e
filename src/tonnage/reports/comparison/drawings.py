"""What a chart shows, as values: no library draws here. `plots` makes pictures of them."""

from __future__ import annotations

from datetime import date

from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBar:
    """One bar of parts (name, amount) with the total's interval.

    `limit`: what it must not pass, None without one. `shown`: a shorter name for the picture.
    """

    name: str
    label: str
    parts: tuple[tuple[str, float], ...]
    total: Figure
    limit: float | None = None
    shown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Bars of one unit."""

    bars: tuple[StackedBar, ...]
    x_title: str
    in_dollars: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line: (x, value, low, high) in order of x, all above 0."""

    name: str
    points: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartMark:
    """A place on a chart with words at it."""

    x: float
    y: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Lines with their intervals as bands, both axes logarithmic; `marks` where two of them cross."""

    curves: tuple[Curve, ...]
    marks: tuple[ChartMark, ...]
    x_title: str
    y_title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """One way to do the work: cost across, time up. `best`: no other one is both cheaper and faster."""

    name: str
    cost: Figure
    time: Figure
    best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Ways to do one work, and which of them nothing beats in both."""

    choices: tuple[FrontPoint, ...]
    x_title: str
    y_title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBar:
    """One value between the ends of the scale, with its interval."""

    name: str
    label: str
    value: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreBars:
    """Bars from 0 to `highest`."""

    bars: tuple[ScoreBar, ...]
    highest: float
    x_title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """From a weight as it is to the one at which the winner changes."""

    name: str
    label: str
    now: float
    tie: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shifts:
    """How far each weight is from changing the winner."""

    shifts: tuple[Shift, ...]
    x_title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpan:
    """One task: the days it takes at the likely effort, and when it ends if all goes fast or slowly."""

    name: str
    phase: str
    start: date
    end: date
    end_fast: date
    end_slow: date
    critical: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpans:
    """Tasks over the calendar."""

    spans: tuple[TaskSpan, ...]
    x_title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One quantity over time: (x, value, low, high) in order of x, from 0."""

    name: str
    points: tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Courses:
    """Lines with their intervals as bands, both axes plain, from 0."""

    courses: tuple[Course, ...]
    x_title: str
    y_title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """One box: its title and the lines below it. `there` False: it is not to be had there, and drawn dashed."""

    title: str
    lines: tuple[str, ...]
    there: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One work: where it comes from, what does it, where it goes, and what is kept beside it meanwhile."""

    source: Station
    does: Station
    result: Station | None
    beside: Station | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Lanes below one another; what does the work is on `platform`."""

    platform: str
    lanes: tuple[Lane, ...]


Drawing = Architecture | Courses | Stack | Curves | Front | ScoreBars | Shifts | TaskSpans
