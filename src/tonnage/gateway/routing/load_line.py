"""Seconds against requests in flight, as measured: how much slower a deployment is while it does more at a time."""

from __future__ import annotations

from typing import Final

RECENT: Final = 0.1  # the share of the newest measurement in the means
LONG: Final = 0.02  # and in the slope, which noise disturbs more
LEAST_SPREAD: Final = 0.25  # requests in flight, squared: of less no slope can be read
FEWEST: Final = 8  # measurements before a slope is read


class LoadLine:
    """The mean of the last seconds, and their slope over requests in flight by least squares; newer ones count more.

    The slope lies between none (what is asked does not share anything) and proportional (requests share one machine).
    Where requests in flight have not varied it is not known: more than so far are taken as proportional.

    >>> line = LoadLine()
    >>> line.at(1) is None
    True
    >>> line.add(2, 0.5)
    >>> line.at(1), line.at(4)
    (0.5, 1.0)
    """

    __slots__ = ("_count", "_n", "_nn", "_nt", "_seconds", "_t", "_under_way", "_weight")

    def __init__(self) -> None:
        self._count = 0
        self._seconds = self._under_way = 0.0  # recent means
        self._weight = self._n = self._t = self._nn = self._nt = 0.0

    def add(self, under_way: int, seconds: float) -> None:
        """A measurement, with the requests in flight then, this one too (1 or more)."""
        self._count += 1
        share = max(RECENT, 1.0 / self._count)
        self._seconds += share * (seconds - self._seconds)
        self._under_way += share * (under_way - self._under_way)
        keep = 1.0 - LONG
        self._weight = keep * self._weight + 1.0
        self._n = keep * self._n + under_way
        self._t = keep * self._t + seconds
        self._nn = keep * self._nn + under_way * under_way
        self._nt = keep * self._nt + under_way * seconds

    def at(self, under_way: int) -> float | None:
        """Seconds with so many requests in flight; None: nothing is measured."""
        if not self._count:
            return None
        slope = self._slope()
        if slope is None:
            return self._seconds * max(under_way / self._under_way, 1.0)
        return self._seconds + slope * (under_way - self._under_way)

    def _slope(self) -> float | None:
        """Seconds a request in flight. `a·n` is the most: a line through the origin."""
        n, t = self._n / self._weight, self._t / self._weight
        spread = self._nn / self._weight - n * n
        if self._count < FEWEST or spread < LEAST_SPREAD:
            return None
        slope = (self._nt / self._weight - n * t) / spread
        return min(max(slope, 0.0), self._seconds / self._under_way)
