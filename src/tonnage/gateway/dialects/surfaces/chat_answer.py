"""OpenAI's chat completions: writing an answer and a stream.

Reasoning is in `reasoning_content`; what a provider signed or hid is in `thinking_blocks`, in Anthropic's
words, so that a client which sends the message back sends the proof with it.
"""

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
)
from tonnage.gateway.dialects.errors import error_body
from tonnage.gateway.dialects.usage import Usage

FINISH: Final[dict[StopReason, str]] = {
    "end": "stop", "stop-sequence": "stop", "paused": "stop", "length": "length", "context": "length",
    "tool": "tool_calls", "filtered": "content_filter",
}  # fmt: skip


def write_chat(answer: ModelAnswer, *, id_: str, model: str, created: int) -> dict[str, Any]:
    """`id_` and `model` are used where the upstream says none."""
    texts = [part.text for part in answer.parts if isinstance(part, Text)]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None, "refusal": None}
    thoughts = [part for part in answer.parts if isinstance(part, Thinking | Redacted)]
    if words := "".join(part.text for part in thoughts if isinstance(part, Thinking)):
        message["reasoning_content"] = words
    if signed := [_block(part) for part in thoughts if isinstance(part, Redacted) or part.signature]:
        message["thinking_blocks"] = signed
    calls = [part for part in answer.parts if isinstance(part, ToolCall)]
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": FINISH[answer.stop]}
    said: dict[str, Any] = {
        "id": answer.id or id_, "object": "chat.completion", "created": created, "model": answer.model or model,
        "choices": [choice],
    }  # fmt: skip
    if answer.usage is not None:
        said["usage"] = chat_usage(answer.usage)
    return said


def chat_usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _block(part: Thinking | Redacted) -> dict[str, Any]:
    if isinstance(part, Redacted):
        return {"type": "redacted_thinking", "data": part.data}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


class ChatStream:
    """Events -> server-sent events. `include_usage`: the client asked for the last chunk with the counts."""

    def __init__(self, *, id_: str, model: str, created: int, include_usage: bool) -> None:
        self._id, self._model, self._created, self._include_usage = id_, model, created, include_usage
        self._usage: Usage | None = None
        self._thought: list[str] = []
        self._begun = self._over = False

    def write(self, event: Event) -> bytes:
        return b"".join(_sse(said) for said in self._said(event)) + self._last(event)

    def _said(self, event: Event) -> Iterator[dict[str, Any]]:
        if isinstance(event, Began):
            self._id, self._model = event.id or self._id, event.model or self._model
        if isinstance(event, Counted):
            self._usage = event.usage
            return
        if isinstance(event, Failed):
            self._over = True
            yield error_body("chat", event.status, None, event.message)
            return
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""})
        delta = self._delta(event)
        if delta:
            yield self._chunk(delta)
        if isinstance(event, Stopped):
            yield self._chunk({}, finish=FINISH[event.reason])

    def _delta(self, event: Event) -> dict[str, Any]:
        match event:
            case TextPiece(text=text):
                return {"content": text}
            case ThinkingPiece(text=text):
                self._thought.append(text)
                return {"reasoning_content": text}
            case Signed(signature=signature):
                whole, self._thought = "".join(self._thought), []
                return {"thinking_blocks": [_block(Thinking(text=whole, signature=signature))]}
            case RedactedPiece(data=data):
                return {"thinking_blocks": [_block(Redacted(data=data))]}
            case CallBegan(ordinal=ordinal, id=id_, name=name):
                function = {"name": name, "arguments": ""}
                return {"tool_calls": [{"index": ordinal, "id": id_, "type": "function", "function": function}]}
            case CallPiece(ordinal=ordinal, arguments=arguments):
                return {"tool_calls": [{"index": ordinal, "function": {"arguments": arguments}}]}
        return {}

    def _last(self, event: Event) -> bytes:
        if not isinstance(event, Ended) or self._over:
            return b""
        self._over = True
        counts = b""
        if self._include_usage and self._usage is not None:
            counts = _sse({**self._head(), "choices": [], "usage": chat_usage(self._usage)})
        return counts + b"data: [DONE]\n\n"

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._id, "object": "chat.completion.chunk", "created": self._created, "model": self._model,
        }  # fmt: skip

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**self._head(), "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}


def _sse(said: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(said) + b"\n\n"
