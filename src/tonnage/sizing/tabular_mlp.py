"""A multi-layer perceptron over a table: seconds and memory, on GPUs and on processors.

Float32 weights, AdamW, the table in host memory, batches cut from it by index (no loader that handles rows one by one).
The last batch of an epoch counts as a full one. Leaves out embeddings of categories and evaluation.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.collectives import all_reduce_s
from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.operators import Operator, Pass, elementwise, gemm
from tonnage.sizing.rates import launch_s, total_flop, total_s
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
from tonnage.units import from_gib
from tonnage.workload.jobs import TabularJob

STATE_BYTES = 16.0  # per parameter: weight, gradient and two AdamW moments, float32
OPTIMIZER_BYTES = 28.0  # moved per parameter and step: all four read, weight and moments written
OPTIMIZER_KERNELS = 12.0  # fused over all parameters, plus loss and clearing of gradients
BATCHES_AHEAD = 2.0


def widths(job: TabularJob) -> tuple[int, ...]:
    """Layer widths from the table's columns to the one output."""
    return (job.features, *job.hidden_layers, 1)


def parameters(job: TabularJob) -> float:
    """Weights and biases of all layers.

    >>> parameters(TabularJob(rows=1, features=10, hidden_layers=(4,)))
    49.0
    """
    return float(sum(inner * outer + outer for inner, outer in pairwise(widths(job))))


def steps(job: TabularJob) -> int:
    """Optimizer steps of the whole job."""
    return ceil(ceil(job.rows / job.global_batch) * job.epochs)


def forward_operators(job: TabularJob, batch: Num) -> list[Operator]:
    """One forward pass over `batch` rows: a matrix product, then bias and activation, per layer."""
    span = Pass(batch=batch, query=1.0, keys=1.0, element_bytes=FLOAT_BYTES, weight_bytes=FLOAT_BYTES)
    operators: list[Operator] = []
    for inner, outer in pairwise(widths(job)):
        operators.append(gemm("dense", span, rows=batch, inner=float(inner), columns=float(outer)))
        operators.append(
            elementwise("bias and activation", moved_bytes=2 * FLOAT_BYTES * batch * float(outer), kernels=2)
        )
    return operators


def step_flop(job: TabularJob, batch: Num) -> Num:
    """FLOP of one step: forward, and twice that backward less the gradient of the input, which nobody asks for."""
    operators = forward_operators(job, batch)
    return 3.0 * total_flop(operators) - operators[0].flop


def estimate_mlp_on_gpus(
    job: TabularJob,
    devices: Devices,
    count: Array,
    host_memory_bytes: Array,
    assumed: TabularAssumptions | None = None,
    general: Assumptions | None = None,
) -> TabularEstimate:
    """`job` on `count` devices each, the global batch divided among them, gradients all-reduced after backward.

    Matrix products run at the precision the columns of `devices` were stacked for. Batches load while the device
    computes; what takes longer shows as `loading_s`. Rows that need a link nobody publishes are NaN.
    """
    assumed, general = assumed or TabularAssumptions(), general or Assumptions()
    nodes = np.ceil(count / devices.per_node)
    batch, many = np.ceil(job.global_batch / count), float(steps(job))
    operators = forward_operators(job, batch)
    forward = total_s(operators, devices, general)
    compute = 3.0 * forward - total_s(operators[:1], devices, general)
    memory_rate = devices.bandwidth_bytes_per_s * general.optimizer_memory_fraction
    optimizer = parameters(job) * OPTIMIZER_BYTES / memory_rate
    host = 3.0 * launch_s(operators, general, compiled=False)
    host = host + OPTIMIZER_KERNELS * general.host_launch_us_per_kernel * 1e-6
    launch = np.maximum(host - compute - optimizer, 0.0)
    loading = _batch_s(job, batch, assumed)
    reduced = all_reduce_s(parameters(job) * FLOAT_BYTES, count, nodes, devices)
    return estimate_columns(
        len(count),
        compute=many * compute,
        optimizer=many * optimizer,
        loading=many * np.maximum(loading - compute - optimizer - launch, 0.0),
        communication=np.where(count > 1, many * reduced, 0.0),
        overhead=many * launch,
        device=mlp_device_memory(job, batch, len(count), assumed),
        host=_host_memory(job, nodes, np.ceil(count / nodes), assumed),
        device_capacity_bytes=devices.memory_bytes,
        host_capacity_bytes=host_memory_bytes,
    )


def _batch_s(job: TabularJob, batch: Array, assumed: TabularAssumptions) -> Array:
    """Cutting one batch from host memory and sending it over PCIe, whichever is slower: the two overlap."""
    size = batch * job.features * FLOAT_BYTES
    return size / min(assumed.host_batch_bytes_per_s, assumed.pcie_bytes_per_s)


def _activation_bytes(job: TabularJob, batch: Num) -> Num:
    """Kept for backward: each layer's product and its activation, and the batches waiting."""
    kept = 2.0 * sum(widths(job)[1:])
    return FLOAT_BYTES * batch * (kept + BATCHES_AHEAD * job.features)


def mlp_device_memory(job: TabularJob, batch: Array, rows: int, assumed: TabularAssumptions) -> TabularMemory:
    """A device at the peak, `batch` rows of a step on it; the table stays in host memory. `rows`: of the answer."""
    return memory_columns(
        rows,
        state=parameters(job) * STATE_BYTES,
        activations=np.asarray(_activation_bytes(job, batch)),
        runtime=from_gib(assumed.gpu_context_gib),
    )


def _host_memory(job: TabularJob, nodes: Array, processes: Array, assumed: TabularAssumptions) -> TabularMemory:
    """A node holds its share of the rows as float32, whatever the number of its processes."""
    raw = float(job.rows) * job.features * FLOAT_BYTES / nodes
    return memory_columns(
        len(nodes),
        raw=raw,
        copies=raw * assumed.loading_copy_fraction,
        runtime=from_gib(assumed.mlp_process_gib) * processes,
    )


def estimate_mlp_on_cpus(
    job: TabularJob, cpus: CpuColumns, assumed: TabularAssumptions | None = None
) -> TabularEstimate:
    """`job` on one machine's processors: products at `cpu_flop_per_s` a core, the rest at `cpu_bytes_per_s` a core."""
    assumed = assumed or TabularAssumptions()
    scaled = amdahl(cpus.cores(assumed), assumed.cpu_serial_fraction)
    batch, many = float(job.global_batch), float(steps(job))
    operators = forward_operators(job, batch)
    moved = 3.0 * sum(float(op.moved_bytes) for op in operators if op.kind == "elementwise")
    product = float(step_flop(job, batch)) / assumed.cpu_flop_per_s / cpus.core_fraction(assumed)
    kernels = 3.0 * sum(op.kernels for op in operators) + OPTIMIZER_KERNELS
    one = np.ones(len(cpus.vcpus))
    raw = memory_columns(
        len(cpus.vcpus),
        raw=float(job.rows) * job.features * FLOAT_BYTES,
        copies=float(job.rows) * job.features * FLOAT_BYTES * assumed.loading_copy_fraction,
        state=parameters(job) * STATE_BYTES,
        activations=np.asarray(_activation_bytes(job, batch)),
        runtime=from_gib(assumed.mlp_process_gib),
    )
    return estimate_columns(
        len(cpus.vcpus),
        compute=many * (product + moved / assumed.cpu_bytes_per_s) * scaled,
        optimizer=many * parameters(job) * OPTIMIZER_BYTES / assumed.cpu_bytes_per_s * scaled,
        loading=many * batch * job.features * FLOAT_BYTES / assumed.host_batch_bytes_per_s * one,
        overhead=many * kernels * assumed.cpu_operator_s * one,
        device=memory_columns(len(cpus.vcpus)),
        host=raw,
        device_capacity_bytes=0.0,
        host_capacity_bytes=cpus.memory_bytes,
    )
