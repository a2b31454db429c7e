"""Residual networks as lists of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from tonnage.workload.shapes import Convolution, Residual

Block = Literal["basic", "bottleneck"]
STEM_CHANNELS = 64
BOTTLENECK_EXPANSION = 4


def resnet_convolutions(
    depths: Sequence[int],
    widths: Sequence[int],
    block: Block,
    *,
    image_side: int = 224,
    image_channels: int = 3,
    stem_channels: int = STEM_CHANNELS,
    groups: int = 1,
    narrowing: int = BOTTLENECK_EXPANSION,
) -> tuple[Convolution, ...]:
    """Convolutions of a residual network, in order; equal ones are one entry with a count.

    `widths` are the output channels of each stage. The stem is 7 x 7 with stride 2, then a stride-2 max pool;
    every stage after the first halves the side, in the 3 x 3 convolution of a bottleneck («v1.5»). A bottleneck is
    `narrowing` times narrower inside, its 3 x 3 convolution has `groups` (32 and 2: ResNeXt 32x4d, Xie et al. 2016,
    arXiv:1611.05431, Table 1; 1 and 2: a wide residual network).
    Source: He et al. 2015, arXiv:1512.03385, Table 1; stride as in torchvision and NVIDIA ResNet-50 v1.5.
    """
    side = _halved(image_side)
    convolutions = [Convolution(in_channels=image_channels, out_channels=stem_channels, kernel=7, output_side=side)]
    side = _halved(side)  # the max pool
    channels = stem_channels
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        input_side, side = side, side if stage == 0 else _halved(side)
        convolutions += _block(block, channels, width, input_side, side, groups, narrowing)
        convolutions += _repeated(_block(block, width, width, side, side, groups, narrowing), depth - 1)
        channels = width
    return tuple(convolutions)


def resnet_widths(block: Block, stages: int = 4) -> tuple[int, ...]:
    """Output channels of each stage in the paper: 64, 128, ... for basic blocks, 4 x that for bottlenecks.

    >>> resnet_widths("bottleneck")
    (256, 512, 1024, 2048)
    """
    expansion = BOTTLENECK_EXPANSION if block == "bottleneck" else 1
    return tuple(STEM_CHANNELS * expansion * 2**stage for stage in range(stages))


def resnet_sizes(
    depths: Sequence[int],
    block: Block,
    *,
    image_side: int,
    widths: tuple[int, ...] = (),
    stem_channels: int = STEM_CHANNELS,
    groups: int = 1,
    narrowing: int = BOTTLENECK_EXPANSION,
) -> dict[str, Any]:
    """Fields of a residual network's shape: `layers` counts blocks, `hidden` is the pooled width."""
    widths = widths or resnet_widths(block, len(depths))
    convolutions = resnet_convolutions(
        depths, widths, block, image_side=image_side, stem_channels=stem_channels, groups=groups, narrowing=narrowing
    )
    zero = dict.fromkeys(("heads", "kv_heads", "head_dim", "ffn", "vocab"), 0)
    return {**zero, "layers": sum(depths), "hidden": widths[-1], "convolutions": convolutions}


def _halved(side: int) -> int:
    """Output side of a stride-2 convolution or pool with «same» padding."""
    return (side + 1) // 2


def _block(
    block: Block, channels: int, width: int, input_side: int, side: int, groups: int, narrowing: int
) -> list[Convolution]:
    """One residual block; a 1 x 1 shortcut is added where width or side changes."""
    layers: list[tuple[int, int, int, int, int, Residual]]
    if block == "basic":
        layers = [(channels, width, 3, side, 1, "none"), (width, width, 3, side, 1, "closing")]
    else:
        inner = width // narrowing
        layers = [
            (channels, inner, 1, input_side, 1, "none"),
            (inner, inner, 3, side, groups, "none"),
            (inner, width, 1, side, 1, "closing"),
        ]
    if channels != width or input_side != side:
        layers.append((channels, width, 1, side, 1, "shortcut"))
    return [
        Convolution(
            in_channels=inputs, out_channels=outputs, kernel=kernel, output_side=output_side, groups=split,
            residual=residual,
        )
        for inputs, outputs, kernel, output_side, split, residual in layers
    ]  # fmt: skip


def _repeated(block: list[Convolution], times: int) -> list[Convolution]:
    return [replace(part, count=times) for part in block if times > 0]
