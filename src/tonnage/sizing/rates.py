"""Operators -> seconds: each costs max(compute, memory) with an efficiency that grows with its size, plus a floor."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Num
from tonnage.sizing.operators import TILE, Operator


def smooth_max(first: Num, second: Num, sharpness: float) -> Num:
    """(aᵖ + bᵖ)^(1/p): the slower of two overlapping streams, rounded where they meet."""
    if sharpness == 3.0:  # products and a cube root take a third of the time of powers
        return np.cbrt(np.asarray(first) * first * first + np.asarray(second) * second * second)
    return (np.asarray(first) ** sharpness + np.asarray(second) ** sharpness) ** (1.0 / sharpness)


def output_tiles(rows: Num, columns: Num, groups: Num = 1.0) -> Num:
    """Tiles of 128 x 128 outputs of `groups` products, rounded up, as GPU matrix libraries cut them."""
    return groups * np.ceil(np.asarray(rows) / TILE) * np.ceil(np.asarray(columns) / TILE)


def operator_s(operator: Operator, devices: Devices, assumed: Assumptions, tiles: Num | None = None) -> Num:
    """Seconds for one time of `operator` on each device, without the host's launch cost. `tiles`: those of its output,
    where they are at hand."""
    memory_s = operator.moved_bytes / (devices.bandwidth_bytes_per_s * assumed.memory_peak_fraction)
    floor_s = operator.kernels * assumed.kernel_floor_us * 1e-6
    if operator.kind == "elementwise":
        return memory_s + floor_s
    fraction: Num
    if operator.kind == "attention":
        query = np.asarray(operator.query_length, dtype=np.float64)
        fraction = assumed.attention_peak_fraction * query / (query + assumed.attention_half_length_tokens)
    else:
        ceiling = assumed.convolution_peak_fraction if operator.kind == "convolution" else assumed.gemm_peak_fraction
        tiles = output_tiles(operator.rows, operator.columns) if tiles is None else tiles
        fraction = ceiling * (tiles / (tiles + assumed.tiles_to_half_rate))  # share of the rate of large outputs
    compute_s = operator.flop / (devices.peak_flop_per_s * operator.peak_share * fraction)
    return smooth_max(compute_s, memory_s, assumed.roofline_sharpness) + floor_s


def total_s(operators: Iterable[Operator], devices: Devices, assumed: Assumptions) -> Num:
    """Device seconds of all operators, counts included."""
    return sum((op.count * operator_s(op, devices, assumed) for op in operators), start=np.float64(0.0))


def total_flop(operators: Iterable[Operator]) -> Num:
    """FLOP of all operators, counts included."""
    return sum((op.count * op.flop for op in operators), start=np.float64(0.0))


def launch_s(operators: Iterable[Operator], assumed: Assumptions, *, compiled: bool) -> Num:
    """Seconds the host needs to launch the kernels once: the floor of an eager framework."""
    kernels = sum((np.asarray(op.count) * op.kernels for op in operators), start=np.float64(0.0))
    fraction = assumed.compiled_kernel_fraction if compiled else 1.0
    return kernels * fraction * assumed.host_launch_us_per_kernel * 1e-6
