"""Judgements of the tabular formulas: each with its default, its range and where it comes from."""

from __future__ import annotations

from typing import Final

from tonnage.sizing.assumption_table import parameter
from tonnage.sizing.estimates import Spread
from tonnage.values import dataclass
from tonnage.workload.jobs import TabularJob

_GBM_PERF = (
    "szilard/GBM-perf analysis/2024_updates/results.txt (airline data, 8 entries a row, 100 trees of depth 10, 0.1M to "
    "10M rows on V100, A10, A10G, L4, A100, H100) and 1M x 200 x 100 trees at 0.081 s a tree on Colab, taken as a T4 "
    "(dev.to masudahiroto 2024; GPU not named): one fit, log error 0.18"
)
_MEASURED = "benchmarks/results/tabular_trees.csv: XGBoost 3.2.0 on two AMD EPYC (Zen 4) cores, 22 runs, log error 0.10"


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularAssumptions:
    """Rates, overheads and working memory of boosted trees and multi-layer perceptrons, each with range and source."""

    # fmt: off
    gpu_cell_updates_per_s: float = parameter(
        1.45e10, 0.7e10, 3e10,
        source=f"{_GBM_PERF}; dense wide tables rest on the Colab row alone",
    )
    gpu_reference_bytes_per_s: float = parameter(
        900e9, 900e9, 900e9,
        source="memory bandwidth of a V100, at which the rate above is stated",
    )
    gpu_bandwidth_exponent: float = parameter(
        0.4, 0.3, 0.5,
        source=f"{_GBM_PERF}: H100 gains 1.3 over V100, L4 loses little; atomics bind before memory does",
    )
    gpu_row_bytes: float = parameter(
        62.0, 30.0, 120.0,
        source="gradients, positions and row lists moved per row and level: judgement; the fit cannot tell it from "
        "cells",
    )
    gpu_histogram_passes: float = parameter(
        4.0, 2.0, 8.0,
        source="clear, reduce, subtract, scan for the best split: judgement",
    )
    gpu_level_s: float = parameter(
        0.85e-3, 0.6e-3, 1.4e-3,
        source=f"{_GBM_PERF}: 0.1M rows take 0.65 to 1.4 s whatever the device",
    )
    gpu_quantised_cells_per_s: float = parameter(
        3e8, 1e8, 1e9,
        source="sketch and compression on the device: judgement; few rows pin it",
    )
    pcie_bytes_per_s: float = parameter(
        12e9, 6e9, 24e9,
        source="PCIe 3.0 x16 reaches 12 of its 15.8 GB/s; PCIe 4.0 twice that",
    )
    cpu_cell_s: float = parameter(
        4.0e-10, 2e-10, 8e-10,
        source=f"{_MEASURED}; one core, histograms within its cache",
    )
    cpu_spill_factor: float = parameter(
        2.7, 1.0, 7.0,
        source=f"{_MEASURED}: 310 features cost more per cell than 28; tied to the rate above in the fit",
    )
    cpu_cache_bytes: float = parameter(
        2.0**20, 0.5 * 2**20, 2.0 * 2**20,
        source="second-level cache of a server core: 0.5 to 2 MiB",
    )
    cpu_row_s: float = parameter(
        1.63e-8, 0.6e-8, 2.5e-8,
        source=f"{_MEASURED}; partition of rows and gathering of gradients, per row and level",
    )
    cpu_bin_s: float = parameter(
        7.9e-9, 4e-9, 16e-9,
        source=f"{_MEASURED}; reducing and scanning histograms, which threads do not speed up",
    )
    cpu_quantised_cells_per_s: float = parameter(
        4.6e6, 3e6, 2e7,
        source=f"{_MEASURED}; continuous values, the slowest kind; integers and categories take less",
    )
    cpu_serial_fraction: float = parameter(
        0.06, 0.03, 0.14,
        source="XGBoost on c7i, c7a and c5.metal at 1 to 96 threads (GBM-perf multicore-c7metal; dmlc/xgboost pull "
        "5156)",
    )
    cpu_flop_per_s: float = parameter(
        6.0e10, 3e10, 1e11,
        source="float32 products reach 1.0e11 a core here (benchmarks/results/tabular_products.csv); training 60 % "
        "of it: judgement",
    )
    cpu_bytes_per_s: float = parameter(
        8e9, 3e9, 15e9,
        source="memory bandwidth a core's share of a cloud processor gets: judgement",
    )
    cpu_operator_s: float = parameter(
        15e-6, 5e-6, 40e-6,
        source="dispatch and thread fork of one eager operator: judgement",
    )
    hyperthread_gain: float = parameter(
        1.10, 1.0, 1.2,
        source="second thread of a core: c5.metal 24 cores 39.9 -> 33.9 s, c7i 48 cores 19.0 -> 15.9 s at 10M rows, "
        "nothing at 1M (GBM-perf)",
    )
    x86_core_fraction: float = parameter(
        0.85, 0.5, 1.0,
        source="against Zen 4 or Sapphire Rapids: r4 (Broadwell) takes 40 s where m7i takes 22 s on 16 cores "
        "(GBM-perf)",
    )
    arm_core_fraction: float = parameter(
        0.75, 0.5, 1.0,
        source="no Graviton run with both sizes and seconds was found: judgement",
    )
    host_batch_bytes_per_s: float = parameter(
        2e9, 0.5e9, 6e9,
        source="rows picked at random from a table in memory into batches, per device; a loader that handles rows "
        "one by one is far slower: judgement",
    )
    loading_copy_fraction: float = parameter(
        0.5, 0.0, 2.0,
        source="of the raw table held twice while columns become a float32 matrix: judgement",
    )
    sketch_bytes_per_bin: float = parameter(
        4096.0, 2048.0, 8192.0,
        source=f"{_MEASURED}: peak memory holds about 1 MB a feature at 256 bins",
    )
    gpu_sketch_gib: float = parameter(
        1.0, 0.5, 4.0,
        source="chunk of raw values sorted on the device; XGBoost sizes it by what is free",
    )
    cached_nodes: float = parameter(
        65536.0, 65536.0, 65536.0,
        source="XGBoost parameter max_cached_hist_node; further histograms are rebuilt",
    )
    device_row_bytes: float = parameter(
        24.0, 16.0, 48.0,
        source="predictions, labels, positions, two row lists: XGBoost GPU documentation",
    )
    host_row_bytes: float = parameter(
        20.0, 16.0, 32.0,
        source=f"{_MEASURED}; predictions, labels, positions, row lists",
    )
    trees_process_gib: float = parameter(
        0.3, 0.1, 0.8,
        source="Python with NumPy and XGBoost 0.13 GiB here; a data-frame library on top",
    )
    mlp_process_gib: float = parameter(
        1.5, 0.8, 3.0,
        source="Python with PyTorch, per process: judgement",
    )
    gpu_context_gib: float = parameter(
        0.5, 0.4, 0.8,
        source="416 MB before any data on a V100 (szilard/GBM-perf issue 10)",
    )


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
