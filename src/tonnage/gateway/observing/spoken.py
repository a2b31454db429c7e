"""What a stream said, joined: a secret that is spread over its events is whole again before it is looked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from tonnage.gateway.dialects.usage import Surface


def spoken_text(surface: Surface, stream: bytes) -> str:
    """The texts and arguments of the events of a stream, in their order; an event that was cut is left out."""
    return "".join(_texts(surface, stream))


def _texts(surface: Surface, stream: bytes) -> Iterator[str]:
    for line in stream.splitlines():
        if not line.startswith(b"data:"):
            continue
        try:
            said = orjson.loads(line[5:])
        except orjson.JSONDecodeError:
            continue
        if isinstance(said, dict):
            yield from (one for one in _pieces(surface, said) if isinstance(one, str))


def _pieces(surface: Surface, said: dict[str, Any]) -> Iterator[Any]:
    delta = said.get("delta")
    if surface == "responses":
        yield delta
        return
    if surface == "messages":
        if isinstance(delta, dict):
            yield from (delta.get(name) for name in ("thinking", "text", "partial_json"))
        return
    choices = said.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        yield choice.get("text")
        found = choice.get("delta")
        if isinstance(found, dict):
            yield from (found.get(name) for name in ("reasoning_content", "content", "refusal"))
            yield from _arguments(found.get("tool_calls"))


def _arguments(calls: Any) -> Iterator[Any]:
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield function.get("name")
            yield function.get("arguments")
