"""The arithmetic a run computes in, on the device it runs on."""

from __future__ import annotations

from typing import Final, Literal

from tonnage.errors import InputError
from tonnage.runs.spec import Device
from tonnage.workload.jobs import TrainPrecision

Precision = Literal["fp32", "tf32", "fp16", "bf16", "bf16-true"]
MIXED: Final[dict[Precision, str]] = {"fp16": "fp16", "bf16": "bf16"}  # what accelerate calls them


def choose_device(asked: Device) -> Literal["cpu", "cuda"]:
    """The device kind to run on. InputError where a GPU is asked for and none can be used."""
    import torch

    if asked == "cpu":
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if asked == "cuda":
        raise InputError(
            "the run asks for a CUDA device and torch sees none",
            hint="check `nvidia-smi` and that torch is a CUDA build, or set `device: cpu`",
        )
    return "cpu"


def choose_precision(asked: TrainPrecision, device: Literal["cpu", "cuda"]) -> Precision:
    """What `asked` comes to here: `auto` is bf16 where the device computes in it, else fp16 on a GPU, fp32 on a CPU."""
    import torch

    if asked == "fp8":
        raise InputError(
            "fp8 training is planned for, not carried out, by this runner", hint="set `precision: bf16` for this run"
        )
    if device == "cpu" and asked in ("fp16", "tf32"):
        raise InputError(f"precision {asked} needs an NVIDIA GPU", hint="set `precision: bf16` or `fp32` on a CPU")
    if asked == "auto":
        if device == "cuda":
            return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
        return "bf16" if torch.cpu._is_avx512_bf16_supported() else "fp32"
    return asked


def set_matmul(precision: Precision) -> None:
    """fp32 matrices are multiplied in full, by convolutions too, unless tf32 was asked for: cuDNN would take it by
    itself."""
    import torch

    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
