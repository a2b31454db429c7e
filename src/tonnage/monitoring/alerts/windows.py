"""Figures of the last while, and what a condition takes of them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, islice, pairwise
from statistics import median
from typing import Final

from tonnage.monitoring.alerts.rules import Condition
from tonnage.monitoring.figures import STALE_S, Figures, SeriesKey
from tonnage.values import dataclass

Point = tuple[float, float]  # seconds since the epoch, value
LEAST_COVER: Final = 0.5  # of `over`: a mean or extreme over less is not known yet
SLOPE_POINTS: Final = 30  # of a window, at most twice as many: all pairs are looked at
_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class SeriesReading:
    """What a condition reads of one series now."""

    key: SeriesKey
    value: float


class RecentFigures:
    """The points of each series over the longest window that is asked for. `every_s`: between two rounds."""

    def __init__(self, *, keep_s: float, every_s: float) -> None:
        self._keep_s, self._stale_s = keep_s, max(STALE_S, 3.0 * every_s)
        self._points: dict[SeriesKey, deque[Point]] = {}
        self._first_round: float | None = None

    def add(self, at: float, figures: Figures) -> None:
        """One round of figures. Rounds come in the order of time; one that does not is left out."""
        if self._first_round is None:
            self._first_round = at
        for key, value in figures.items():
            points = self._points.setdefault(key, deque())
            if math.isfinite(value) and (not points or at > points[-1][0]):
                points.append((at, value))
        for key in [key for key, points in self._points.items() if not self._kept(points, at)]:
            del self._points[key]

    def _kept(self, points: deque[Point], at: float) -> bool:
        """Drop what is older than any window, but for one point before it; whether anything is left."""
        start = at - self._keep_s
        while len(points) > 1 and points[1][0] <= start:
            points.popleft()
        return bool(points) and points[-1][0] >= start - self._stale_s

    def read(self, condition: Condition, at: float) -> list[SeriesReading]:
        """What the condition reads now, a series each, or one over all of them. Series that are gone are left out."""
        live = {
            key: points
            for key, points in self._points.items()
            if condition.matches(key) and points[-1][0] >= at - self._lives_s(condition)
        }
        if condition.is_quantile:
            found = self._quantiles(condition, live, at)
        else:
            take = _TAKES[condition.take]
            found = []
            for key, points in live.items():
                value = take(self._window(points, condition.over_s, at), condition, self._born(points), at)
                if value is not None:
                    found.append(SeriesReading(key, value))
        return _across(condition, found)

    def _lives_s(self, condition: Condition) -> float:
        """How old the newest figure of a series may be: what a run that has ended has spent still counts."""
        summed = condition.take == "increase" and condition.across != "each"
        return max(condition.over_s, self._stale_s) if summed else self._stale_s

    def _window(self, points: deque[Point], over_s: float, at: float) -> list[Point]:
        """The points of the window, with the newest one before it as its base."""
        start = at - over_s
        first = bisect_right(points, start, key=lambda point: point[0])
        return list(islice(points, max(first - 1, 0), None))

    def _born(self, points: deque[Point]) -> bool:
        """Whether the series began while this was looking: a counter's first figure then counts from 0."""
        return self._first_round is not None and points[0][0] > self._first_round

    def _quantiles(
        self, condition: Condition, live: Mapping[SeriesKey, deque[Point]], at: float
    ) -> list[SeriesReading]:
        """Quantiles of what each histogram counted in the window, linear inside a bucket (as Prometheus does)."""
        groups: defaultdict[SeriesKey, list[Point]] = defaultdict(list)
        for key, points in live.items():
            bound = key.label("le")
            if bound is None:
                continue
            more = _increase(self._window(points, condition.over_s, at), condition, self._born(points), at)
            rest = tuple(pair for pair in key.labels if pair[0] != "le")
            groups[SeriesKey(condition.metric, rest)].append((float(bound.replace("+Inf", "inf")), more or 0.0))
        if condition.across != "each":  # counts add up; quantiles do not
            summed: defaultdict[float, float] = defaultdict(float)
            for bound_s, count in (pair for buckets in groups.values() for pair in buckets):
                summed[bound_s] += count
            groups = defaultdict(list, {SeriesKey(condition.metric): list(summed.items())})
        values = ((key, histogram_quantile(_QUANTILES[condition.take], buckets)) for key, buckets in groups.items())
        return [SeriesReading(key, value) for key, value in values if value is not None]


def histogram_quantile(quantile: float, buckets: Iterable[Point]) -> float | None:
    """The quantile of cumulative (upper bound, count) pairs; None where nothing was counted.

    Linear inside a bucket, the highest finite bound above it: as `histogram_quantile` of Prometheus.

    >>> histogram_quantile(0.5, [(0.1, 0.0), (0.2, 10.0), (float("inf"), 10.0)])
    0.15000000000000002
    """
    ordered = sorted(buckets)
    if not ordered or ordered[-1][1] <= 0:
        return None
    rank = quantile * ordered[-1][1]
    below, bound_below = 0.0, 0.0
    for bound, count in ordered:
        if count >= rank:
            if math.isinf(bound):
                return bound_below
            return bound if count == below else bound_below + (bound - bound_below) * (rank - below) / (count - below)
        below, bound_below = count, bound
    return bound_below


def _across(condition: Condition, found: Sequence[SeriesReading]) -> list[SeriesReading]:
    if condition.across == "each" or condition.is_quantile or not found:
        return list(found)
    values = [one.value for one in found]
    total = {"sum": math.fsum(values), "max": max(values), "mean": math.fsum(values) / len(values)}[condition.across]
    return [SeriesReading(SeriesKey(condition.metric), total)]


def _newest(points: Sequence[Point], _condition: Condition, _born: bool, _at: float) -> float | None:
    return points[-1][1]


def _covered(points: Sequence[Point], condition: Condition, at: float) -> list[float] | None:
    """The values in the window; None where they cover less than half of it."""
    start = at - condition.over_s
    inside = [value for when, value in points if when > start]
    return inside if inside and at - max(points[0][0], start) >= LEAST_COVER * condition.over_s else None


def _mean(points: Sequence[Point], condition: Condition, _born: bool, at: float) -> float | None:
    inside = _covered(points, condition, at)
    return math.fsum(inside) / len(inside) if inside else None


def _max(points: Sequence[Point], condition: Condition, _born: bool, at: float) -> float | None:
    inside = _covered(points, condition, at)
    return max(inside) if inside else None


def _min(points: Sequence[Point], condition: Condition, _born: bool, at: float) -> float | None:
    inside = _covered(points, condition, at)
    return min(inside) if inside else None


def _increase(points: Sequence[Point], _condition: Condition, born: bool, _at: float) -> float | None:
    """How far a counter went; one that falls began again from 0."""
    first = points[0][1] if born and len(points) and points[0][0] > _at - _condition.over_s else 0.0
    return first + math.fsum(
        after - before if after >= before else after for (_, before), (_, after) in pairwise(points)
    )


def _rate(points: Sequence[Point], condition: Condition, _born: bool, at: float) -> float | None:
    """A second, over the time that the points span."""
    spanned = points[-1][0] - max(points[0][0], at - condition.over_s)
    more = _increase(points, condition, False, at)
    return more / spanned if spanned > 0 and more is not None else None


def _age(points: Sequence[Point], _condition: Condition, _born: bool, at: float) -> float | None:
    """Seconds since the value changed last, as far back as the window reaches."""
    newest = points[-1][1]
    changed = next((after[0] for before, after in reversed(list(pairwise(points))) if before[1] != newest), None)
    return at - (points[0][0] if changed is None else changed)


def _ahead(points: Sequence[Point], condition: Condition, _born: bool, at: float) -> float | None:
    """What it comes to one window from now: the newest value, and the median slope between points of the window.

    The median of all slopes (Theil and Sen) does not follow a step, such as memory that is taken at the start; a line
    of least squares does.
    """
    if _covered(points, condition, at) is None:
        return None
    inside = [point for point in points if point[0] > at - condition.over_s]
    kept = inside[:: max(len(inside) // SLOPE_POINTS, 1)]
    slopes = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in combinations(kept, 2)]
    return inside[-1][1] + (median(slopes) * condition.over_s if slopes else 0.0)


_Take = Callable[[Sequence[Point], Condition, bool, float], float | None]
_TAKES: Final[Mapping[str, _Take]] = {
    "newest": _newest, "mean": _mean, "max": _max, "min": _min, "increase": _increase, "rate": _rate, "age": _age,
    "ahead": _ahead,
}  # fmt: skip
