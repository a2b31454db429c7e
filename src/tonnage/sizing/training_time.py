"""Seconds of one optimizer step, part by part, over columns of layouts and devices."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import reduce

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.collectives import all_gather_s, all_reduce_s, ring_latency_s, send_s
from tonnage.sizing.devices import GENERATIONS, Devices
from tonnage.sizing.estimates import Array
from tonnage.sizing.rates import smooth_max
from tonnage.sizing.training_parts import PartSeconds, TimedPart, part_seconds
from tonnage.sizing.training_work import COMPUTES, ELEMENT_BYTES, StepWork
from tonnage.values import dataclass

# Process class of each generation; any other is newer.
PROCESS = {"Volta": "12nm", "Turing": "12nm", "Ampere": "7nm"}
HOST_SHARPNESS = 4.0  # the host runs ahead of the device but for the waits of a step: rounded where the two meet
NO_PARTS = ("floor_s", "host_bound_s")
TYPICAL_BUDGET = 0.85  # share of the cap where the power limit is not published


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
    pipeline_s: Array  # handing activations from stage to stage
    bubble_s: Array
    optimizer_s: Array
    floor_s: Array  # no step takes less: products at the most the device reaches, state once through memory; no part
    host_bound_s: Array  # of the total, what goes in proportion to the host's time for a launch; no part either
    model_flop: Array  # FLOP per device of forward and backward, recomputation not counted (the MFU convention)

    @property
    def total_s(self) -> Array:
        return reduce(np.add, (getattr(self, name) for name in self._parts()))

    @property
    def host_share(self) -> Array:
        """How far the total goes with the host's time for a launch: d ln(total) / d ln(time), 0 to 1."""
        return self.host_bound_s / self.total_s

    @classmethod
    def _parts(cls) -> tuple[str, ...]:
        return tuple(one.name for one in fields(cls) if one.name.endswith("_s") and one.name not in NO_PARTS)

    def parts(self, index: int) -> dict[str, float]:
        """Part -> seconds of one row, without the `_s` suffix, zeros left out."""
        named = {name.removesuffix("_s"): float(getattr(self, name)[index]) for name in self._parts()}
        return {name: seconds for name, seconds in named.items() if seconds > 0}


def step_seconds(
    work: StepWork, devices: Devices, assumed: Assumptions, timed: TimedPart | None = None
) -> TrainingStep:
    """Seconds of one step's work on the devices (one row each) at the mean computed length.

    A micro-batch costs its forward, about twice that backward (once for products against a frozen base), and another
    forward of the layers where everything is recomputed. Gradient and parameter traffic hides behind compute up to
    `communication_overlap_fraction`; the pipeline bubble is (p-1)/m of the work, 1/v of that where stages are
    interleaved (Narayanan et al. 2021, arXiv:2104.04473, section 2.2). Rows that need a link nobody publishes are NaN.
    `timed`: `part_seconds`, or what remembers its results.
    """
    devices = devices.with_network(assumed)
    sustained = sustained_devices(work, devices, assumed)
    assumed = replace(
        assumed,
        attention_peak_fraction=assumed.training_attention_fraction,
        convolution_peak_fraction=assumed.training_convolution_fraction,
    )
    element = ELEMENT_BYTES[work.compute.astype(np.intp)]
    forward, backward, again, kernels, floor = _device_seconds(work, sustained, element, assumed, timed or part_seconds)
    bandwidth = devices.bandwidth_bytes_per_s
    dequantise = work.dequantised_bytes / (bandwidth * assumed.memory_peak_fraction)
    device = forward + backward + again + dequantise
    host = kernels * assumed.training_launch_us_per_kernel * 1e-6
    together = smooth_max(host, device, HOST_SHARPNESS)
    launch = together - device
    bound = together * host**HOST_SHARPNESS / (host**HOST_SHARPNESS + device**HOST_SHARPNESS)  # its slope, times host
    tensor = _tensor_parallel_s(work, devices, device, assumed)
    hand_over = _hand_over_s(work, devices)
    micro = device + launch + tensor + hand_over
    m = work.accumulation
    optimizer_host = (
        work.optimizer_tensors * assumed.optimizer_launch_us_per_tensor
        + work.optimizer_kernels * assumed.host_launch_us_per_kernel
    ) * 1e-6
    return TrainingStep(
        forward_s=forward * m,
        backward_s=backward * m,
        recompute_s=again * m,
        dequantise_s=dequantise * m,
        launch_s=launch * m,
        tensor_parallel_s=tensor * m,
        data_parallel_s=_data_parallel_s(work, devices, micro * m, backward + again, assumed),
        pipeline_s=hand_over * m,
        bubble_s=work.bubble * micro,
        optimizer_s=(work.optimizer_bytes + work.accumulated_bytes * (m - 1.0))
        / (bandwidth * assumed.optimizer_memory_fraction)
        + optimizer_host,
        floor_s=floor * m + work.optimizer_bytes / bandwidth,
        host_bound_s=bound * (m + work.bubble) + optimizer_host,
        model_flop=work.model_flop,
    )


def sustained_devices(work: StepWork, devices: Devices, assumed: Assumptions) -> Devices:
    """The devices at the rate they hold through a training run.

    A board cannot feed all its tensor cores at full clock: the rate is what its power limit allows at the energy a
    product costs in its process, up to a cap. 8-bit and 32-bit products reach another share of their peak.
    """
    by_precision = np.array([assumed.of_precision(compute) for compute in COMPUTES])
    factor = by_precision[work.compute.astype(np.intp)] * assumed.sustained_cap_fraction
    if devices.generation is not None and devices.watts_per_tflop is not None:
        by_process = [getattr(assumed, f"joules_per_tflop_{PROCESS.get(name, '5nm')}") for name in GENERATIONS]
        energy = np.array(by_process)[devices.generation.astype(np.intp)]
        if devices.graphics_die is not None:
            energy = np.where(devices.graphics_die > 0, energy * assumed.graphics_energy_factor, energy)
        budget = devices.watts_per_tflop / energy
        if devices.printed_share is not None:  # the budget says itself what little power does
            factor = factor / np.where(np.isnan(budget), 1.0, devices.printed_share)
        factor = factor * np.where(np.isnan(budget), TYPICAL_BUDGET, (1.0 + budget**-3.0) ** (-1.0 / 3.0))
    if devices.product_flop_per_s is not None:
        most = devices.product_flop_per_s / devices.peak_flop_per_s / assumed.gemm_peak_fraction
        factor = np.minimum(factor, most)
    return replace(devices, peak_flop_per_s=devices.peak_flop_per_s * factor)


def _device_seconds(
    work: StepWork, devices: Devices, element: Array, assumed: Assumptions, timed: TimedPart
) -> PartSeconds:
    """The sums of all parts of the work."""
    sums = [np.zeros(work.rows) for _ in range(5)]
    for part in work.works:
        for total, value in zip(sums, timed(part, devices, element, assumed), strict=True):
            total += value
    return sums[0], sums[1], sums[2], sums[3], sums[4]


def _tensor_parallel_s(work: StepWork, devices: Devices, compute_s: Array, assumed: Assumptions) -> Array:
    """A micro-batch's all-reduces, less what programs that cut them up hide behind the products beside them."""
    nodes = np.ceil(work.tensor_ranks / devices.per_node)
    once = all_reduce_s(work.tensor_bytes, work.tensor_ranks, nodes, devices)
    whole = np.where(work.tensor_calls > 0, work.tensor_calls * once, 0.0)
    return whole - work.tensor_overlap * assumed.tensor_overlap_fraction * np.minimum(whole, compute_s)


def _data_parallel_s(
    work: StepWork, devices: Devices, compute_s: Array, backward_s: Array, assumed: Assumptions
) -> Array:
    """Gradients, each sum beside the backward that makes them: an all-reduce beside the last one, or reduce-scatters
    beside one or all. With ZeRO-3 also the weights, gathered beside forward and backward; with ZeRO-2 those that the
    optimizer updated, beside nothing. What is beside compute is no more than compute takes: the network and the
    device are each busy once.

    Ranks of a data-parallel group sit on as many nodes as they can; the groups of a node share its network.
    """
    ranks = work.data_ranks
    nodes = np.minimum(work.nodes, ranks)
    sharers = np.maximum(np.minimum(devices.per_node, work.tensor_ranks) * (nodes > 1), 1.0)
    whole = all_reduce_s(work.gradient_bytes, ranks, nodes, devices, sharers=sharers)
    each, times = np.where(work.scatters > 0, whole / 2.0, whole), np.maximum(work.scatters, 1.0)
    gathered = work.gathered_bytes > 0
    once = all_gather_s(work.gathered_bytes, ranks, nodes, devices, sharers=sharers)
    latency = np.maximum(
        ring_latency_s(ranks, nodes), np.where(nodes > 1, devices.inter_latency_s, devices.intra_latency_s)
    )
    parameters = np.where(gathered, work.gathering_passes * (once + work.gathers * latency), 0.0)
    updated = np.where(
        work.updated_bytes > 0, all_gather_s(work.updated_bytes, ranks, nodes, devices, sharers=sharers), 0.0
    )
    beside = times * np.minimum(each, backward_s) + np.minimum(parameters, compute_s)
    beside = np.minimum(beside, compute_s)
    hidden = np.where(work.data_overlap > 0, assumed.layered_overlap_fraction, assumed.communication_overlap_fraction)
    return np.where(ranks > 1, times * each + parameters + updated - hidden * beside, 0.0)


def _hand_over_s(work: StepWork, devices: Devices) -> Array:
    """One micro-batch's activations to the next pipeline stage, forward and backward. Tensor-parallel ranks each send
    their share (Narayanan et al. 2021, section 4.1), over the node's one network or each over its own link."""
    crosses = work.hand_over_crosses > devices.per_node
    share = work.hand_over_bytes / np.where(crosses, 1.0, work.tensor_ranks)
    return np.where(work.hand_over_bytes > 0, 2.0 * send_s(share, crosses, devices), 0.0)
