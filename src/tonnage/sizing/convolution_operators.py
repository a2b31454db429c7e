"""Convolutions as matrix products, each with its norm and activation."""

from __future__ import annotations

from math import ceil

from tonnage.sizing.operators import ALIGNED_BYTES, Operator, Pass, elementwise
from tonnage.workload.shapes import Convolution, ModelShape

# Passes over a convolution's output: norm (two reads, a write) and rectifier (a read, a write); with gated activations
# (sigmoid times input, squeeze-and-excitation: pool, scale) and drop-connect seven more. The output of the convolution
# that closes a residual block is added to the block's input: three more. A shortcut has a norm alone.
NORM_PASSES, PLAIN_PASSES, GATED_PASSES, ADDED_PASSES = 3, 5, 12, 3
GATED_KERNELS = 8.0
# What cuDNN saves of a 3 x 3 convolution in 32-bit arithmetic by minimal filtering: 2.25 times fewer products with
# tiles of 2 x 2 (Lavin and Gray 2016, arXiv:1509.09308, section 4.1), less what its transforms take. Judgement, 1.5 to
# 2.25.
WINOGRAD_GAIN = 1.8
# Output channels of the narrowest tiles that a library's convolutions are made with, on tensor cores and in 32-bit
# arithmetic without them: CUTLASS lists 64 x 64 and 128 x 32 (NVIDIA/cutlass, cutlass_library/generator.py,
# `GenerateSM70_TensorOp_884`, `GenerateSM50_Simt`). What cuDNN takes is in no document.
# Judgement, 32 to 128: 1.15 to 1.6 times the operations of ResNeXt-101 32x4d in 16 bit (1.35 taken).
TENSOR_COLUMNS, PLAIN_COLUMNS = 64, 32


def convolution_operators(shape: ModelShape, span: Pass) -> list[Operator]:
    """Convolutions as implicit matrix products (rows: batch x output pixels), each with a norm and, but for shortcuts,
    an activation, a kernel each, and a third where a block's input is added (ResNet-50: 53 norms, 49 rectifiers, 16
    sums)."""
    operators: list[Operator] = []
    for conv in shape.convolutions:
        grouped = conv.groups > 1
        passes, kernels = (GATED_PASSES, GATED_KERNELS) if shape.gated_mlp else _behind(conv, span)
        rows = span.batch * float(conv.output_side**2)
        inner = conv.in_channels / conv.groups * conv.kernel**2
        saves = span.winograd and conv.kernel == 3
        outputs = rows * conv.out_channels
        inputs = rows * conv.in_channels
        operators.append(
            Operator(
                name=f"{'grouped ' if grouped else ''}convolution {conv.kernel}x{conv.kernel}",
                kind="convolution",
                count=float(conv.count),
                flop=2.0 * rows * inner * conv.out_channels,
                moved_bytes=span.element_bytes * (inputs + outputs),
                peak_share=_filled_share(conv, span) * (WINOGRAD_GAIN if saves and not grouped else 1.0),
                rows=rows,
                columns=float(conv.out_channels),
                weight_elements=inner * conv.out_channels,
            )
        )
        operators.append(
            elementwise(
                "norm and activation",
                count=float(conv.count),
                moved_bytes=span.element_bytes * outputs * passes,
                kernels=kernels,
            )
        )
        if span.transposed:  # tensor cores want channels last: input and output are turned round and back
            moved = 2.0 * span.element_bytes * (inputs + outputs)
            operators.append(elementwise("layout", count=float(conv.count), moved_bytes=moved, kernels=2))
    return operators


def _filled_share(conv: Convolution, span: Pass) -> float:
    """Share of the products that tiles make which belong to a group of the convolution; 1 for a dense one.

    Each group is a matrix product of its own. Where a group has fewer output channels than a tile, the tile goes over
    the inputs of each of its groups in turn, and multiplies all its columns (NVIDIA/cutlass,
    examples/42_ampere_tensorop_group_conv and conv/convolution.h `implicit_gemm_k_iterations`: iterations times tile
    over channels a group). Tensor cores read inputs 16 bytes at once, so that a group of fewer is padded to them (cuDNN
    7.3.0, release notes: channels are padded to multiples of 8 in 16 bit). A library that multiplied the whole block
    diagonal would do `groups` times the work, so that no more is counted; for 3 x 3 in 32 bit it would save what dense
    ones save. A convolution of one input channel a group has kernels without tiles (cuDNN 7.3.0 and 8.0.0, CUTLASS
    `GroupMode::kDepthwise`), and is bound by what it moves.
    """
    inputs, outputs = conv.in_channels / conv.groups, conv.out_channels / conv.groups
    if conv.groups == 1 or inputs == 1:
        return 1.0
    if not span.tensor_cores:
        dense = WINOGRAD_GAIN / conv.groups if conv.kernel == 3 else 1.0 / conv.groups
        return max(min(outputs / PLAIN_COLUMNS, 1.0), dense)
    step = ALIGNED_BYTES / span.element_bytes
    return max(min(outputs / TENSOR_COLUMNS, 1.0) * inputs / (step * ceil(inputs / step)), 1.0 / conv.groups)


def _behind(conv: Convolution, span: Pass) -> tuple[int, float]:
    """Passes over the output of a convolution without gates, and the kernels that take them.

    What a sum moves is counted in training alone: the share of this traffic that engines leave (`elementwise_left`) is
    fitted without it.
    """
    if conv.residual == "shortcut":
        return NORM_PASSES, 1.0
    if conv.residual == "closing":
        return PLAIN_PASSES + (ADDED_PASSES if span.training else 0), 3.0
    return PLAIN_PASSES, 2.0
