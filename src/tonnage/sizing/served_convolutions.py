"""What a program that serves images does around its convolutions: layouts, norms, weights, the algorithm chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from tonnage.sizing.convolution_operators import WINOGRAD_GAIN
from tonnage.sizing.devices import Devices
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Num
from tonnage.sizing.inference_devices import TENSOR_ON_SLOT
from tonnage.sizing.operators import Operator
from tonnage.values import dataclass

# A library's two conversions of layout around a convolution, inside its call: a launch takes 4 to 6 us of the 20 that a
# framework takes for a module (see `engines`).
LAYOUT_KERNELS, LAYOUT_DISPATCH = 2.0, 0.25
TENSOR_CORE_FORMATS: Final = ("tf32", "fp16", "bf16")  # of frameworks; engines that run 8 bits choose their layouts
# Behind a convolution one kernel reads and writes each value and reads what is added to half of them: 2.5 passes. Norm,
# rectifier and sum apart take 2, 2 and half of 3. ResNet-50: 118 kernels behind 53 convolutions in place of 53.
APART_PASSES, APART_KERNELS = 5.5 / 2.5, 118.0 / 53.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolving:
    """How a program runs convolutions. `compute`: the rate they multiply at; `element_bytes`: of a value.

    `turned`: images are channels first and each convolution converts them; `norms_apart`: norm, rectifier and sum
    behind it stay kernels of their own; `weights_turned`: weights are laid out again in every pass.
    """

    compute: str
    element_bytes: float
    turned: bool
    norms_apart: bool
    weights_turned: bool

    def operators(self, operators: Iterable[Operator], devices: Devices) -> Iterator[Operator]:
        """The operators of a stage with what this does to its convolutions; others as they are."""
        for operator in operators:
            if operator.kind == "convolution":
                yield from self._convolution(operator, devices)
            elif self.norms_apart and operator.name == "norm and activation":
                moved, kernels = APART_PASSES * operator.moved_bytes, APART_KERNELS * operator.kernels
                yield replace(operator, moved_bytes=moved, kernels=kernels)
            else:
                yield operator

    def _convolution(self, operator: Operator, devices: Devices) -> Iterator[Operator]:
        """The convolution between what lays out its weights, its input and its output.

        Tensor cores want channels last; for images in a framework's own order the library converts both in kernels of
        its own, around the convolution and inside one call (NVIDIA, «Convolutional layers user's guide», tensor
        layouts: cuDNN transposes NCHW into NHWC): each value read and written once more on both sides. TensorFlow keeps
        weights as height, width, input, output and lays them out for cuDNN in a kernel of each call; a product serves
        for 1 x 1 channels last (NVIDIA/tensorflow@41e8468d, tensorflow/core/kernels/conv_ops.cc, `LaunchConv2DOp`).
        """
        plain_product = self.element_bytes < 4.0 and operator.name == "convolution 1x1"
        if self.weights_turned and not plain_product:
            yield Operator(
                name="weight layout", kind="gemm", count=operator.count, dispatch_share=LAYOUT_DISPATCH,
                moved_bytes=2.0 * self.element_bytes * operator.weight_elements,
            )  # fmt: skip
        share = self._work_share(operator, devices) / np.asarray(operator.peak_share)
        yield replace(operator, flop=operator.flop * share, peak_share=1.0)
        if self.turned:
            yield Operator(
                name="layout", kind="gemm", count=operator.count, moved_bytes=2.0 * operator.moved_bytes,
                kernels=LAYOUT_KERNELS, dispatch_share=LAYOUT_DISPATCH,
            )  # fmt: skip

    def _work_share(self, operator: Operator, devices: Devices) -> Num:
        """Operations beside those counted, at the rate that matrix products hold.

        Those of tiles that groups of channels leave part empty come on top (`peak_share`). Outside the tensor cores
        libraries choose the algorithm that multiplies less for 3 x 3 (`WINOGRAD_GAIN`). A board fed by its slot holds
        tensor cores back by what long runs of matrix products draw; a network of convolutions reads and writes for a
        good part of its time, and is not held back so far (T4: judgement).
        """
        if self.compute == "fp32":
            return 1.0 / WINOGRAD_GAIN if operator.name == "convolution 3x3" else 1.0
        if devices.printed_share is None:
            return 1.0
        return np.where(devices.printed_share < 1.0, TENSOR_ON_SLOT, 1.0)


def turns_layout(compute: str, element_bytes: float, engine: Engine, channels_last: bool | None) -> bool:
    """Whether convolutions of images convert their layout. `channels_last` None: as programs of the class keep them."""
    if compute not in TENSOR_CORE_FORMATS:
        return False
    if channels_last is not None:
        return not channels_last
    return engine.channels_first and not (engine.lays_out_half and element_bytes < 4.0)
