"""How fast is a model on a GPU? «Llama-2-7B generates 2,400 tokens/s on an A100 80GB»."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from tonnage.claims.document import TextLine
from tonnage.claims.figures import parse_amount
from tonnage.claims.gpu_counts import count_beside
from tonnage.claims.model_names import FoundModel, find_models
from tonnage.claims.names import FoundGpu, Names
from tonnage.claims.statements import Place, RateClaim

_SENTENCE: Final = re.compile(r"(?<=[.!?;])\s+(?=[A-Z0-9])")
_RATE: Final = re.compile(
    r"(?P<amount>[~≈]?\s?\d[\d,]*(?:\.\d+)?\s?[kK]?)\s*(?:(?:output|generated|training)\s+)?"
    r"(?P<unit>tokens?|samples|sequences|images|examples)\s*(?:/\s?|per\s+|an?\s+)s(?:ec(?:ond)?)?\b",
    re.IGNORECASE,
)
_TRAINS: Final = re.compile(r"\btrain\w*\b|\bfine-?tun\w*\b|\bLoRA\b", re.IGNORECASE)
_SERVES: Final = re.compile(
    r"\binference\b|\bserv\w*\b|\bgenerat\w*\b|\bdecod\w*\b|\bvLLM\b|\bTGI\b|\bSGLang\b", re.IGNORECASE
)
_LORA: Final = re.compile(r"\bq?LoRA\b|\badapters?\b", re.IGNORECASE)
_LENGTH: Final = re.compile(
    r"(?:sequence length|seq(?:uence)?[_ ]len(?:gth)?|context|length)\s*(?:of|=|:)?\s*(?P<n>\d[\d,]*)|"
    r"(?P<m>\d[\d,]*)[- ]tokens? (?:sequences|context|inputs)",
    re.IGNORECASE,
)
_BATCH: Final = re.compile(r"\bbatch(?:[\s_-]?sizes?)?\s*(?:of|=|:)?\s*\d[\d,]*", re.IGNORECASE)
_FORMAT: Final = re.compile(r"\b(fp16|bf16|fp32|fp8|int8|int4)\b", re.IGNORECASE)
_PER_GPU: Final = re.compile(r"\b(?:per|each|a) GPU\b|/\s?GPU\b", re.IGNORECASE)
_OTHER: Final = re.compile(
    r"\b(?:than|versus|vs|instead|unlike|compared|times|if|would|could|should|not|never|at least|minimum|target|"
    r"need\w*|requir\w*|demand|expect\w*|speculative|a million|CPUs?)\b",
    re.IGNORECASE,
)


def rate_claims(line: TextLine, names: Names) -> Iterator[RateClaim]:
    """What each sentence says of one model on one kind of GPU. Comparisons, wishes and demands are passed over."""
    for text in _SENTENCE.split(line.text):
        found = list(_RATE.finditer(text))
        models, gpus = find_models(text), names.gpus_in(text)
        if len(found) != 1 or len({one.name for one in models}) != 1 or len(gpus) != 1 or _OTHER.search(text):
            continue
        rate, trains = found[0], _TRAINS.search(text) is not None
        amount, count = parse_amount(_number(rate["amount"])), _count(gpus[0], text, models)
        if amount is None or not count or trains == (_SERVES.search(text) is not None):
            continue  # what is done there is unknown
        length, format_ = _LENGTH.search(text), _FORMAT.search(text)
        yield RateClaim(
            place=Place(line=line.number, text=line.text.strip(), headings=line.headings), model=models[0].name,
            gpu=gpus[0].name, gpus=1.0 if _PER_GPU.search(text) else count, in_job=count, amount=amount,
            unit="tokens" if rate["unit"].casefold().startswith("token") else "samples", trains=trains,
            adapters=_LORA.search(text) is not None,
            length=None if length is None else int((length["n"] or length["m"]).replace(",", "")),
            number_format=None if format_ is None else format_[1].casefold(), claimed=rate[0].strip(),
        )  # fmt: skip


def _number(text: str) -> str:
    """«2.4k» as 2400."""
    plain = text.strip()
    if plain[-1:] in "kK":
        start = plain[:1] if plain[:1] in "~≈" else ""
        return f"{start}{float(plain.lstrip('~≈ ')[:-1].replace(',', '')) * 1000:g}"
    return plain


def _count(gpu: FoundGpu, text: str, models: Sequence[FoundModel]) -> float:
    """GPUs that a text speaks of: the number beside the GPU's name; where none is, one, or unknown (0) for a plural.

    A number of a model's name, of a batch or of a length is none of GPUs, wherever it is.
    """
    beside = count_beside(gpu, text)
    uncounted = 0.0 if gpu.is_plural else 1.0
    if beside is None:
        return uncounted
    taken = [(one.start, one.end) for one in models]
    taken += [found.span() for pattern in (_LENGTH, _BATCH) for found in pattern.finditer(text)]
    return uncounted if any(first <= beside.start < end for first, end in taken) else beside.count
