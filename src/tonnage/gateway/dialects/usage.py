"""Tokens of an answer, in one convention for every dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Surface = Literal[
    "chat", "completions", "responses", "embeddings", "messages", "images", "image-edits", "transcriptions", "speech"
]
Dialect = Literal["openai", "anthropic", "converse"]


class Usage(NamedTuple):
    """`cached_input_tokens` and `cache_write_tokens` are counted in `input_tokens`, `reasoning_tokens` in
    `output_tokens`, images and audio in the side they are on. `media_units`: images, seconds or letters that are billed
    by themselves."""

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    image_input_tokens: int = 0
    audio_input_tokens: int = 0
    audio_output_tokens: int = 0
    media_units: int = 0


def read_usage(surface: Surface, body: Mapping[str, Any]) -> Usage | None:
    """The usage of a whole answer of a surface; None where the upstream did not say, or said what is no count."""
    said = body.get("usage")
    if not isinstance(said, dict):
        return None
    if surface == "messages":
        return _anthropic(said)
    if surface == "responses":
        return _openai(said, "input_tokens", "output_tokens", writes_tokens=True)
    return _openai(said, "prompt_tokens", "completion_tokens", writes_tokens=surface != "embeddings")


def _openai(said: dict[str, Any], read: str, written: str, *, writes_tokens: bool) -> Usage | None:
    """OpenAI counts cached input in the input, reasoning in the output. `writes_tokens`: not so of embeddings."""
    reads, writes = _count(said, read), _count(said, written)
    if reads is None or (writes is None and writes_tokens):
        return None
    inputs, outputs = said.get(f"{read}_details"), said.get(f"{written}_details")
    if not inputs and not outputs:
        return Usage(input_tokens=reads, output_tokens=writes or 0)  # of embeddings there are none
    inputs = inputs if isinstance(inputs, dict) else {}
    outputs = outputs if isinstance(outputs, dict) else {}
    return Usage(
        input_tokens=reads,
        output_tokens=writes or 0,
        cached_input_tokens=min(_count(inputs, "cached_tokens") or 0, reads),
        reasoning_tokens=_count(outputs, "reasoning_tokens") or 0,
        image_input_tokens=_count(inputs, "image_tokens") or 0,
        audio_input_tokens=_count(inputs, "audio_tokens") or 0,
        audio_output_tokens=_count(outputs, "audio_tokens") or 0,
    )


def _anthropic(said: dict[str, Any]) -> Usage | None:
    """Anthropic counts input that was read from or written to a cache beside the rest."""
    fresh, writes = _count(said, "input_tokens"), _count(said, "output_tokens")
    if fresh is None:
        return None
    cached = _count(said, "cache_read_input_tokens") or 0
    written = _count(said, "cache_creation_input_tokens") or 0
    details = said.get("output_tokens_details")
    return Usage(
        input_tokens=fresh + cached + written,
        output_tokens=writes or 0,
        cached_input_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=(_count(details, "thinking_tokens") if isinstance(details, dict) else None) or 0,
    )


def _count(said: dict[str, Any], name: str) -> int | None:
    found = said.get(name)
    return found if type(found) is int and found >= 0 else None  # a bool is no count
