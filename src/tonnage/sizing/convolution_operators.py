"""Convolutions as matrix products, each with its norm and activation."""

from __future__ import annotations

from tonnage.sizing.operators import Operator, Pass, elementwise
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


def convolution_operators(shape: ModelShape, span: Pass) -> list[Operator]:
    """Convolutions as implicit matrix products (rows: batch x output pixels), each with a norm and, but for shortcuts,
    an activation, a kernel each, and a third where a block's input is added (ResNet-50: 53 norms, 49 rectifiers, 16
    sums)."""
    operators: list[Operator] = []
    for conv in shape.convolutions:
        passes, kernels = (GATED_PASSES, GATED_KERNELS) if shape.gated_mlp else _behind(conv, span)
        rows = span.batch * float(conv.output_side**2)
        inner = conv.in_channels / conv.groups * conv.kernel**2
        outputs = rows * conv.out_channels
        inputs = rows * conv.in_channels
        operators.append(
            Operator(
                name=f"convolution {conv.kernel}x{conv.kernel}",
                kind="convolution",
                count=float(conv.count),
                flop=2.0 * rows * inner * conv.out_channels,
                moved_bytes=span.element_bytes * (inputs + outputs),
                peak_share=WINOGRAD_GAIN if span.winograd and conv.kernel == 3 and conv.groups == 1 else 1.0,
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
