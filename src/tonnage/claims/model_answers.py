"""Is a model's size so, and the memory it is said to need? By published counts and the sizing formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tonnage.claims.findings import ClaimAnswer, Verdict
from tonnage.claims.model_names import PublishedSize, namesake, published_size
from tonnage.claims.statements import MemoryNeedClaim, ModelSizeClaim
from tonnage.errors import UnknownModel
from tonnage.sizing.inference_memory import estimate_serving_memory
from tonnage.sizing.precision import TRAINING, WEIGHT_BYTES, optimizer_bytes_per_parameter
from tonnage.sizing.served_formats import FORMATS
from tonnage.units import GB
from tonnage.workload.known import find_model

SIZE_TOLERANCE: Final = 0.05  # «1.5B» for 1.56 billion
MEMORY_TOLERANCE: Final = 0.05
SERVED_TOKENS: Final = 2048  # one request of this length is what «needs» is taken to mean
_BARE_TRAINING: Final = 4.0 + 4.0 + 2 * 4.0  # where a format has no training of its own: fp32 weights, gradients, Adam


def answer_model_size(claim: ModelSizeClaim) -> ClaimAnswer:
    """A parameter count, or a class of sizes, against the published count."""
    known = published_size(claim.model)
    if known is None:
        return ClaimAnswer(verdict="unknown", hint="its size is not published, or its shape is not known here")
    stated = replace(claim.parameters, step=0.0) if claim.parameters.is_range else claim.parameters
    holds = stated.covers(known.parameters, tolerance_fraction=SIZE_TOLERANCE)
    slack = 1 + SIZE_TOLERANCE
    other = "" if holds else namesake(claim.model, stated.low / slack, stated.high * slack)
    if other and not stated.is_range:
        return ClaimAnswer(
            verdict="partly", right=_count(known.parameters), source=known.source, hint=f"that is the size of {other}"
        )
    return ClaimAnswer(
        verdict="ok" if holds else "wrong", right=_count(known.parameters), source=known.source,
        hint="" if holds else f"not {claim.parameters.text}",
    )  # fmt: skip


def answer_model_memory(claim: MemoryNeedClaim) -> ClaimAnswer:
    """A memory need, GB, against weights alone, serving one request, and full training with Adam.

    Wrong: less than the weights. Partly: the weights fit, but not what else the words cover (training where the
    text does not say which). A need stated too high is not an error: machines come in steps.
    """
    known = published_size(claim.model)
    if known is None:
        return ClaimAnswer(verdict="unknown", hint="its size is not published, or its shape is not known here")
    weights = known.parameters * WEIGHT_BYTES[claim.precision] / GB
    serving = _serving_gb(claim, weights)
    training = known.parameters * _training_bytes(claim.precision) / GB
    high = claim.memory.high * (1 + MEMORY_TOLERANCE)
    if high < weights:
        return _answer(claim, "wrong", weights, serving, training, known, "the weights alone do not fit")
    trains = claim.purpose != "inference" and claim.precision not in ("int8", "int4")
    if trains and high < training:
        hint = "enough for inference or LoRA, not for full training"
        if high < serving:
            hint = "the weights fit, little else does"
        return _answer(claim, "partly", weights, serving, training, known, hint)
    if high < serving:
        return _answer(claim, "partly", weights, serving, training, known, "tight: no room for the KV cache")
    return _answer(claim, "ok", weights, serving, training, known, "")


def _serving_gb(claim: MemoryNeedClaim, weights_gb: float) -> float:
    """One replica on one GPU with one request of `SERVED_TOKENS`; the weights alone for a model without a shape."""
    try:
        shape = find_model(claim.model)
    except UnknownModel:
        return weights_gb
    memory = estimate_serving_memory(
        shape, served=FORMATS[claim.precision], tensor_parallel=np.ones(1), batch=1.0, tokens=SERVED_TOKENS
    )
    return float(np.asarray(memory.needed_bytes(1, SERVED_TOKENS))[0]) / GB


def _training_bytes(precision: str) -> float:
    """Weights, gradients and Adam's moments of full mixed-precision training, bytes per parameter; no activations."""
    numbers = TRAINING.get(precision)
    if numbers is None:
        return _BARE_TRAINING
    moments = optimizer_bytes_per_parameter("adamw", numbers.optimizer_element_bytes, 1)
    return numbers.weight_bytes + numbers.gradient_bytes + moments


def _answer(
    claim: MemoryNeedClaim,
    verdict: Verdict,
    weights: float,
    serving: float,
    training: float,
    known: PublishedSize,
    hint: str,
) -> ClaimAnswer:
    parts = [f"weights {_gb(weights)}"]
    if serving > weights:
        parts.append(f"serving one request of {SERVED_TOKENS:,} tokens {_gb(serving)}")
    if claim.precision not in ("int8", "int4"):
        parts.append(f"full training with Adam {_gb(training)} before activations")
    return ClaimAnswer(
        verdict=verdict, right="; ".join(parts), source=f"sizing of {_count(known.parameters)} ({known.source})",
        hint=hint,
    )  # fmt: skip


def _count(parameters: float) -> str:
    return f"{parameters / 1e9:.3g} billion" if parameters >= 1e9 else f"{parameters / 1e6:.3g} million"


def _gb(figure: float) -> str:
    return f"{figure:,.0f} GB" if figure >= 100 else f"{figure:.3g} GB"
