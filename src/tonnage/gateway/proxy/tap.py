"""What a stream says of its usage, read while it passes; the event that the client did not ask for is taken out.

Whole events pass as they come: nothing is gathered, no byte is changed. Only an event that is not whole yet is held
back, and only where one may have to be taken out.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from tonnage.gateway.dialects.usage import Surface, Usage, read_usage

LONGEST_EVENT_BYTES: Final = 8 << 20
_USAGE: Final = b'"usage"'
_FAILED: Final = "response.failed"  # the end of a stream of responses that tells its own failure
_LAST_TYPES: Final = ("message_stop", "response.completed", "response.incomplete", _FAILED)
_DONE: Final = b"[DONE]"
_ENDS: Final = tuple(b'"%b"' % one.encode() for one in _LAST_TYPES)  # in an event of messages or responses


class UsageTap:
    """Feed it every piece of a stream; it returns what goes to the client."""

    def __init__(self, surface: Surface, *, strip: bool) -> None:
        self.surface, self.strip = surface, strip
        self._typed = surface in ("messages", "responses")  # whose last event says so by its type
        self.usage: Usage | None = None
        self.finished = False
        self.ended_failed = False  # its end is whole, and says that the answer is not
        self.failed: str | None = None  # an upstream's own words go to the client as they are
        self.events = 0
        self._rest = b""
        self._started: dict[str, Any] = {}  # what Anthropic says of the input, at the start

    def feed(self, piece: bytes) -> bytes:
        data = self._rest + piece if self._rest else piece
        end = _last_end(data)
        whole, self._rest = data[:end], data[end:]
        if len(self._rest) > LONGEST_EVENT_BYTES:
            whole, self._rest = data, b""
        passed = self._read(whole) if whole else whole
        return passed if self.strip else piece

    @property
    def rest(self) -> bytes:
        """What was held back of an event that never became whole."""
        return self._rest if self.strip else b""

    def _read(self, whole: bytes) -> bytes:
        """Look at whole events; only those that may speak of usage or of the end are parsed."""
        self.events += whole.count(b"data:")
        if not self.finished and (_DONE in whole or (self._typed and any(mark in whole for mark in _ENDS))):
            ends = [end for event in _events(whole) if (end := _end_of(event)) is not None]
            self.finished, self.ended_failed = bool(ends), _FAILED in ends
        if _USAGE not in whole:
            return whole
        kept = []
        for event in _events(whole):
            if _USAGE not in event or not self._tells_usage_alone(event):
                kept.append(event)
        return b"".join(kept)

    def _tells_usage_alone(self, event: bytes) -> bool:
        """Read the usage of an event; whether it says nothing else, and the client did not ask for it."""
        said = _said(event)
        if said is None:
            return False
        if self.surface == "messages":
            self._read_anthropic(said)
            return False
        if self.surface == "responses":
            inner = said.get("response")
            if isinstance(inner, dict):
                self.usage = read_usage("responses", inner) or self.usage
            return False
        found = read_usage(self.surface, said)
        if found is None:
            return False
        self.usage = found
        return self.strip and not said.get("choices")

    def _read_anthropic(self, said: dict[str, Any]) -> None:
        if said.get("type") == "message_start":
            message = said.get("message")
            usage = message.get("usage") if isinstance(message, dict) else None
            self._started = usage if isinstance(usage, dict) else {}
        elif said.get("type") == "message_delta" and isinstance(usage := said.get("usage"), dict):
            counts = {key: value for key, value in usage.items() if value is not None}
            self.usage = read_usage("messages", {"usage": {**self._started, **counts}})


def _last_end(data: bytes) -> int:
    """Where the last whole event ends."""
    end = data.rfind(b"\n\n")
    crlf = data.rfind(b"\r\n\r\n")
    return max(end + 2 if end >= 0 else 0, crlf + 4 if crlf >= 0 else 0)


def _events(whole: bytes) -> list[bytes]:
    """Each event with the empty line that ends it."""
    mark = b"\r\n\r\n" if b"\r\n\r\n" in whole else b"\n\n"
    parts = whole.split(mark)
    last = parts.pop()
    events = [part + mark for part in parts]
    return [*events, last] if last else events


def _end_of(event: bytes) -> str | None:
    """How an event ends its stream; None: it does not. Texts may say the same: only all of the data, or its type,
    counts."""
    if any(line.startswith(b"data:") and line[5:].strip() == b"[DONE]" for line in event.splitlines()):
        return "[DONE]"
    said = _said(event)
    kind = None if said is None else said.get("type")
    return kind if kind in _LAST_TYPES else None


def _said(event: bytes) -> dict[str, Any] | None:
    """The JSON of an event's data; None where it has none."""
    for line in event.splitlines():
        if line.startswith(b"data:"):
            try:
                found = orjson.loads(line[5:])
            except orjson.JSONDecodeError:
                return None
            return found if isinstance(found, dict) else None
    return None
