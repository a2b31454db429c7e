"""Does the model fit on that GPU? «Llama 3.1 70B fits on a single H100 80 GB», «a 7B model runs on a 24 GB card»."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tonnage.claims.document import TextLine
from tonnage.claims.figures import WORDS
from tonnage.claims.findings import ClaimAnswer
from tonnage.claims.gpu_counts import count_beside
from tonnage.claims.model_names import find_models, published_size
from tonnage.claims.names import Names
from tonnage.claims.statements import FitClaim, Place, purpose_of
from tonnage.sizing.precision import TRAINING, WEIGHT_BYTES, optimizer_bytes_per_parameter
from tonnage.units import GB

_SENTENCE: Final = re.compile(r"(?<=[.!?;])\s+(?=[A-Z0-9])")
_FITS: Final = re.compile(
    r"\b(?:fits?|runs?|trains?|loads?|can be (?:run|trained|served|loaded)|served?) (?:easily |comfortably )?"
    r"(?:on|in|into|onto)\b",
    re.IGNORECASE,
)
_DENIED: Final = re.compile(
    r"\b(?:not|never|cannot|can't|doesn't|no longer|unless|if|too large|barely)\b", re.IGNORECASE
)
_PLACE: Final = re.compile(
    rf"\b(?P<count>an?|{'|'.join(WORDS)}|\d{{1,2}}\s*[x×]?)\s+(?:\w+\s+)?(?P<size>\d+)\s?Gi?B\s+(?:GPU|card|device)s?",
    re.IGNORECASE,
)
_ONE: Final = re.compile(r"\ban?\s+(?:\d+\s?Gi?B\s+)?$", re.IGNORECASE)
_SIZED: Final = re.compile(
    r"\b(?P<count>\d+(?:\.\d+)?)\s?(?P<scale>[BM])\s+(?:parameter )?(?:model|LLM|network)", re.IGNORECASE
)
_FORMAT: Final = re.compile(r"\b(fp16|bf16|fp32|fp8|int8|int4)\b", re.IGNORECASE)
_LIGHT: Final = re.compile(
    r"\bq?lora\b|\badapters?\b|\bquanti[sz]ed\b|\b[48][- ]bit\b|\boffload|\bsharded\b|\bzero\b|\bFSDP\b", re.IGNORECASE
)


def fit_claims(line: TextLine, names: Names) -> Iterator[FitClaim]:
    """What each sentence says fits where. One that names adapters, fewer bits or offload is passed over."""
    for text in _SENTENCE.split(line.text):
        verb = _FITS.search(text)
        if verb is None or _DENIED.search(text) or _LIGHT.search(text):
            continue
        model, room = _model(text[: verb.start()]), _room(text[verb.end() :], names)
        if model is None or room is None:
            continue
        formats = {found.casefold() for found in _FORMAT.findall(text)}
        if len(formats) > 1:
            continue
        yield FitClaim(
            place=Place(line=line.number, text=line.text.strip(), headings=line.headings), model=model[0],
            parameters=model[1], precision=formats.pop() if formats else "fp16", purpose=purpose_of(text),
            room_gb=room[0], where=room[1], claimed=text[verb.start() :].strip().rstrip("."),
        )  # fmt: skip


def _model(text: str) -> tuple[str, float] | None:
    """The model that a text names last, or one named by its size alone."""
    found = find_models(text)
    if found:
        size = published_size(found[-1].name)
        return (found[-1].name, size.parameters) if size is not None else None
    sized = _SIZED.search(text)
    if sized is None:
        return None
    return f"a {sized['count']}{sized['scale'].upper()} model", float(sized["count"]) * (
        1e9 if sized["scale"] in "bB" else 1e6
    )


def _room(text: str, names: Names) -> tuple[float, str] | None:
    """GB of the GPUs named right behind the verb."""
    gpus = names.gpus_in(text)
    if gpus and gpus[0].start <= 25:
        gpu = gpus[0]
        sizes = [device.memory_gib for device in gpu.name.devices if device.memory_gib]
        beside = count_beside(gpu, text)
        count = beside.count if beside else 1.0 if _ONE.search(text[: gpu.start]) else 0.0
        return (max(sizes) * count * 2**30 / GB, f"{count:g} x {gpu.name.text}") if sizes and count else None
    place = _PLACE.search(text)
    if place is None or place.start() > 25:
        return None
    count = _count(place["count"])
    return (float(place["size"]) * count * 2**30 / GB, f"{count:g} x {place['size']} GB") if count else None


def _count(text: str) -> float:
    words = re.findall(r"[a-z]+|\d+", text.casefold())
    for word in reversed(words):
        if word in ("a", "an"):
            return 1.0
        if word in WORDS or word.isdigit():
            return float(WORDS.get(word, 0) or word)
    return 0.0


def answer_fit(claim: FitClaim) -> ClaimAnswer:
    """Weights (for training: weights, gradients and Adam's moments in mixed precision) against the memory named."""
    weights = claim.parameters * WEIGHT_BYTES[claim.precision] / GB
    numbers = TRAINING["bf16"]
    state = numbers.weight_bytes + numbers.gradient_bytes + optimizer_bytes_per_parameter("adamw", 4, 1)
    needed = claim.parameters * state / GB if claim.purpose == "training" else weights
    what = "weights, gradients and Adam's moments" if claim.purpose == "training" else f"{claim.precision} weights"
    return ClaimAnswer(
        verdict="wrong" if needed > claim.room_gb else "ok",
        right=f"{what} take {needed:,.0f} GB; {claim.where} has {claim.room_gb:,.0f} GB",
        source="parameters times bytes",
    )
