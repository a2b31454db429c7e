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
    tile_product_share: float = parameter(
        0.3, 0.1, 0.6,
        source="the same of bf16 products on AMX tiles, which PyTorch feeds slowly: 0.37 on two cores (2,048 squared, "
        "PyTorch 2.13), 0.13 on four threads (4,096 squared, PyTorch 2.11; benchmarks/results/vectors_large_h100-"
        "80gb-sxm_2026-11-27.csv)",
    )
    kernel_share: float = parameter(
        1.0, 0.8, 1.25,
        source="rates of two kernels that the same thing binds, memory or units, one over the other: judgement",
    )
    # fmt: on
