"""How an engine holds and multiplies a job's weights on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tonnage.catalog.hardware import Accelerator
from tonnage.sizing.schedulers import scheduler_of

# vLLM and SGLang hold fp8 weights on Ampere devices as they are and expand them inside a 16-bit product (Marlin
# kernels, W8A16: docs.vllm.ai, «FP8 W8A8»; SGLang's Fp8LinearMethod takes the same kernels).
_WEIGHT_ONLY_ENGINES: Final = ("vllm", "sglang")

# Compute capability from which an engine multiplies mxfp4 experts: TensorRT-LLM on Hopper and later («WFP4A16 MoE is
# unsupported on SM89», NVIDIA/TensorRT-LLM issue 6717), vLLM on Ampere and later (its `Mxfp4Config`; vllm issue 23203).
MXFP4_CAPABILITY: Final = {"tensorrt-llm": (9, 0), "vllm": (8, 0)}


def lacks_mxfp4(engine: str | None, device: Accelerator) -> bool:
    """An NVIDIA device older than those on which the engine multiplies experts in mxfp4."""
    least = MXFP4_CAPABILITY.get(scheduler_of(engine).name)
    if least is None or device.vendor != "NVIDIA" or device.compute_capability is None:
        return False
    major, _, minor = device.compute_capability.partition(".")
    return (int(major), int(minor or 0)) < least


def lacks_fp8(device: Accelerator) -> bool:
    """An Ampere device: its tensor cores multiply no fp8, but 16 bit that fp8 weights may be expanded to."""
    return device.vendor == "NVIDIA" and device.architecture.split(" ")[0] == "Ampere"


def served_weights(weights: str, engine: str | None, device: Accelerator) -> str:
    """The key of `FORMATS` that a generating engine (None: the usual one) runs `weights` in on `device`."""
    if weights == "fp8" and lacks_fp8(device) and scheduler_of(engine).name in _WEIGHT_ONLY_ENGINES:
        return "fp8-weight-only"
    return weights


def shared_weights(weights: str, engine: str | None, devices: Sequence[Accelerator]) -> str:
    """The same for devices that share one format; as stated where they do not."""
    found = {served_weights(weights, engine, device) for device in devices}
    return found.pop() if len(found) == 1 else weights
