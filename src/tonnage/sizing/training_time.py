"""Seconds of one optimizer step, part by part, over columns of layouts and devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.collectives import all_gather_s, all_reduce_s, send_s
from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Array, Num, column
from tonnage.sizing.layouts import RECOMPUTES, SHARDINGS, Layouts
from tonnage.sizing.precision import (
    NF4_BYTES_PER_PARAMETER,
    TRAINING,
    TrainingNumbers,
    optimizer_bytes_per_parameter,
)
from tonnage.sizing.rates import launch_s, total_flop, total_s
from tonnage.sizing.stages import Stage
from tonnage.sizing.training_job import ParameterShare, parameter_share, training_stages
from tonnage.workload.jobs import TrainJob

ZERO1, ZERO3 = SHARDINGS.index("zero1"), SHARDINGS.index("zero3")
FULL = RECOMPUTES.index("full")
MATRIX_KINDS = ("gemm", "attention", "convolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """Seconds of one optimizer step (a whole global batch), one row per candidate; the parts sum to the total."""

    forward_s: Array
    backward_s: Array
    recompute_s: Array
    dequantise_s: Array
    launch_s: Array  # what the host's kernel launches add over the device's own time
    tensor_parallel_s: Array
    data_parallel_s: Array  # gradient and parameter traffic that compute does not hide
    bubble_s: Array
    optimizer_s: Array
    model_flop: Array  # FLOP per device of forward and backward, recomputation not counted (the MFU convention)

    @property
    def total_s(self) -> Array:
        total: Array = np.sum([getattr(self, name) for name in self._parts()], axis=0, dtype=np.float64)
        return total

    @classmethod
    def _parts(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls) if field.name.endswith("_s"))

    def parts(self, index: int) -> dict[str, float]:
        """Part -> seconds of one row, without the `_s` suffix, zeros left out."""
        named = {name.removesuffix("_s"): float(getattr(self, name)[index]) for name in self._parts()}
        return {name: seconds for name, seconds in named.items() if seconds > 0}


def estimate_training_step(
    job: TrainJob, layouts: Layouts, devices: Devices, assumed: Assumptions | None = None
) -> TrainingStep:
    """Time of one step of `job` under each layout, seconds, at the mean computed length.

    A micro-batch costs its forward, twice that backward (once, where the base is frozen: only activation gradients),
    and another forward where everything is recomputed. Gradient and parameter traffic hides behind compute up to
    `communication_overlap_fraction`; the pipeline bubble is (p-1)/m of the work (Narayanan et al. 2021,
    arXiv:2104.04473, section 2.2). Rows that need a link nobody publishes are NaN.
    """
    assumed = assumed or Assumptions()
    numbers = TRAINING[job.precision]
    share = parameter_share(job, layouts)
    stages = training_stages(job, layouts, length=job.lengths.mean, numbers=numbers)
    rows, m, p = len(layouts.nodes), layouts.accumulation, layouts.pipeline_parallel

    forward = _over_stages(stages, layouts, lambda stage: total_s(stage.operators, devices, assumed))
    flop = _over_stages(stages, layouts, lambda stage: total_flop(stage.operators))
    matrix = _over_stages(
        stages,
        layouts,
        lambda stage: total_s([op for op in stage.operators if op.kind in MATRIX_KINDS], devices, assumed),
    )
    backward = 2.0 * forward if job.method == "full" else 2.0 * forward - matrix
    recompute = np.where(layouts.recompute == FULL, forward, 0.0)
    dequantise = _dequantise_s(job, share, devices, assumed)
    host = _over_stages(stages, layouts, lambda stage: launch_s(stage.operators, assumed, compiled=job.compile))
    host = host * (3.0 + (layouts.recompute == FULL))
    device = forward + backward + recompute + dequantise
    launch = np.maximum(host - device, 0.0)
    tensor = _tensor_parallel_s(job, layouts, devices, numbers)
    micro = device + launch + tensor
    data = _data_parallel_s(share, layouts, devices, numbers, micro * m, assumed)
    return TrainingStep(
        forward_s=column(forward * m, rows),
        backward_s=column(backward * m, rows),
        recompute_s=column(recompute * m, rows),
        dequantise_s=column(dequantise * m, rows),
        launch_s=column(launch * m, rows),
        tensor_parallel_s=column(tensor * m, rows),
        data_parallel_s=column(data, rows),
        bubble_s=column((p - 1) * (micro + _hand_over_s(job, layouts, devices, numbers)), rows),
        optimizer_s=column(_optimizer_s(job, share, layouts, devices, numbers, assumed), rows),
        model_flop=column(flop * (3.0 if job.method == "full" else 2.0) * m, rows),
    )


def _over_stages(stages: Sequence[Stage], layouts: Layouts, cost: Callable[[Stage], Num]) -> Array:
    """Sum of `cost(stage)` over what one pipeline stage holds: its share of the layers, and (worst case) the head."""
    total = np.zeros(len(layouts.nodes))
    for stage in stages:
        repeats = np.ceil(stage.repeats / layouts.pipeline_parallel) if stage.layered else stage.repeats
        total = total + repeats * cost(stage)
    return total


def _dequantise_s(job: TrainJob, share: ParameterShare, devices: Devices, assumed: Assumptions) -> Array | float:
    """A 4-bit base is expanded to 16 bit in forward and in backward: read 4 bits, write and read 16."""
    if job.method != "qlora":
        return 0.0
    moved = share.frozen * (NF4_BYTES_PER_PARAMETER + 2.0) * 2
    return moved / (devices.bandwidth_bytes_per_s * assumed.memory_peak_fraction)


def _tensor_parallel_s(job: TrainJob, layouts: Layouts, devices: Devices, numbers: TrainingNumbers) -> Array:
    """Four all-reduces of the layer's activations per layer and micro-batch (two forward, two backward).

    Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3. With sequence parallelism the volume is the same.
    """
    length = job.lengths.mean
    size = layouts.micro_batch * length * job.model.hidden * numbers.element_bytes
    nodes = np.ceil(layouts.tensor_parallel / devices.per_node)
    layers = np.ceil((job.model.layers + job.model.encoder_layers) / layouts.pipeline_parallel)
    once = all_reduce_s(size, layouts.tensor_parallel, nodes, devices)
    return np.where(layouts.tensor_parallel > 1, 4.0 * layers * once, 0.0)


def _data_parallel_s(
    share: ParameterShare,
    layouts: Layouts,
    devices: Devices,
    numbers: TrainingNumbers,
    compute_s: Array,
    assumed: Assumptions,
) -> Array:
    """Gradients once a step; with ZeRO-3 also the weights, gathered in forward and in backward of each micro-batch."""
    dp = layouts.data_parallel
    nodes = np.minimum(layouts.nodes, dp)
    gradients = all_reduce_s(share.trained * numbers.gradient_bytes, dp, nodes, devices)
    gathered = (share.trained + share.frozen) * numbers.element_bytes
    parameters = 2.0 * layouts.accumulation * all_gather_s(gathered, dp, nodes, devices)
    traffic = gradients + np.where(layouts.sharding >= ZERO3, parameters, 0.0)
    hidden = assumed.communication_overlap_fraction * np.minimum(traffic, compute_s)
    return np.where(dp > 1, traffic - hidden, 0.0)


def _hand_over_s(job: TrainJob, layouts: Layouts, devices: Devices, numbers: TrainingNumbers) -> Array:
    """One micro-batch's activations to the next pipeline stage, forward and backward."""
    length = job.lengths.mean
    size = layouts.micro_batch * length * job.model.hidden * numbers.element_bytes / layouts.tensor_parallel
    several = layouts.pipeline_parallel > 1
    crosses = layouts.tensor_parallel * layouts.pipeline_parallel > devices.per_node
    return np.where(several, 2.0 * send_s(np.where(several, size, 0.0), crosses, devices), 0.0)


def _optimizer_s(
    job: TrainJob,
    share: ParameterShare,
    layouts: Layouts,
    devices: Devices,
    numbers: TrainingNumbers,
    assumed: Assumptions,
) -> Array:
    """Reading weights, gradients and state and writing weights and state once, at memory bandwidth."""
    state = optimizer_bytes_per_parameter(job.optimizer, numbers.optimizer_element_bytes, job.model.hidden)
    moved = share.trained * (2 * numbers.weight_bytes + numbers.gradient_bytes + 2 * state)
    cut = np.where(layouts.sharding >= ZERO1, layouts.data_parallel, 1.0)
    return moved / cut / (devices.bandwidth_bytes_per_s * assumed.optimizer_memory_fraction)
