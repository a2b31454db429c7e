"""What a forward pass of convolutions costs, as papers count it."""

from __future__ import annotations

from collections.abc import Iterable

from tonnage.workload.shapes import Convolution


def convolution_macs(convolutions: Iterable[Convolution]) -> int:
    """Multiply-accumulates of the convolutions for one image: k² · C_in/groups · C_out · side² each."""
    return sum(
        part.count * part.kernel**2 * (part.in_channels // part.groups) * part.out_channels * part.output_side**2
        for part in convolutions
    )
