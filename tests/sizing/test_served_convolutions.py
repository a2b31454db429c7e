"""What programs do around convolutions of images, by bytes, kernels and operations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.sizing.calibrated_passes import on

from tonnage.sizing.engines import PRIORS, Engine
from tonnage.sizing.inference_pass import pass_work
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.known import find_model

RESNET = find_model("resnet50")


def total(name: str, column: str, *, precision: str = "fp16", gpu: str = "A100-80GB-SXM", engine: Engine | None = None,
          norms_apart: bool = False, channels_last: bool | None = True) -> float:  # fmt: skip
    """The sum of a column over all operators whose name begins so, one pass of 64 images."""
    work = pass_work(RESNET, on(gpu, precision), FORMATS[precision], engine or PRIORS["graph"], batch=64.0, query=1.0,
                     keys=1.0, norms_apart=norms_apart, channels_last=channels_last)  # fmt: skip
    return sum(
        float(np.max(stage.repeats * op.count * getattr(op, column)))
        for stage in work.stages for op in stage.operators if op.name.startswith(name)
    )  # fmt: skip


def test_norms_apart_take_passes_and_kernels_of_their_own() -> None:
    """One kernel behind a convolution moves 2.5 times its output; norm, rectifier and sum apart 5.5 times."""
    for column, more in (("moved_bytes", 2.2), ("kernels", 118 / 53)):
        apart = total("norm and activation", column, norms_apart=True)
        assert apart == pytest.approx(more * total("norm and activation", column))


@pytest.mark.parametrize(
    ("precision", "channels_last", "millions"), [("fp32", None, 23.5), ("tf32", False, 23.5), ("fp16", True, 11.3)]
)
def test_tensorflow_lays_out_weights_for_its_library_in_every_pass(
    precision: str, channels_last: bool | None, millions: float
) -> None:
    """ResNet-50 has 23.5 million weights in convolutions, 11.3 of them beyond 1 x 1: read and written once a pass."""
    element = FORMATS[precision].element_bytes
    moved = total("weight layout", "moved_bytes", precision=precision, channels_last=channels_last)
    assert moved / 2.0 / element / 1e6 == pytest.approx(millions, rel=0.02)
    assert total("weight layout", "moved_bytes", engine=PRIORS["eager"]) == 0.0


def test_tensorflows_executor_calls_casts_beside_the_rest() -> None:
    """Casts of weights wait for nothing: they take the device's time, and none of the host's."""
    assert total("weight casts", "dispatch_share") == 0.0
    assert total("weight casts", "moved_bytes") == pytest.approx(6.0 * 23.5e6, rel=0.02)
    eager = replace(PRIORS["eager"], mixed_residual=True)
    assert total("weight casts", "dispatch_share", engine=eager) == pytest.approx(53.0)


def test_convolutions_multiply_what_the_algorithm_and_the_board_allow() -> None:
    """3 x 3 ones in fp32 save 1.8 times; a T4's tensor cores are held by power in long products alone."""
    counted = total("convolution", "flop")
    spatial = total("convolution 3x3", "flop")
    fp32 = total("convolution", "flop", precision="fp32")
    assert fp32 == pytest.approx(counted - spatial + spatial / 1.8)
    assert total("convolution", "flop", gpu="T4") == pytest.approx(0.87 * counted)
    assert total("convolution", "flop", gpu="T4", precision="fp32") == pytest.approx(fp32)
