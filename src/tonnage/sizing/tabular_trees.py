"""Boosted trees grown from histograms (XGBoost `hist`): seconds and memory, on GPUs and on processors.

Each level of a tree adds every (row, feature) cell into its node's histogram of gradient sums. From the second level
on only the smaller child is built, its sibling by subtraction. Sources: Mitchell & Frank 2017, PeerJ Computer Science
3:e127; Mitchell et al. 2018, arXiv:1806.11248; XGBoost documentation, «XGBoost GPU Support», Memory usage. Leaves out
sampling of rows and columns, early stopping, evaluation sets, several classes, external memory, and sparse tables:
for one-hot columns count the entries a row really has as `features`.
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np

from tonnage.sizing.collectives import all_reduce_s
from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Array
from tonnage.sizing.tabular_assumptions import TabularAssumptions
from tonnage.sizing.tabular_estimates import (
    FLOAT_BYTES,
    CpuColumns,
    TabularEstimate,
    TabularMemory,
    amdahl,
    estimate_columns,
    memory_columns,
)
from tonnage.units import BITS_PER_BYTE, from_gib
from tonnage.workload.jobs import TabularJob

GRADIENT_BYTES = 8.0  # a gradient and a second derivative, float32 each
BIN_BYTES = 16.0  # their sums, 64 bit each


def cells(job: TabularJob) -> float:
    """Entries of the table: rows x features."""
    return float(job.rows) * job.features


def cell_updates(job: TabularJob) -> float:
    """Cells added into histograms over the whole job: rows x features x (1 + (depth - 1) / 2) x trees.

    The smaller of two children holds at most half its parent's rows: an upper bound, met by balanced trees.

    >>> cell_updates(TabularJob(rows=1000, features=10, trees=2, depth=5))
    60000.0
    """
    return cells(job) * (1.0 + (job.depth - 1) / 2.0) * job.trees


def split_nodes(job: TabularJob) -> float:
    """Nodes of one full tree that are split: 2^depth - 1, at most one per row."""
    return float(min(2.0**job.depth - 1.0, job.rows))


def histogram_bytes(job: TabularJob) -> float:
    """One node's histogram: features x bins x 16 B."""
    return job.features * job.bins * BIN_BYTES


def quantised_bytes_per_cell(job: TabularJob) -> float:
    """A dense ELLPACK entry: ceil(log2(bins)) bits.

    XGBoost 2.x also numbers the feature in it, two to three bytes a cell (dmlc/xgboost issue 10981; dense pages are
    smaller from 3.0 on).
    """
    return ceil(log2(job.bins)) / BITS_PER_BYTE


def estimate_trees_on_gpus(
    job: TabularJob,
    devices: Devices,
    count: Array,
    host_memory_bytes: Array,
    assumed: TabularAssumptions | None = None,
) -> TabularEstimate:
    """`job` on `count` devices each, rows divided among them; `host_memory_bytes` is what a node has.

    Cell updates run at `gpu_cell_updates_per_s` x (bandwidth / 900 GB/s)^`gpu_bandwidth_exponent`: atomics bind before
    memory does, so the rate grows far slower than bandwidth. Reads no peak rate, so any precision's `Devices` serve.
    Several devices all-reduce the built histograms once a level. Rows that need a link nobody publishes are NaN.
    """
    assumed = assumed or TabularAssumptions()
    nodes = np.ceil(count / devices.per_node)
    relative = (devices.bandwidth_bytes_per_s / assumed.gpu_reference_bytes_per_s) ** assumed.gpu_bandwidth_exponent
    each = cells(job) / count
    levels = float(job.depth * job.trees)
    scanned = job.trees * split_nodes(job) * histogram_bytes(job) * assumed.gpu_histogram_passes
    return estimate_columns(
        len(count),
        quantise=each / assumed.gpu_quantised_cells_per_s + each * FLOAT_BYTES / assumed.pcie_bytes_per_s,
        histogram=cell_updates(job) / count / (assumed.gpu_cell_updates_per_s * relative),
        partition=job.rows / count * levels * assumed.gpu_row_bytes / devices.bandwidth_bytes_per_s,
        evaluate=scanned / devices.bandwidth_bytes_per_s,
        communication=_all_reduce_s(job, count, nodes, devices),
        overhead=levels * assumed.gpu_level_s,
        device=trees_device_memory(job, count, assumed),
        host=_gpu_host_memory(job, count, nodes, assumed),
        device_capacity_bytes=devices.memory_bytes,
        host_capacity_bytes=host_memory_bytes,
    )


def _all_reduce_s(job: TabularJob, count: Array, nodes: Array, devices: Devices) -> Array:
    """One all-reduce per level, of the nodes built there: 1, then half of each further level, 2^(depth - 1) in all."""
    built = min(2.0 ** (job.depth - 1), float(job.rows))
    mean_bytes = built * histogram_bytes(job) / job.depth
    once = all_reduce_s(mean_bytes, count, nodes, devices)
    return np.where(count > 1, job.depth * job.trees * once, 0.0)


def _cached_histogram_bytes(job: TabularJob, assumed: TabularAssumptions) -> float:
    """Histograms stay in memory for the subtraction, all nodes of a tree up to `cached_nodes`."""
    return min(split_nodes(job), assumed.cached_nodes) * histogram_bytes(job)


def trees_device_memory(job: TabularJob, count: Array, assumed: TabularAssumptions) -> TabularMemory:
    """Each of `count` devices at the peak, rows divided among them."""
    rows = job.rows / count
    return memory_columns(
        len(count),
        quantised=rows * job.features * quantised_bytes_per_cell(job),
        gradients=rows * GRADIENT_BYTES,
        rows=rows * assumed.device_row_bytes,
        histograms=_cached_histogram_bytes(job, assumed),
        sketch=np.minimum(from_gib(assumed.gpu_sketch_gib), rows * job.features * 4 * FLOAT_BYTES),
        runtime=from_gib(assumed.gpu_context_gib),
    )


def _gpu_host_memory(job: TabularJob, count: Array, nodes: Array, assumed: TabularAssumptions) -> TabularMemory:
    """A node loads its share of the rows as float32; one process per device."""
    raw = cells(job) * FLOAT_BYTES / nodes
    return memory_columns(
        len(count),
        raw=raw,
        copies=raw * assumed.loading_copy_fraction,
        runtime=from_gib(assumed.trees_process_gib) * np.ceil(count / nodes),
    )


def estimate_trees_on_cpus(
    job: TabularJob, cpus: CpuColumns, assumed: TabularAssumptions | None = None
) -> TabularEstimate:
    """`job` on one machine's processors, whole table in its memory, read as a quantile matrix.

    A cell costs `cpu_cell_s` on one core, more where a node's histogram outgrows the core's cache. Cells and rows
    speed up with cores by Amdahl's law; reducing histograms over threads does not.
    """
    assumed = assumed or TabularAssumptions()
    cores, speed = cpus.cores(assumed), cpus.core_fraction(assumed)
    scaled = amdahl(cores, assumed.cpu_serial_fraction) / speed
    spilled = histogram_bytes(job) / (histogram_bytes(job) + assumed.cpu_cache_bytes)
    cell_s = assumed.cpu_cell_s * (1.0 + assumed.cpu_spill_factor * spilled)
    bins = job.trees * split_nodes(job) * job.features * job.bins
    return estimate_columns(
        len(cpus.vcpus),
        quantise=cells(job) / assumed.cpu_quantised_cells_per_s * scaled,
        histogram=cell_updates(job) * cell_s * scaled,
        partition=float(job.rows) * job.depth * job.trees * assumed.cpu_row_s * scaled,
        evaluate=bins * assumed.cpu_bin_s / speed / np.minimum(cores, 1.0),
        device=memory_columns(len(cpus.vcpus)),
        host=_cpu_host_memory(job, cpus, assumed),
        device_capacity_bytes=0.0,
        host_capacity_bytes=cpus.memory_bytes,
    )


def _cpu_host_memory(job: TabularJob, cpus: CpuColumns, assumed: TabularAssumptions) -> TabularMemory:
    """The quantised table is held by row and by column, one byte a cell each up to 256 bins, two beyond."""
    raw = cells(job) * FLOAT_BYTES
    index_bytes = 1.0 if job.bins <= 256 else 2.0
    return memory_columns(
        len(cpus.vcpus),
        raw=raw,
        copies=raw * assumed.loading_copy_fraction,
        quantised=cells(job) * 2.0 * index_bytes,
        gradients=job.rows * GRADIENT_BYTES,
        rows=job.rows * assumed.host_row_bytes,
        histograms=_cached_histogram_bytes(job, assumed) + cpus.vcpus * histogram_bytes(job),
        sketch=job.features * job.bins * assumed.sketch_bytes_per_bin,
        runtime=from_gib(assumed.trees_process_gib),
    )
