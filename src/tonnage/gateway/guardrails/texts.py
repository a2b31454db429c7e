"""Where the texts of a request, of an answer and of the events of a stream are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from tonnage.gateway.dialects.usage import Surface

_NO_TEXT: Final = frozenset((
    "model", "role", "type", "id", "object", "tool_call_id", "tool_use_id", "call_id", "item_id", "media_type",
    "signature", "encrypted_content", "embedding", "data", "b64_json", "finish_reason", "stop_reason", "status",
    "system_fingerprint", "service_tier", "previous_response_id",
))  # fmt: skip
_TOKENS: Final = ("prompt", "input")  # that may be lists of numbers


class TextSlot:
    """A text at its place: `put` writes another one there. Texts of one `channel` follow one another in a
    stream; those of none stand by themselves."""

    __slots__ = ("_key", "_parent", "channel", "text")

    def __init__(self, parent: Any, key: Any, channel: tuple[Any, ...] | None = None) -> None:
        self._parent, self._key, self.channel = parent, key, channel
        self.text: str = parent[key]

    def put(self, text: str) -> None:
        self.text = self._parent[self._key] = text


def text_slots(said: Any) -> list[TextSlot]:
    """Every text of a body, wherever it is: also in tools, their arguments and results. Names of models, ids and
    such are no texts; data of pictures, sounds and files is not read."""
    found: list[TextSlot] = []
    left = [said]  # no recursion: a body may be nested deeper than Python calls
    while left:
        value = left.pop()
        places = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in places:
            if isinstance(inner, str):
                if inner and key not in _NO_TEXT and not inner.startswith("data:"):
                    found.append(TextSlot(value, key))
            elif isinstance(inner, (dict, list)) and key != "embedding":
                left.append(inner)
    return found


def unreadable_tokens(said: dict[str, Any]) -> str | None:
    """A field that has a text as numbers of tokens, which no rule can read; None: there is none."""
    for name in _TOKENS:
        value = said.get(name)
        while isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool):
            return name
    return None


class StreamEvent:
    """One event: its bytes, and its texts where it has any."""

    __slots__ = ("_raw", "_said", "slots")

    def __init__(self, raw: bytes, surface: Surface) -> None:
        self._raw, self._said = raw, _data(raw)
        self.slots = [] if self._said is None else list(_event_slots(surface, self._said))

    def written(self, *, changed: bool) -> bytes:
        """As it came, or with its changed texts."""
        if not changed:
            return self._raw
        lines = [line for line in self._raw.splitlines() if line and not line.startswith(b"data:")]
        return b"\n".join([*lines, b"data: " + orjson.dumps(self._said), b"", b""])


def _data(raw: bytes) -> dict[str, Any] | None:
    data = b"".join(line[5:].strip() for line in raw.splitlines() if line.startswith(b"data:"))
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _event_slots(surface: Surface, said: dict[str, Any]) -> Iterator[TextSlot]:
    if surface == "responses":
        yield from _response_slots(said)
    elif surface == "messages":
        for name in ("delta", "content_block"):
            inner = said.get(name)
            if isinstance(inner, dict):
                for key in ("text", "thinking", "partial_json"):
                    if isinstance(inner.get(key), str) and inner[key]:
                        yield TextSlot(inner, key, (said.get("index"), key))
    else:
        for choice in said.get("choices") or ():
            if isinstance(choice, dict):
                yield from _choice_slots(choice)


def _choice_slots(choice: dict[str, Any]) -> Iterator[TextSlot]:
    number = choice.get("index")
    if isinstance(choice.get("text"), str) and choice["text"]:
        yield TextSlot(choice, "text", (number, "text"))
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return
    for key in ("content", "reasoning_content", "refusal"):
        if isinstance(delta.get(key), str) and delta[key]:
            yield TextSlot(delta, key, (number, key))
    for call in delta.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("arguments"), str) and function["arguments"]:
            yield TextSlot(function, "arguments", (number, "call", call.get("index")))


def _response_slots(said: dict[str, Any]) -> Iterator[TextSlot]:
    """Deltas by their item; the events that say a whole text again, each by itself."""
    if isinstance(said.get("delta"), str):
        if said["delta"]:
            yield TextSlot(said, "delta", (said.get("item_id"), said.get("content_index"), said.get("type")))
        return
    yield from text_slots(said)
