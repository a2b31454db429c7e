"""Operators under an engine -> seconds: roofline per kernel, a floor per kernel, the host where it bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tonnage.sizing.devices import Devices
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Num
from tonnage.sizing.operators import Operator
from tonnage.sizing.rates import output_tiles, smooth_max
from tonnage.sizing.stages import Stage
from tonnage.values import dataclass

SHARPNESS = 3.0  # how sharply compute- and memory-bound times join (fit to measured matrix products)
ATTENTION_HALF_TOKENS = 128.0  # query length at which the attention kernel reaches half its rate


# The device that engines' figures of kernels are given for (A100); others by the ratio of clocks and multiprocessors.
REFERENCE_CLOCK_HZ = 1.41e9
REFERENCE_MULTIPROCESSORS = 108.0


def clock_share(devices: Devices) -> Num:
    """How much longer a kernel's fixed cycles take than on A100; 1 where no clock is known."""
    if devices.clock_hz is None:
        return 1.0
    return np.where(np.isnan(devices.clock_hz), 1.0, REFERENCE_CLOCK_HZ / devices.clock_hz)


def width_share(devices: Devices) -> Num:
    """Multiprocessors beside those of A100; 1 where they are not known."""
    if devices.clock_hz is None or devices.multiprocessor_hz is None:
        return 1.0
    share = devices.multiprocessor_hz / devices.clock_hz / REFERENCE_MULTIPROCESSORS
    return np.where(np.isnan(share), 1.0, share)


def tiles_to_half(devices: Devices, engine: Engine) -> Num:
    """Output tiles at which a product reaches half its rate: in proportion to the multiprocessors they fill."""
    return engine.tiles_to_half * width_share(devices)


# A grouped product splits no inner length, so the few tiles of a few experts keep few multiprocessors reading: the
# share of the bandwidth is x / sqrt(x^2 + 0.75^2) of what many reach, x tiles a multiprocessor. Measured on an H100
# (benchmarks/results/gpu_kernels_*.csv, «grouped gemm»): 48 tiles reach 0.23 of the bandwidth, 224 0.57, 768 0.77.
STREAMING_TILES = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """What an operator's time on its devices takes from neither's engine: worked out once where many figures are tried.

    `floor`: kernels times the length of their fixed cycles; `width`: multiprocessors beside those of A100; `tiles` of
    the output; `streaming`: share of the bandwidth that they draw; `rising`: share of the rate of attention.
    """

    floor: Num
    width: Num = 1.0
    tiles: Num = 1.0
    streaming: Num = 1.0
    rising: Num = 1.0


def operator_scales(operator: Operator, devices: Devices) -> Scales:
    """The scales of `operator` on `devices`."""
    floor = operator.kernels * clock_share(devices)
    if operator.kind == "elementwise":
        return Scales(floor=floor)
    if operator.kind == "attention":
        query = np.asarray(operator.query_length, dtype=np.float64)
        rising = np.where(query > 1, query / (query + ATTENTION_HALF_TOKENS), 1.0)  # a decode step streams the cache
        return Scales(floor=floor, rising=rising * filled_share(operator.blocks, devices))
    return Scales(
        floor=floor, width=width_share(devices) * operator.ramp, streaming=streaming_share(operator, devices),
        tiles=output_tiles(operator.rows, operator.columns, operator.groups),
    )  # fmt: skip


def filled_share(blocks: Num, devices: Devices) -> Num:
    """Share of the multiprocessors that have one of so many thread blocks; 1 where they are not counted (0)."""
    counted = np.asarray(blocks, dtype=np.float64)
    if not np.any(counted > 0):
        return 1.0
    share = np.minimum(counted / (REFERENCE_MULTIPROCESSORS * width_share(devices)), 1.0)
    return np.where(counted > 0, share, 1.0)


def streaming_share(operator: Operator, devices: Devices) -> Num:
    """Share of the bandwidth that the tiles of a grouped product can draw; 1 for a product alone, which is split."""
    if np.max(operator.groups) <= 1.0:
        return 1.0
    if devices.clock_hz is None or devices.multiprocessor_hz is None:
        width: Num = REFERENCE_MULTIPROCESSORS
    else:
        known = devices.multiprocessor_hz / devices.clock_hz
        width = np.where(np.isnan(known), REFERENCE_MULTIPROCESSORS, known)
    tiles = output_tiles(operator.rows, operator.columns, operator.groups)
    return np.where(np.asarray(operator.groups) > 1.0, tiles / np.hypot(tiles, STREAMING_TILES * width), 1.0)


def fused_share(operator: Operator, engine: Engine) -> float:
    """Share of an element-wise operator that fusion leaves; 1 for others."""
    if operator.kind != "elementwise":
        return 1.0
    if engine.spelt_out and operator.scores:  # counted as the program's author wrote them
        return 1.0
    return engine.convolution_elementwise_left if _behind_convolution(operator) else engine.elementwise_left


def kernels_left(operator: Operator, engine: Engine) -> float:
    """Share of an operator's kernels that fusion leaves; all where they were counted as the program's author wrote
    them."""
    counted = engine.spelt_out or (engine.fused_blocks and not _behind_convolution(operator))
    return 1.0 if counted else fused_share(operator, engine)


def _behind_convolution(operator: Operator) -> bool:
    return operator.name == "norm and activation"


def engine_operator_s(operator: Operator, devices: Devices, engine: Engine, scales: Scales | None = None) -> Num:
    """Device seconds of one time of `operator`: (compute^3 + memory^3)^(1/3) + floor per kernel. `scales`: those of
    `operator_scales`, where they are at hand."""
    scales = operator_scales(operator, devices) if scales is None else scales
    memory_s = operator.moved_bytes / (devices.bandwidth_bytes_per_s * engine.memory_fraction)
    floor_s = engine.kernel_floor_us * 1e-6 * scales.floor
    if operator.kind == "elementwise":
        return memory_s * fused_share(operator, engine) + floor_s * kernels_left(operator, engine)
    fraction: Num
    if operator.kind == "attention":
        fraction = engine.attention_fraction * scales.rising
    else:
        best = engine.convolution_fraction if operator.kind == "convolution" else engine.gemm_fraction
        half = engine.convolution_tiles_to_half if operator.kind == "convolution" else engine.tiles_to_half
        fraction = best * scales.tiles / (scales.tiles + half * scales.width)
        memory_s = memory_s / scales.streaming
    compute_s = operator.flop / (devices.peak_flop_per_s * fraction)
    return smooth_max(compute_s, memory_s, SHARPNESS) + floor_s


def host_launches(operators: Iterable[Operator], engine: Engine) -> Num:
    """Launches of the operators once each, after fusion, in the host time of a module's: a kernel for which no module
    is called counts as its part of that (`Operator.dispatch_share`)."""
    total: Num = np.float64(0.0)
    for op in operators:
        total = total + np.asarray(op.count) * op.kernels * op.dispatch_share * kernels_left(op, engine)
    return total


def engine_pass_s(stages: Sequence[Stage], devices: Devices, engine: Engine, host_factor: Num = 1.0) -> Num:
    """Seconds of one pass through `stages`, without what a call costs: the device, or the host where it is slower.

    `host_factor`: how much longer the hosts of these devices take for a launch.
    """
    device: Num = np.float64(0.0)
    host: Num = np.float64(0.0)
    for stage in stages:
        for op in stage.operators:
            device = device + stage.repeats * op.count * engine_operator_s(op, devices, engine)
        host = host + stage.repeats * host_launches(stage.operators, engine) * engine.host_us_per_kernel * 1e-6
    return np.maximum(device, host * host_factor) if engine.host_us_per_kernel else device
