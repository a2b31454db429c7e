"""Judgements of the tabular formulas: each with its default, its range and where it comes from."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from tonnage.sizing.assumptions import Assumption
from tonnage.sizing.estimates import Spread
from tonnage.values import dataclass
from tonnage.workload.jobs import TabularJob


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularAssumptions:
    """Rates, overheads and working memory of boosted trees and multi-layer perceptrons; `SOURCES` has the ranges."""

    gpu_cell_updates_per_s: float = 1.45e10
    gpu_reference_bytes_per_s: float = 900e9
    gpu_bandwidth_exponent: float = 0.4
    gpu_row_bytes: float = 62.0
    gpu_histogram_passes: float = 4.0
    gpu_level_s: float = 0.85e-3
    gpu_quantised_cells_per_s: float = 3e8
    pcie_bytes_per_s: float = 12e9
    cpu_cell_s: float = 4.0e-10
    cpu_spill_factor: float = 2.7
    cpu_cache_bytes: float = 2.0**20
    cpu_row_s: float = 1.63e-8
    cpu_bin_s: float = 7.9e-9
    cpu_quantised_cells_per_s: float = 4.6e6
    cpu_serial_fraction: float = 0.06
    cpu_flop_per_s: float = 6.0e10
    cpu_bytes_per_s: float = 8e9
    cpu_operator_s: float = 15e-6
    hyperthread_gain: float = 1.10
    x86_core_fraction: float = 0.85
    arm_core_fraction: float = 0.75
    host_batch_bytes_per_s: float = 2e9
    loading_copy_fraction: float = 0.5
    sketch_bytes_per_bin: float = 4096.0
    gpu_sketch_gib: float = 1.0
    cached_nodes: float = 65536.0
    device_row_bytes: float = 24.0
    host_row_bytes: float = 20.0
    trees_process_gib: float = 0.3
    mlp_process_gib: float = 1.5
    gpu_context_gib: float = 0.5


_GBM_PERF = (
    "szilard/GBM-perf analysis/2024_updates/results.txt (airline data, 8 entries a row, 100 trees of depth 10, 0.1M to "
    "10M rows on V100, A10, A10G, L4, A100, H100) and 1M x 200 x 100 trees at 0.081 s a tree on Colab, taken as a T4 "
    "(dev.to masudahiroto 2024; GPU not named): one fit, log error 0.18"
)
_MEASURED = "benchmarks/results/tabular_trees.csv: XGBoost 3.2.0 on two AMD EPYC (Zen 4) cores, 22 runs, log error 0.10"

SOURCES: Final[dict[str, tuple[float, float, str]]] = {
    "gpu_cell_updates_per_s": (0.7e10, 3e10, f"{_GBM_PERF}; dense wide tables rest on the Colab row alone"),
    "gpu_reference_bytes_per_s": (900e9, 900e9, "memory bandwidth of a V100, at which the rate above is stated"),
    "gpu_bandwidth_exponent": (
        0.3,
        0.5,
        f"{_GBM_PERF}: H100 gains 1.3 over V100, L4 loses little; atomics bind before memory does",
    ),
    "gpu_row_bytes": (
        30.0,
        120.0,
        "gradients, positions and row lists moved per row and level: judgement; the fit cannot tell it from cells",
    ),
    "gpu_histogram_passes": (2.0, 8.0, "clear, reduce, subtract, scan for the best split: judgement"),
    "gpu_level_s": (0.6e-3, 1.4e-3, f"{_GBM_PERF}: 0.1M rows take 0.65 to 1.4 s whatever the device"),
    "gpu_quantised_cells_per_s": (1e8, 1e9, "sketch and compression on the device: judgement; few rows pin it"),
    "pcie_bytes_per_s": (6e9, 24e9, "PCIe 3.0 x16 reaches 12 of its 15.8 GB/s; PCIe 4.0 twice that"),
    "cpu_cell_s": (2e-10, 8e-10, f"{_MEASURED}; one core, histograms within its cache"),
    "cpu_spill_factor": (
        1.0,
        7.0,
        f"{_MEASURED}: 310 features cost more per cell than 28; tied to the rate above in the fit",
    ),
    "cpu_cache_bytes": (0.5 * 2**20, 2.0 * 2**20, "second-level cache of a server core: 0.5 to 2 MiB"),
    "cpu_row_s": (0.6e-8, 2.5e-8, f"{_MEASURED}; partition of rows and gathering of gradients, per row and level"),
    "cpu_bin_s": (4e-9, 16e-9, f"{_MEASURED}; reducing and scanning histograms, which threads do not speed up"),
    "cpu_quantised_cells_per_s": (
        3e6,
        2e7,
        f"{_MEASURED}; continuous values, the slowest kind; integers and categories take less",
    ),
    "cpu_serial_fraction": (
        0.03,
        0.14,
        "XGBoost on c7i, c7a and c5.metal at 1 to 96 threads (GBM-perf multicore-c7metal; dmlc/xgboost pull 5156)",
    ),
    "cpu_flop_per_s": (
        3e10,
        1e11,
        "float32 products reach 1.0e11 a core here (benchmarks/results/tabular_products.csv); training 60 % of it: "
        "judgement",
    ),
    "cpu_bytes_per_s": (3e9, 15e9, "memory bandwidth a core's share of a cloud processor gets: judgement"),
    "cpu_operator_s": (5e-6, 40e-6, "dispatch and thread fork of one eager operator: judgement"),
    "hyperthread_gain": (
        1.0,
        1.2,
        "second thread of a core: c5.metal 24 cores 39.9 -> 33.9 s, c7i 48 cores 19.0 -> 15.9 s at 10M rows, nothing "
        "at 1M (GBM-perf)",
    ),
    "x86_core_fraction": (
        0.5,
        1.0,
        "against Zen 4 or Sapphire Rapids: r4 (Broadwell) takes 40 s where m7i takes 22 s on 16 cores (GBM-perf)",
    ),
    "arm_core_fraction": (0.5, 1.0, "no Graviton run with both sizes and seconds was found: judgement"),
    "host_batch_bytes_per_s": (
        0.5e9,
        6e9,
        "rows picked at random from a table in memory into batches, per device; a loader that handles rows one by one "
        "is far slower: judgement",
    ),
    "loading_copy_fraction": (0.0, 2.0, "of the raw table held twice while columns become a float32 matrix: judgement"),
    "sketch_bytes_per_bin": (2048.0, 8192.0, f"{_MEASURED}: peak memory holds about 1 MB a feature at 256 bins"),
    "gpu_sketch_gib": (0.5, 4.0, "chunk of raw values sorted on the device; XGBoost sizes it by what is free"),
    "cached_nodes": (65536.0, 65536.0, "XGBoost parameter max_cached_hist_node; further histograms are rebuilt"),
    "device_row_bytes": (16.0, 48.0, "predictions, labels, positions, two row lists: XGBoost GPU documentation"),
    "host_row_bytes": (16.0, 32.0, f"{_MEASURED}; predictions, labels, positions, row lists"),
    "trees_process_gib": (0.1, 0.8, "Python with NumPy and XGBoost 0.13 GiB here; a data-frame library on top"),
    "mlp_process_gib": (0.8, 3.0, "Python with PyTorch, per process: judgement"),
    "gpu_context_gib": (0.4, 0.8, "416 MB before any data on a V100 (szilard/GBM-perf issue 10)"),
}

# 80 % intervals. The GPU rows fit within 0.65 to 1.35; wide tables and other releases are extrapolated. Six dense runs
# on processors the fit never saw took 0.76 to 1.80 of the prediction, one-hot tables 0.34 to 0.94
# (docs/decisions/tabular-rates.md). No run pins the MLP yet: judgement.
TREES_TIME_ON_GPUS_SPREAD: Final = Spread(low_factor=0.5, high_factor=2.0)
TREES_TIME_ON_CPUS_SPREAD: Final = Spread(low_factor=0.5, high_factor=2.0)
MLP_TIME_SPREAD: Final = Spread(low_factor=0.4, high_factor=2.5)
TABULAR_MEMORY_SPREAD: Final = Spread(low_factor=0.8, high_factor=1.35)


def time_spread(job: TabularJob, kind: str) -> Spread:
    """80 % interval of the predicted seconds of `job` on accelerators (`kind` gpu) or processors alone (cpu)."""
    if job.method == "mlp":
        return MLP_TIME_SPREAD
    return TREES_TIME_ON_GPUS_SPREAD if kind == "gpu" else TREES_TIME_ON_CPUS_SPREAD


def listed_tabular(assumptions: TabularAssumptions) -> tuple[Assumption, ...]:
    """Every tabular assumption with its range and source, in declaration order."""
    return tuple(
        Assumption(name=field.name, value=float(getattr(assumptions, field.name)), low=low, high=high, source=source)
        for field in fields(assumptions)
        for low, high, source in (SOURCES[field.name],)
    )
