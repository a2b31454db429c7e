"""Convolutions as matrix products, each with its norm and activation."""

from __future__ import annotations

from tonnage.sizing.operators import Operator, Pass, elementwise
from tonnage.workload.shapes import ModelShape

# Passes over a convolution's output: norm (two reads, a write) and rectifier (a read, a write); with gated activations
# (sigmoid times input, squeeze-and-excitation: pool, scale) and drop-connect seven more. The 1 x 1 convolution that
# ends a bottleneck block is added to the block's input: three more.
PLAIN_PASSES, GATED_PASSES, ADDED_PASSES = 5, 12, 3
# What cuDNN saves of a 3 x 3 convolution in 32-bit arithmetic by minimal filtering: 2.25 times fewer products with
# tiles of 2 x 2 (Lavin and Gray 2016, arXiv:1509.09308, section 4.1), less what its transforms take. Judgement, 1.5 to
# 2.25.
WINOGRAD_GAIN = 1.8


def convolution_operators(shape: ModelShape, span: Pass) -> list[Operator]:
    """Convolutions as implicit matrix products (rows: batch x output pixels), each with a norm and an activation, a
    kernel each, and a third where a block's input is added (ResNet-50: 53 norms, 49 rectifiers, 16 sums)."""
    operators: list[Operator] = []
    for conv in shape.convolutions:
        passes = GATED_PASSES if shape.gated_mlp else PLAIN_PASSES
        added = not shape.gated_mlp and conv.kernel == 1 and conv.out_channels > conv.in_channels
        if span.training and added:
            passes += ADDED_PASSES
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
                kernels=8.0 if shape.gated_mlp else 3.0 if added else 2.0,
            )
        )
        if span.transposed:  # tensor cores want channels last: input and output are turned round and back
            moved = 2.0 * span.element_bytes * (inputs + outputs)
            operators.append(elementwise("layout", count=float(conv.count), moved_bytes=moved, kernels=2))
    return operators
