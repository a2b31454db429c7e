"""The `method` and `precision` cells of a training row: what is trained, on which base, in which numbers."""

from __future__ import annotations

import re
from typing import Final

from tonnage.values import dataclass
from tonnage.workload.jobs import AdapterKind, Method, TrainPrecision

FULL: Final = re.compile(r"^(?:|full.*|(?:pre-?)?train(?:ing)?|pre-?training|sft|fine-?tun(?:e|ing))$")
# Kinds of adapters by name; what is not one of these is not sized, never taken for training all weights.
KINDS: Final[tuple[tuple[AdapterKind, re.Pattern[str]], ...]] = (
    ("dora", re.compile(r"\bq?dora\b")),
    ("llama-adapter-v2", re.compile(r"\badapter[ _-]?v?2\b")),
    ("llama-adapter", re.compile(r"\badapter(?:[ _-]?v?1)?\b")),
    ("prefix", re.compile(r"\bprefix")),
    ("prompt", re.compile(r"\bprompt|p-tuning")),
    ("lora", re.compile(r"\b(?:q|rs)?lora\b\+?(?!-)")),
)
FOUR_BITS: Final = re.compile(r"\b(?:bnb\.)?(?:nf4|fp4|int4|4[- ]?bit)(?:-dq)?(?: base)?\b")
QUANTISED: Final = re.compile(r"\bq(?:lo|do)ra\b")
RANK: Final = re.compile(r"\br(?:ank)?\s*=?\s*(\d+)")
PRECISIONS: Final[dict[str, TrainPrecision]] = {
    "fp32": "fp32", "32-true": "fp32", "32": "fp32", "float32": "fp32", "tf32": "tf32",
    "fp16": "fp16", "16": "fp16", "float16": "fp16", "amp": "fp16", "16-mixed": "fp16", "fp16-mixed": "fp16",
    "bf16": "bf16", "bfloat16": "bf16", "bf16-mixed": "bf16", "mixed": "bf16",
    "fp8": "fp8", "float8": "fp8", "fp8-mixed": "fp8",
    "bf16-true": "bf16-true", "16-true": "bf16-true", "fp16-true": "bf16-true",
}  # fmt: skip
UNSAID: Final = ("", "fp16", "16", "float16", "bf16", "bfloat16")  # 16 bit, weights not said


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """What a method cell says: the method, and the adapters of one that trains adapters."""

    method: Method
    kind: AdapterKind = "lora"
    rank: int | None = None


def adapters_of(method: str, precision: str) -> Adapters | None:
    """The method of a row; None for one that is not sized.

    >>> adapters_of("lora r=8", "nf4").method, adapters_of("adapter_v2", "bf16-true").kind, adapters_of("ia3", "")
    ('qlora', 'llama-adapter-v2', None)
    """
    text = method.strip().lower()
    if FULL.match(text):
        return Adapters(method="full")
    kind = next((kind for kind, words in KINDS if words.search(text)), None)
    if kind is None:
        return None
    quantised = QUANTISED.search(text) or FOUR_BITS.search(text) or FOUR_BITS.search(precision.lower())
    rank = RANK.search(text)
    return Adapters(method="qlora" if quantised else "lora", kind=kind, rank=int(rank[1]) if rank else None)


def precision_of(precision: str, method: Method, *, bf16: bool, true: bool) -> TrainPrecision | None:
    """The numbers a row computes in; None where its cell names none that is sized.

    `bf16`: whether the device has it (a row that says nothing, or bf16 where there is none, computed in fp16).
    `true`: whether plain «bf16» means 16-bit weights to the program; a frozen base needs no 32-bit copies, so that it
    does to every program where adapters are trained.
    """
    text = re.sub(r"\(.*?\)", "", FOUR_BITS.sub("", precision.strip().lower())).strip(" +,;/")
    if not text:
        found: TrainPrecision = "bf16" if bf16 else "fp16"
        return "bf16-true" if FOUR_BITS.search(precision.lower()) else found
    named = PRECISIONS.get(text)
    if named == "bf16" and not bf16:
        return "fp16"
    held = true or method != "full"
    return "bf16-true" if named == "bf16" and text in UNSAID and held else named
