"""Device columns for inference: the rate each device sustains, rather than the one its data sheet prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.catalog.hardware import Accelerator
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import POWER_LIMITED_W, Devices, Machine, peak_tflops, stack
from tonnage.units import TERA

# Share of the printed 16-bit rate the best matrix product reaches where nobody measured it. Measured shares in the
# catalog: A100 0.81 to 0.87, H100 0.80, MI300X 0.51, B200 0.78 (stas00/ml-engineering, mamf-finder).
UNMEASURED_CEILING = 0.82


# Tensor cores draw more than the other units: T4 holds 0.87 of the share that its fp32 units do, over all engines.
TENSOR_ON_SLOT = 0.87
# Products of 32-bit operands on tensor cores, beside the share of 16-bit ones: twice the bytes go through registers and
# shared memory. 0.95 on an H100 (benchmarks/results/gpu_kernels_h100-80gb-sxm_2026-11-22.csv), 0.76 in training, fitted
# (`sustained_tf32_fraction`); judgement between.
TF32_SHARE = 0.85


def ceiling_fraction(accelerator: Accelerator) -> float:
    """Share of the printed dense rate that the best large matrix product reached on this device, where measured."""
    measured, printed = accelerator.measured_bf16_matmul_tflops, accelerator.dense_bf16_tflops
    return measured / printed if measured and printed else UNMEASURED_CEILING


def sustained_tflops(accelerator: Accelerator, precision: str, assumed: Assumptions) -> float:
    """Rate of matrix products a device holds at `precision`: printed x measured ceiling, less on slot-fed boards.

    Rates without tensor cores (fp32) are not limited by the power that the ceiling expresses.
    """
    printed = peak_tflops(accelerator, precision)
    limited = accelerator.tdp_w is not None and accelerator.tdp_w <= POWER_LIMITED_W
    ceiling = 1.0 if precision == "fp32" else ceiling_fraction(accelerator)
    ceiling *= TF32_SHARE if precision == "tf32" else 1.0
    held = assumed.power_limited_fraction * (TENSOR_ON_SLOT if precision != "fp32" else 1.0)
    return printed * ceiling * (held if limited else 1.0)


# Launching a kernel on the hosts a device generation is sold with, PCIe 4 (2020 to 2022) as 1: TorchScript and
# TensorFlow BERT at batch 1 take 1.4 to 2 times as long on the hosts of V100 and T4 (PCIe 3) as on those of A100. Eager
# PyTorch BERT-base at batch 1 takes 0.65 to 0.7 ms a layer there (AITemplate@c8aad377, FasterTransformer@df4a7534),
# 0.31 on one host of an H100 and 0.2 on one of an H200 (benchmarks/results/gpu_grid_inference_*).
HOST_FACTORS = {3: 1.5, 4: 1.0, 5: 0.45}


def host_factor(accelerator: Accelerator) -> float:
    """How slow the hosts of this device's generation launch kernels, 1 where the generation is not known."""
    return HOST_FACTORS.get(accelerator.pcie_generation or 4, 1.0)


def serving_devices(machines: Sequence[Machine], precision: str, assumed: Assumptions | None = None) -> Devices:
    """`stack`, with sustained rates and the hosts that devices of each generation are sold with.

    Raises UnsizedHardware naming the missing figure.
    """
    assumed = assumed or Assumptions()
    rates = [sustained_tflops(machine.accelerator, precision, assumed) * TERA for machine in machines]
    hosts = [host_factor(machine.accelerator) for machine in machines]
    return replace(stack(machines, precision, assumed), peak_flop_per_s=np.array(rates), host_factor=np.array(hosts))
