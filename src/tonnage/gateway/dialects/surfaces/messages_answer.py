"""Anthropic's messages: writing an answer and a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from tonnage.gateway.dialects.conversation import (
    Began,
    CallBegan,
    CallPiece,
    Counted,
    Ended,
    Event,
    Failed,
    ModelAnswer,
    Part,
    Redacted,
    RedactedPiece,
    Signed,
    Stopped,
    StopReason,
    Text,
    TextPiece,
    Thinking,
    ThinkingPiece,
    ToolCall,
    UpstreamNonsense,
)
from tonnage.gateway.dialects.errors import error_body
from tonnage.gateway.dialects.fields import arguments_object
from tonnage.gateway.dialects.usage import Usage

STOP: Final[dict[StopReason, str]] = {
    "end": "end_turn", "stop-sequence": "stop_sequence", "length": "max_tokens", "tool": "tool_use",
    "filtered": "refusal", "context": "model_context_window_exceeded", "paused": "pause_turn",
}  # fmt: skip


def write_messages(answer: ModelAnswer, *, id_: str, model: str) -> dict[str, Any]:
    """`id_` and `model` are used where the upstream says none."""
    said: dict[str, Any] = {
        "id": answer.id or id_, "type": "message", "role": "assistant", "model": answer.model or model,
        "content": [_block(part) for part in answer.parts],
        "stop_reason": STOP[answer.stop], "stop_sequence": answer.stop_sequence,
    }  # fmt: skip
    if answer.usage is not None:
        said["usage"] = messages_usage(answer.usage)
    return said


def messages_usage(usage: Usage) -> dict[str, Any]:
    """Anthropic counts input that was read from or written to a cache beside the rest."""
    said: dict[str, Any] = {
        "input_tokens": usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        said["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return said


def _block(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text, "citations": None}
        case Thinking(text=text, signature=signature):
            return {"type": "thinking", "thinking": text, "signature": signature or ""}
        case Redacted(data=data):
            return {"type": "redacted_thinking", "data": data}
        case ToolCall(id=id_, name=name, arguments=arguments):
            called = arguments_object(arguments, f"arguments of {name}")
            return {"type": "tool_use", "id": id_, "name": name, "input": called}
    raise UpstreamNonsense(f"an answer holds a {type(part).__name__}")


class MessagesStream:
    """Events -> server-sent events.

    The counts come last, as upstreams of other dialects say them: `message_start` has those of the input only where
    they are known by then, else 0. Calls stay open until the answer stops, so that pieces of several that come by
    turns find their block by its index.
    """

    def __init__(self, *, id_: str, model: str) -> None:
        self._id, self._model = id_, model
        self._usage: Usage | None = None
        self._blocks = 0
        self._open: tuple[int, str] | None = None  # the block of text or thinking that is open
        self._calls: dict[int, int] = {}  # ordinal of a call -> index of its block
        self._stopped: Stopped | None = None
        self._begun = self._over = False

    def write(self, event: Event) -> bytes:
        return b"".join(b"event: %b\ndata: %b\n\n" % (said["type"].encode(), orjson.dumps(said))
                        for said in self._said(event))  # fmt: skip

    def _said(self, event: Event) -> Iterator[dict[str, Any]]:
        if isinstance(event, Began):
            self._id, self._model, self._usage = event.id or self._id, event.model or self._model, event.usage
        if isinstance(event, Counted):
            self._usage = event.usage
            return
        if isinstance(event, Failed):
            self._over = True
            yield error_body("messages", event.status, None, event.message)
            return
        if not self._begun:
            self._begun = True
            yield self._start()
        if isinstance(event, Stopped):
            self._stopped = event
            yield from self._close_all()
        elif isinstance(event, Ended):
            yield from self._end()
        else:
            yield from self._piece(event)

    def _start(self) -> dict[str, Any]:
        usage = messages_usage(self._usage) if self._usage is not None else {"input_tokens": 0, "output_tokens": 0}
        message: dict[str, Any] = {
            "id": self._id, "type": "message", "role": "assistant", "model": self._model, "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": usage,
        }  # fmt: skip
        return {"type": "message_start", "message": message}

    def _piece(self, event: Event) -> Iterator[dict[str, Any]]:
        match event:
            case TextPiece(text=text):
                yield from self._in("text", {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": text})
            case ThinkingPiece(text=text):
                yield from self._in("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                yield self._delta({"type": "thinking_delta", "thinking": text})
            case Signed(signature=signature):
                yield from self._in("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                yield self._delta({"type": "signature_delta", "signature": signature})
                yield from self._close()
            case RedactedPiece(data=data):
                yield from self._close()
                yield from self._in("redacted", {"type": "redacted_thinking", "data": data})
                yield from self._close()
            case CallBegan(ordinal=ordinal, id=id_, name=name):
                yield from self._close()
                self._calls[ordinal] = self._blocks
                yield self._block_start({"type": "tool_use", "id": id_, "name": name, "input": {}})
            case CallPiece(ordinal=ordinal, arguments=arguments):
                delta = {"type": "input_json_delta", "partial_json": arguments}
                yield {"type": "content_block_delta", "index": self._calls[ordinal], "delta": delta}

    def _in(self, kind: str, block: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Open a block of this kind unless one is open."""
        if self._open is not None and self._open[1] == kind:
            return
        yield from self._close()
        self._open = (self._blocks, kind)
        yield self._block_start(block)

    def _block_start(self, block: dict[str, Any]) -> dict[str, Any]:
        index = self._blocks
        self._blocks += 1
        return {"type": "content_block_start", "index": index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        assert self._open is not None
        return {"type": "content_block_delta", "index": self._open[0], "delta": delta}

    def _close(self) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            index, self._open = self._open[0], None
            yield {"type": "content_block_stop", "index": index}

    def _close_all(self) -> Iterator[dict[str, Any]]:
        yield from self._close()
        for index in self._calls.values():
            yield {"type": "content_block_stop", "index": index}
        self._calls = {}

    def _end(self) -> Iterator[dict[str, Any]]:
        if self._over or self._stopped is None:
            return
        self._over = True
        delta = {"stop_reason": STOP[self._stopped.reason], "stop_sequence": self._stopped.sequence}
        usage = {"output_tokens": None} if self._usage is None else messages_usage(self._usage)
        yield {"type": "message_delta", "delta": delta, "usage": usage}
        yield {"type": "message_stop"}
