"""A service measured: what was asked of it, how it answered, the rows that are kept; its capacity: the highest rate at
which it keeps its promise, doubled until it breaks, then bisected.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import sqrt
from typing import Final

from tonnage.traffic.exchanges import LatencyPromise, LoadResult
from tonnage.values import dataclass

PRECISION: Final = 0.05  # the rate that broke over the one that held, at which the search ends
MOST_TRIALS: Final = 24
LEAST_RATE_PER_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedFigure:
    """A measured figure beside what a plan predicts for the same load, with its 80 % interval; in the row's unit."""

    metric: str
    measured: float
    predicted: float
    low: float
    high: float

    @property
    def error_percent(self) -> float:
        """Of the prediction, over what was measured."""
        return 100.0 * (self.predicted / self.measured - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceBench:
    """`result` is that of the one run; of a search for capacity that of the highest rate that held, else of the last
    trial. `rows` are in the columns of the inference facts."""

    url: str
    protocol: str
    model: str
    arrivals: str
    began: datetime
    promise: LatencyPromise
    result: LoadResult
    capacity: Capacity | None
    client_cpu_s_per_request: float
    rows: tuple[Mapping[str, str], ...]
    predicted: tuple[PredictedFigure, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What a search found. `held_per_s`: the highest offered rate that kept the promise, None where none did;
    `broken_per_s`: the lowest above it that did not. `client_bound`: the client could not offer more."""

    held_per_s: float | None
    broken_per_s: float | None
    client_bound: bool
    trials: tuple[tuple[float, LoadResult], ...]  # rate asked for, what came


class CapacitySearch:
    """`next_rate` says what to try, `note` takes what came, until rates that held and broke are 5 % apart."""

    def __init__(self, first_per_s: float) -> None:
        self._first = first_per_s
        self._trials: list[tuple[float, LoadResult]] = []
        self._held: float | None = None
        self._broken: float | None = None
        self._client_bound = False

    def next_rate(self) -> float | None:
        """The next rate to try; None: the search is over."""
        if len(self._trials) >= MOST_TRIALS:
            return None
        if self._held is None:
            rate = self._first if self._broken is None else self._broken / 2.0
            return rate if rate >= LEAST_RATE_PER_S else None
        if self._broken is None:
            return 2.0 * self._held
        return sqrt(self._held * self._broken) if self._broken / self._held > 1.0 + PRECISION else None

    def note(self, rate: float, result: LoadResult) -> None:
        """What came at a rate. A void trial counts as one that broke: the client cannot offer that much."""
        self._trials.append((rate, result))
        if result.holds and not result.void:
            self._held = rate
        else:
            self._broken, self._client_bound = rate, bool(result.void)

    def found(self) -> Capacity:
        return Capacity(
            held_per_s=self._held, broken_per_s=self._broken, client_bound=self._client_bound,
            trials=tuple(self._trials),
        )  # fmt: skip
