"""EfficientNet as a list of convolutions: the published baseline, scaled in width, depth and image side."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil
from typing import Any

from tonnage.workload.shapes import Convolution, ModelShape

# Expansion, output channels, repeats, stride, kernel of each stage of B0 (Tan and Le 2019, arXiv:1905.11946, table 1).
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
# Width, depth, image side of B0 to B7 (the authors' reference implementation).
SCALES = (
    (1.0, 1.0, 224),
    (1.0, 1.1, 240),
    (1.1, 1.2, 260),
    (1.2, 1.4, 300),
    (1.4, 1.8, 380),
    (1.6, 2.2, 456),
    (1.8, 2.6, 528),
    (2.0, 3.1, 600),
)
STEM, HEAD = 32, 1280


def efficientnet_shape(variant: int, *, image_side: int = 0) -> ModelShape:
    """EfficientNet-B`variant`; `image_side` 0: the published one. Squeeze-and-excitation is left out (its products
    are tiny; the pass over the activations it adds counts as one more point-wise step)."""
    width, depth, side = SCALES[variant]
    side = ceil((image_side or side) / 2)
    stem, head = _rounded(STEM * width), _rounded(HEAD * width)
    found = [Convolution(in_channels=3, out_channels=stem, kernel=3, output_side=side)]
    channels = stem
    for expansion, outputs, repeats, stride, kernel in STAGES:
        outputs = _rounded(outputs * width)
        for turn in range(ceil(repeats * depth)):
            here = side if turn or stride == 1 else ceil(side / 2)
            found += _block(channels, outputs, expansion, kernel, side, here)
            side, channels = here, outputs
    found.append(Convolution(in_channels=channels, out_channels=head, kernel=1, output_side=side))
    zero: dict[str, Any] = dict.fromkeys(("heads", "kv_heads", "head_dim", "ffn", "vocab"), 0)
    return ModelShape(
        name=f"efficientnet-b{variant}",
        architecture="convolution",
        layers=sum(ceil(stage[2] * depth) for stage in STAGES),
        hidden=head,
        classes=1000,
        convolutions=_counted(found),
        gated_mlp=True,  # swish and squeeze-and-excitation: gates over every activation
        **zero,
    )


def _counted(found: list[Convolution]) -> tuple[Convolution, ...]:
    """Equal convolutions as one with a count."""
    return tuple(replace(one, count=one.count * times) for one, times in Counter(found).items())


def _block(channels: int, outputs: int, expansion: int, kernel: int, side: int, here: int) -> list[Convolution]:
    """Expand, depth-wise, project."""
    inner = channels * expansion
    wide = [Convolution(in_channels=channels, out_channels=inner, kernel=1, output_side=side)] if expansion > 1 else []
    return [
        *wide,
        Convolution(in_channels=inner, out_channels=inner, kernel=kernel, output_side=here, groups=inner),
        Convolution(in_channels=inner, out_channels=outputs, kernel=1, output_side=here),
    ]


def _rounded(channels: float) -> int:
    """To a multiple of 8, never down by more than 10 %."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near
