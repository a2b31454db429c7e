"""A service measured: what was asked of it, how it answered, the rows that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tonnage.traffic.capacity import Capacity
from tonnage.traffic.exchanges import LatencyPromise, LoadResult
from tonnage.values import dataclass


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
