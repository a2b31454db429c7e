"""Seconds that one kind of operator takes in a micro-batch of a training step, on the devices of many rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import GENERATIONS, Devices
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.operators import ALIGNED_BYTES
from tonnage.sizing.rates import operator_s, output_tiles
from tonnage.sizing.training_work import COMPILED, HAND_FUSED, UNFUSED, OperatorWork
from tonnage.values import dataclass

# Passes over those counted, for UNFUSED, COMPILED, HAND_FUSED, IMAGES in `training_work`; one for APART.
TRAFFIC = (
    "unfused_traffic_factor", "compiled_traffic_fraction", "fused_traffic_fraction", "convolution_traffic_factor"
)  # fmt: skip
VECTOR_BYTES = 4.0
STRIDED = 6.0  # instructions an element takes out of order, over those of one in a vector: judgement, 3 to 12
# FLOP a multiprocessor does in a cycle in products with rows that start at odd multiples of 2 bytes: half of an A100's,
# for a vocabulary of 50,304 in place of 50,257 makes GPT-2 on it a quarter faster (x.com/karpathy/status/
# 1621578354024677377), or an eighth: 112,046 -> 127,345 tokens/s, compiled, PyTorch 2.6 (rasbt/LLMs-from-scratch,
# ch05/10_llm-training-speed). Known: such rows cannot be read asynchronously, 4 bytes being the least (PTX,
# `cp.async`), which concerns both products of backward; why the forward one, whose odd rows are its output, is slow is
# not known. Judgement, 512 to 1,400; boards whose tensor cores do no more are not slowed.
COPIED_BYTES, UNCOPIED_FLOP = 4, 1024.0
# Host time of a kernel that backward launches, over one of forward: autograd calls it without Python. On an H100 eager
# forward takes 60 to 70 % of the host's step (benchmarks/results/gpu_models_training_h100-80gb-sxm_2026-11-22.csv: a
# step recomputed in full against the same without), with twice the kernels in backward.
BACKWARD_LAUNCH = 0.25

# Of one micro-batch, a row each: forward, backward and recomputed forward on the device, kernels the host launches for
# it, and the least seconds that its products can take.
PartSeconds = tuple[Array, Array, Array, Array, Array]
TimedPart = Callable[[OperatorWork, Devices, Array, Assumptions], PartSeconds]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartScales:
    """What a part's time takes from neither assumptions nor the rate its devices hold: worked out once where many are
    tried. `devices`: those of its entries, their rate not yet known."""

    devices: Devices
    rows: int
    width: Array  # bytes of an element
    often: Num  # times in a micro-batch
    least: Num  # seconds of one time at the most its device reaches; 0 where that is bytes or not known
    floor: (
        Array  # the same of a micro-batch with its backward, of each row, for the FLOP that a MFU counts: all of them
    )
    tiles: Num | None  # of the output of a product
    older: NDArray[np.bool_] | None  # kernels that use the products of the generation before


def part_scales(part: OperatorWork, devices: Devices, element: Array) -> PartScales:
    """The scales of a part on the devices of all rows."""
    owned = part.owner is None
    there = devices if owned else _of_owners(devices, part.owner)
    operator, often = part.operator, part.times * part.operator.count
    share = np.asarray(operator.peak_share)
    least = _least_s(part, there, share)
    counted = _least_s(part, there, np.minimum(share, 1.0))
    product = operator.kind in ("gemm", "convolution")
    return PartScales(
        devices=there,
        rows=len(element),
        width=element if owned else element[part.owner],
        often=often,
        least=least,
        floor=_by_row(often * counted * (1.0 + part.backward + part.again), part, len(element)),
        tiles=output_tiles(operator.rows, operator.columns) if product else None,
        older=_older(part, there),
    )


def part_seconds(
    part: OperatorWork, devices: Devices, element: Array, assumed: Assumptions, scales: PartScales | None = None
) -> PartSeconds:
    """One part of the work on the devices of all rows. Of the devices only the peak follows from assumptions.
    `scales`: those of `part_scales`, where they are at hand."""
    scales = part_scales(part, devices, element) if scales is None else scales
    peak = devices.peak_flop_per_s if part.owner is None else devices.peak_flop_per_s[part.owner]
    if scales.older is not None:
        peak = peak * np.where(scales.older, assumed.training_attention_hopper_share, 1.0)
    if part.operator.kind == "gemm" and scales.devices.multiprocessor_hz is not None:
        narrow = np.asarray(part.operator.row_alignment) < COPIED_BYTES
        most = np.where(narrow, UNCOPIED_FLOP * scales.devices.multiprocessor_hz, np.inf)
        peak = np.fmin(peak, most)
    there = replace(scales.devices, peak_flop_per_s=peak)
    once = _fused(part, operator_s(part.operator, there, assumed, scales.tiles), there, scales.width, assumed)
    seconds = scales.often * np.maximum(once, scales.least)
    passes = 1.0 + BACKWARD_LAUNCH * part.backward + part.again
    merged = 1.0 - np.isin(part.fused, (COMPILED, HAND_FUSED)) * (1.0 - assumed.compiled_kernel_fraction)
    launches = scales.often * part.operator.kernels * passes * merged
    forward, backward, again, kernels = (
        _by_row(value, part, scales.rows)
        for value in (seconds, seconds * part.backward, seconds * part.again, launches)
    )
    return forward, backward, again, kernels, scales.floor


def _least_s(part: OperatorWork, devices: Devices, peak_share: Num) -> Num:
    """Seconds of one time of an operator at the most its device reaches; 0 where that is bytes or not known."""
    if devices.product_flop_per_s is None or part.operator.kind == "elementwise":
        return 0.0
    return part.operator.flop / (devices.product_flop_per_s * peak_share)


def _of_owners(devices: Devices, owner: NDArray[np.intp] | None) -> Devices:
    """The columns that an operator's time reads, one entry for each of its owners."""
    read = ("peak_flop_per_s", "bandwidth_bytes_per_s", "generation", "multiprocessor_hz", "product_flop_per_s")
    columns = {name: getattr(devices, name) for name in read}
    taken: dict[str, Any] = {name: None if column is None else column[owner] for name, column in columns.items()}
    return replace(devices, **taken)


def _older(part: OperatorWork, devices: Devices) -> NDArray[np.bool_] | None:
    """Attention kernels reach a smaller share of Hopper's peak where they use the products of the generation before;
    a vendor's own kernels are written for it. So do products with rows that do not start at 16 bytes, as Hopper's own
    copies between its memories ask (CUDA programming guide, tensor memory access)."""
    kind = part.operator.kind
    if kind not in ("attention", "gemm") or devices.generation is None:
        return None
    aligned = np.asarray(part.operator.row_alignment) >= ALIGNED_BYTES
    own = np.asarray(part.fused) == HAND_FUSED if kind == "attention" else aligned
    return np.asarray((devices.generation == GENERATIONS.index("Hopper")) & ~own, dtype=np.bool_)


def _fused(part: OperatorWork, seconds: Num, devices: Devices, element: Array, assumed: Assumptions) -> Num:
    """Element-wise work of an eager framework takes more passes than counted, merged work fewer. Besides moving bytes
    its kernels issue instructions for each element, which takes the longer the fewer multiprocessors a board has for
    its bandwidth; a library's kernels take two 16-bit elements at a time."""
    if part.operator.kind != "elementwise":
        return seconds
    factors = np.array([*(getattr(assumed, name) for name in TRAFFIC), 1.0])
    issued: Num = 0.0
    if devices.multiprocessor_hz is not None:
        wide = np.where(np.asarray(part.fused) == UNFUSED, element, VECTOR_BYTES)
        elements = part.operator.moved_bytes / wide + STRIDED * part.operator.strided_elements
        issued = elements * assumed.issue_cycles_per_element / devices.multiprocessor_hz
        issued = np.where(np.isnan(issued), 0.0, issued)
    return (seconds + issued) * factors[np.asarray(part.fused).astype(np.intp)]


def _by_row(value: Num | np.ndarray, part: OperatorWork, rows: int) -> Array:
    if part.owner is None:
        return np.asarray(value, dtype=np.float64)
    weights = value if np.shape(value) == part.owner.shape else np.broadcast_to(value, part.owner.shape)
    return np.asarray(np.bincount(part.owner, weights=weights, minlength=rows), dtype=np.float64)
