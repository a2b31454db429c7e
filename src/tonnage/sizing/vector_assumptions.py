"""Judgements of vector operations on a processor: each with its default, its range and its source."""

from __future__ import annotations

from tonnage.sizing.assumption_table import parameter
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorAssumptions:
    """Judgements of vector operations on a processor that was not measured."""

    # fmt: off
    product_share: float = parameter(
        0.8, 0.5, 1.3,
        source="products over cores x clock as reported x widest units: above 1 where a core runs above the clock that "
        "/proc/cpuinfo reports, below where wide units lower it: judgement",
    )
    kernel_share: float = parameter(
        1.0, 0.8, 1.25,
        source="rates of two kernels that the same thing binds, memory or units, one over the other: judgement",
    )
    # fmt: on
