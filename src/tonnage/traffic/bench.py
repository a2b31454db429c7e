"""A service measured: what was asked of it, how it answered, the rows that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tonnage.traffic.capacity import Capacity
from tonnage.traffic.exchanges import LatencyPromise, LoadResult
from tonnage.values import dataclass


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
    remarks: tuple[str, ...]
