"""Sizing of tabular work, boosted trees and multi-layer perceptrons: the names other packages use."""

from __future__ import annotations

from tonnage.sizing.tabular_assumptions import (
    MLP_TIME_SPREAD,
    TABULAR_MEMORY_SPREAD,
    TREES_TIME_ON_CPUS_SPREAD,
    TREES_TIME_ON_GPUS_SPREAD,
    TabularAssumptions,
    time_spread,
)
from tonnage.sizing.tabular_estimates import CpuColumns, TabularEstimate, TabularMemory
from tonnage.sizing.tabular_mlp import estimate_mlp_on_cpus, estimate_mlp_on_gpus, mlp_device_memory
from tonnage.sizing.tabular_trees import estimate_trees_on_cpus, estimate_trees_on_gpus, trees_device_memory

__all__ = [
    "MLP_TIME_SPREAD",
    "TABULAR_MEMORY_SPREAD",
    "TREES_TIME_ON_CPUS_SPREAD",
    "TREES_TIME_ON_GPUS_SPREAD",
    "CpuColumns",
    "TabularAssumptions",
    "TabularEstimate",
    "TabularMemory",
    "estimate_mlp_on_cpus",
    "estimate_mlp_on_gpus",
    "estimate_trees_on_cpus",
    "estimate_trees_on_gpus",
    "mlp_device_memory",
    "time_spread",
    "trees_device_memory",
]
