"""Convolutions in groups: what tiles multiply beside the groups' own products, by figure and bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.sizing.calibrated_passes import on

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.convolution_operators import convolution_operators
from tonnage.sizing.engines import PRIORS
from tonnage.sizing.inference_pass import pass_work
from tonnage.sizing.operators import Operator, Pass
from tonnage.sizing.rates import operator_s, total_flop
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.known import find_model
from tonnage.workload.shapes import Convolution, ModelShape

RESNEXT = find_model("resnext-101-32x4d")
HALF = Pass(batch=32.0, query=1.0, keys=1.0)
TF32 = replace(HALF, element_bytes=4.0)
PLAIN = replace(TF32, tensor_cores=False, winograd=True)


def of(shape: ModelShape, span: Pass) -> list[Operator]:
    """The convolutions alone, in the order of the shape."""
    return [op for op in convolution_operators(shape, span) if op.kind == "convolution"]


def one(channels: int, groups: int, kernel: int, span: Pass) -> Operator:
    """A convolution of as many channels in as out, on 14 x 14 pixels."""
    alone = Convolution(in_channels=channels, out_channels=channels, kernel=kernel, output_side=14, groups=groups)
    return of(replace(RESNEXT, convolutions=(alone,)), span)[0]


@pytest.mark.parametrize(
    ("span", "times"),
    [
        (HALF, [32, 8, 4, 2]),  # 64 columns; 4 channels padded to 8; no more than 32 groups
        (TF32, [16, 8, 4, 2]),  # 64 columns; 4 channels are 16 bytes
        (PLAIN, [8, 4, 2, 1]),  # 32 columns
    ],
)
def test_groups_of_4_to_32_channels_leave_tiles_part_empty(span: Pass, times: list[int]) -> None:
    """ResNeXt 32x4d has 4, 8, 16 and 32 channels a group in its four stages."""
    shares = dict.fromkeys(1.0 / float(op.peak_share) for op in of(RESNEXT, span) if op.name.startswith("grouped"))
    assert list(shares) == pytest.approx(times)


def test_the_network_multiplies_a_third_more_than_it_counts() -> None:
    """8.0 G multiply-adds an image are counted; 1.35 times as many in 16 bit, 1.26 in TF32, 1.10 in 32 bit."""
    counted = float(total_flop(convolution_operators(RESNEXT, HALF)))
    assert counted / 32 == pytest.approx(16.0e9, rel=0.01)
    for span, more in ((HALF, 1.35), (TF32, 1.26), (replace(PLAIN, winograd=False), 1.10)):
        done = sum(float(op.count * op.flop / op.peak_share) for op in of(RESNEXT, span))
        assert done / counted == pytest.approx(more, abs=0.01)


def test_a_served_pass_multiplies_as_much() -> None:
    """What engines are timed by is the work of whole tiles, in 32 bit without what dense 3 x 3 ones save."""
    for precision, span in (("fp16", HALF), ("tf32", TF32), ("fp32", PLAIN)):
        work = pass_work(RESNEXT, on("A100-80GB-SXM", precision), FORMATS[precision], PRIORS["graph"], batch=32.0,
                         query=1.0, keys=1.0)  # fmt: skip
        served = sum(
            float(np.max(op.count * op.flop))
            for stage in work.stages for op in stage.operators if op.name.startswith("grouped")
        )  # fmt: skip
        expected = sum(op.count * op.flop / op.peak_share for op in of(RESNEXT, span) if op.name.startswith("grouped"))
        assert served == pytest.approx(float(expected))


@pytest.mark.parametrize("span", [HALF, TF32, PLAIN, replace(HALF, element_bytes=1.0)])
@pytest.mark.parametrize("kernel", [1, 3, 7])
def test_a_grouped_convolution_takes_its_own_work_at_least_and_the_dense_one_at_most(span: Pass, kernel: int) -> None:
    """Bounds for groups of 1 to all channels: its bytes, its FLOP at the peak, the dense one of the same channels."""
    devices, assumed = on("A100-80GB-SXM", "fp16"), Assumptions()
    for channels in (48, 64, 240, 1024):
        dense = operator_s(one(channels, 1, kernel, span), devices, assumed)
        for groups in (g for g in range(2, channels + 1) if channels % g == 0):
            operator = one(channels, groups, kernel, span)
            seconds = operator_s(operator, devices, assumed)
            assert seconds >= operator.flop / devices.peak_flop_per_s
            assert seconds >= operator.moved_bytes / devices.bandwidth_bytes_per_s
            assert seconds <= dense * (1.0 + 1e-9)


def test_a_channel_a_group_and_no_groups_fill_what_they_take() -> None:
    """Depthwise convolutions have kernels without tiles; groups as wide as a tile fill it."""
    assert float(one(512, 512, 3, HALF).peak_share) == 1.0
    assert float(one(512, 1, 3, HALF).peak_share) == 1.0
    assert float(one(512, 8, 3, HALF).peak_share) == 1.0
    assert float(one(512, 16, 3, PLAIN).peak_share) == 1.0
