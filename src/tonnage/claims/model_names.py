"""Models named in a text: those whose shape is known, and those whose size alone is published."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final

from tonnage.claims.facts import model_sizes
from tonnage.errors import UnknownModel
from tonnage.values import dataclass
from tonnage.workload.known import known_records, model_record

LONGEST_MODEL_WORDS: Final = 4
_WORD: Final = re.compile(r"[A-Za-z0-9][\w./-]*")
_NAMELESS: Final = re.compile(r"^(?:\d|(?:the|a|an|and|or|model|models|large|small|base|medium)$)", re.IGNORECASE)
_UNPUBLISHED: Final = re.compile(
    r"GPT-4\w*|Claude(?: \d[\d.]*)?|Gemini(?: \d[\d.]*)?", re.IGNORECASE
)  # of unpublished sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model's name as written, and its place in the text."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSize:
    """Parameters of a model and who says so."""

    parameters: float
    source: str


def find_models(text: str) -> tuple[FoundModel, ...]:
    """The models that a text names, from left to right, the longest name at each place."""
    return tuple(_find(text))


def published_size(name: str) -> PublishedSize | None:
    """How many parameters the model called `name` has; None where it is unpublished."""
    size = _sizes().get(_folded(name))
    if size is not None:
        return size
    try:
        record = model_record(name)
    except UnknownModel:
        return None
    return PublishedSize(parameters=record.published_parameters, source=record.published_in)


def namesake(name: str, parameters_low: float, parameters_high: float) -> str:
    """Another size of the model's series (`gpt2-xl` of `gpt2`) that lies in the range; "" where none does."""
    try:
        own = model_record(name).shape.name
    except UnknownModel:
        return ""
    sizes = {other: record.published_parameters for other, record in known_records().items()}
    found = [other for other in sizes if other.startswith(f"{own}-")]
    return next((other for other in found if parameters_low <= sizes[other] <= parameters_high), "")


def _find(text: str) -> Iterator[FoundModel]:
    words = list(_WORD.finditer(text))
    position = 0
    while position < len(words):
        taken = 0
        for count in range(min(LONGEST_MODEL_WORDS, len(words) - position), 0, -1):
            first, last = words[position], words[position + count - 1]
            name = text[first.start() : last.end()].rstrip(".,;/-")
            if "," not in name and "(" not in name and _is_model(name):
                yield FoundModel(name=name, start=first.start(), end=first.start() + len(name))
                taken = count
                break
        position += taken or 1


@lru_cache(maxsize=4096)
def _is_model(name: str) -> bool:
    if _folded(name) in _sizes() or _UNPUBLISHED.fullmatch(name):
        return True
    if _NAMELESS.match(name) or re.split(r"[\s_-]", name.rsplit("/", 1)[-1])[0].casefold() not in _first_words():
        return False
    return published_size(name) is not None


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", name.strip()).casefold()


@cache
def _sizes() -> dict[str, PublishedSize]:
    """Models of `data/model_sizes.csv` by folded name and alias."""
    return {
        _folded(name): PublishedSize(parameters=row.parameters, source=row.source)
        for row in model_sizes()
        for name in (row.model, *row.aliases)
    }


@cache
def _first_words() -> frozenset[str]:
    """How the names of known models begin: most words of a text are out by these alone."""
    begun = set()
    for name, record in known_records().items():
        for spelling in (name, *record.aliases):
            last = spelling.rsplit("/", 1)[-1]
            first = re.split(r"[\s_-]", last)[0].casefold()
            begun |= {first, re.sub(r"\d+(\.\d+)?$", "", first)}
    return frozenset(begun - {""})
