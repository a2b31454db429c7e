"""What a precision means in bytes, and which peak rate its matrix products run at."""

from __future__ import annotations

from typing import Final

from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingNumbers:
    """Bytes an element takes in training.

    `element_bytes`: activations between matrix products; `residual_bytes`: the residual stream and what norms keep
    (autocast keeps these in fp32); `weight_bytes` / `gradient_bytes`: as stored; `weight_copy_bytes`: the low-precision
    copies autocast caches; `optimizer_element_bytes`: one element of optimizer state.
    """

    compute: str  # key of the peak rate
    element_bytes: float
    residual_bytes: float
    weight_bytes: float
    gradient_bytes: float
    weight_copy_bytes: float
    optimizer_element_bytes: float


TRAINING: Final[dict[str, TrainingNumbers]] = {
    "fp32": TrainingNumbers(
        compute="fp32", element_bytes=4, residual_bytes=4, weight_bytes=4, gradient_bytes=4,
        weight_copy_bytes=0, optimizer_element_bytes=4,
    ),
    "tf32": TrainingNumbers(
        compute="tf32", element_bytes=4, residual_bytes=4, weight_bytes=4, gradient_bytes=4,
        weight_copy_bytes=0, optimizer_element_bytes=4,
    ),
    "fp16": TrainingNumbers(
        compute="fp16", element_bytes=2, residual_bytes=4, weight_bytes=4, gradient_bytes=4,
        weight_copy_bytes=2, optimizer_element_bytes=4,
    ),
    "bf16": TrainingNumbers(
        compute="bf16", element_bytes=2, residual_bytes=4, weight_bytes=4, gradient_bytes=4,
        weight_copy_bytes=2, optimizer_element_bytes=4,
    ),
    "bf16-true": TrainingNumbers(
        compute="bf16", element_bytes=2, residual_bytes=2, weight_bytes=2, gradient_bytes=2,
        weight_copy_bytes=0, optimizer_element_bytes=2,
    ),
    "fp8": TrainingNumbers(
        compute="fp8", element_bytes=2, residual_bytes=4, weight_bytes=4, gradient_bytes=4,
        weight_copy_bytes=3, optimizer_element_bytes=4,
    ),
}  # fmt: skip

# Optimizer state elements per parameter: AdamW keeps two moments, SGD one momentum; 8-bit Adam keeps two moments of one
# byte with one fp32 scale per 2,048 (Dettmers et al. 2022, arXiv:2110.02861). Adafactor keeps row and column sums only
# (Shazeer and Stern 2018, arXiv:1804.04235): see `optimizer_bytes_per_parameter`.
ADAM8_BYTES_PER_PARAMETER: Final = 2 * (1 + 4 / 2048)

# NF4 with double quantisation: 4 bits + 0.127 bits of scales per weight (Dettmers et al. 2023, arXiv:2305.14314, 3).
NF4_BYTES_PER_PARAMETER: Final = (4 + 0.127) / 8
# With one 32-bit scale for 64 weights instead.
SINGLE_SCALE_BYTES: Final = (4 + 32 / 64) / 8

WEIGHT_BYTES: Final[dict[str, float]] = {
    "fp32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5 + 2 / 128,  # 4 bits and one 16-bit scale per group of 128 (AWQ, GPTQ)
    "mxfp4": 2.0,  # of all but the experts
}

# Formats that hold the experts of a mixture in fewer bytes than the rest: 4-bit floats and one 8-bit scale per 32 (Open
# Compute Project, «OCP Microscaling Formats (MX) Specification» 1.0, section 5.3).
EXPERT_WEIGHT_BYTES: Final[dict[str, float]] = {"mxfp4": 0.5 + 1 / 32}

# Rate at which a served weight format computes: weight-only formats (int4) are expanded to fp16 first.
SERVING_COMPUTE: Final[dict[str, str]] = {
    "fp32": "fp32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "fp8-weight-only": "fp16",  # see `served_weights`
    "int8": "int8",
    "int4": "fp16",
    "mxfp4": "bf16",
}


def optimizer_bytes_per_parameter(optimizer: str, element_bytes: float, hidden: int) -> float:
    """Optimizer state per trained parameter, bytes. Adafactor: a row and a column sum of an average h x h matrix."""
    return {
        "adamw": 2 * element_bytes,
        "adamw-8bit": ADAM8_BYTES_PER_PARAMETER,
        "sgd": element_bytes,
        "adafactor": 4.0 * 2 / hidden,
    }[optimizer]
