"""Upstreams that speak Anthropic's messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from tonnage.gateway.dialects.conversation import (
    Began,
    CallBegan,
    CallPiece,
    Conversation,
    Counted,
    Document,
    Ended,
    Event,
    Failed,
    Image,
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
    Tool,
    ToolCall,
    ToolResult,
    UntranslatableRequest,
    UpstreamRequest,
)
from tonnage.gateway.dialects.errors import status_of
from tonnage.gateway.dialects.event_stream import EventReader
from tonnage.gateway.dialects.fields import arguments_object
from tonnage.gateway.dialects.upstreams.decoding import integer, mapping, objects, parsed, text
from tonnage.gateway.dialects.usage import read_usage

STOPS: Final[dict[str, StopReason]] = {
    "end_turn": "end", "max_tokens": "length", "stop_sequence": "stop-sequence", "tool_use": "tool",
    "pause_turn": "paused", "refusal": "filtered", "model_context_window_exceeded": "context",
}  # fmt: skip
DEFAULT_MAX_TOKENS: Final = 4096
UNSIGNED: Final = "thinking that no provider signed: it is not sent back"


def write_request(said: Conversation, model: str) -> UpstreamRequest:
    """Raises UntranslatableRequest."""
    if said.json_object:
        raise UntranslatableRequest(
            "response_format.type", "'json_object' has no counterpart in Anthropic's dialect", hint="give a json_schema"
        )
    if said.temperature is not None and said.temperature > 1:
        raise UntranslatableRequest("temperature", "is above 1, which is the most in Anthropic's dialect")
    dropped = list(said.dropped)
    if said.max_tokens is None:
        dropped.append(f"max_tokens is {DEFAULT_MAX_TOKENS}: Anthropic's dialect needs one and the request has none")
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": said.max_tokens if said.max_tokens is not None else DEFAULT_MAX_TOKENS,
        "messages": [
            {"role": turn.role, "content": [_block(part) for part in _sendable(turn.parts, dropped)]}
            for turn in said.turns
        ],
    }
    optional = {
        "system": [_block(part) for part in said.system], "temperature": said.temperature, "top_p": said.top_p,
        "top_k": said.top_k, "stop_sequences": list(said.stop), "tools": [_tool(tool) for tool in said.tools],
        "tool_choice": _choice(said), "metadata": {"user_id": said.user} if said.user else None,
        "output_config": _output(said, dropped), "thinking": thinking_of(said), "stream": said.stream or None,
    }  # fmt: skip
    body.update({name: value for name, value in optional.items() if value not in (None, [], {})})
    return UpstreamRequest(path="/messages", body=body, stream=said.stream, dropped=tuple(dropped))


def _sendable(parts: tuple[Part, ...], dropped: list[str]) -> Iterator[Part]:
    for part in parts:
        if isinstance(part, Thinking) and not part.signature:
            if UNSIGNED not in dropped:
                dropped.append(UNSIGNED)
        else:
            yield part


def _block(part: Part) -> dict[str, Any]:
    block = _plain_block(part)
    cache = getattr(part, "cache", None)
    if cache is not None:
        block["cache_control"] = cache_control(cache)
    return block


def cache_control(ttl: str) -> dict[str, Any]:
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}


def _plain_block(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=words):
            return {"type": "text", "text": words}
        case Image(url=url, media_type=media_type, data=data):
            inline = {"type": "base64", "media_type": media_type, "data": data}
            return {"type": "image", "source": {"type": "url", "url": url} if url is not None else inline}
        case Document(name=name, url=url, data=data):
            inline = {"type": "base64", "media_type": "application/pdf", "data": data}
            block = {"type": "document", "source": {"type": "url", "url": url} if url is not None else inline}
            return block if name is None else {**block, "title": name}
        case ToolCall(id=id_, name=name, arguments=arguments):
            called = arguments_object(arguments, f"tool_calls.{id_}.arguments")
            return {"type": "tool_use", "id": id_, "name": name, "input": called}
        case ToolResult(id=id_, parts=parts, failed=failed):
            result = {"type": "tool_result", "tool_use_id": id_, "content": [_block(one) for one in parts]}
            return {**result, "is_error": True} if failed else result
        case Thinking(text=words, signature=signature):
            return {"type": "thinking", "thinking": words, "signature": signature}
        case Redacted(data=data):
            return {"type": "redacted_thinking", "data": data}


def _tool(tool: Tool) -> dict[str, Any]:
    said: dict[str, Any] = {"name": tool.name, "input_schema": dict(tool.schema)}
    if tool.description is not None:
        said["description"] = tool.description
    if tool.strict is not None:
        said["strict"] = tool.strict
    if tool.cache is not None:
        said["cache_control"] = cache_control(tool.cache)
    return said


def _choice(said: Conversation) -> dict[str, Any] | None:
    choice = said.choice
    if choice is None and said.parallel_calls is None:
        return None
    kind = choice.kind if choice is not None else "auto"
    if not said.tools and kind in ("auto", "none"):
        return None
    found: dict[str, Any] = {"type": kind}
    if choice is not None and choice.name is not None:
        found["name"] = choice.name
    if said.parallel_calls is not None and kind != "none":
        found["disable_parallel_tool_use"] = not said.parallel_calls
    return found


def _output(said: Conversation, dropped: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    effort = effort_of(said, dropped)
    if effort is not None:
        found["effort"] = effort
    if said.schema is not None:
        found["format"] = {"type": "json_schema", "schema": dict(said.schema.schema)}
    return found


def effort_of(said: Conversation, dropped: list[str]) -> str | None:
    """Anthropic has no effort below `low`; `none` is thinking switched off."""
    if said.effort == "minimal":
        dropped.append("reasoning_effort is low: there is no `minimal`")
        return "low"
    return None if said.effort == "none" else said.effort


def thinking_of(said: Conversation) -> dict[str, Any] | None:
    if said.thinking is not None:
        return dict(said.thinking)
    return {"type": "disabled"} if said.effort == "none" else None


def read_answer(body: Mapping[str, Any]) -> ModelAnswer:
    """Blocks of tools that the provider itself runs are left out: a request that is translated cannot ask for them."""
    parts = [part for block in objects(body, "content") if (part := _part(block)) is not None]
    return ModelAnswer(
        id=text(body, "id"), model=text(body, "model"), parts=tuple(parts),
        stop=STOPS.get(text(body, "stop_reason") or "", "end"), stop_sequence=text(body, "stop_sequence"),
        usage=read_usage("messages", body),
    )  # fmt: skip


def _part(block: Mapping[str, Any]) -> Part | None:
    match block.get("type"):
        case "text":
            return Text(text=text(block, "text") or "")
        case "thinking":
            return Thinking(text=text(block, "thinking") or "", signature=text(block, "signature"))
        case "redacted_thinking":
            return Redacted(data=text(block, "data") or "")
        case "tool_use":
            arguments = orjson.dumps(block.get("input") or {}).decode()
            return ToolCall(id=text(block, "id") or "", name=text(block, "name") or "", arguments=arguments)
    return None


class AnthropicStream:
    """Bytes -> events."""

    def __init__(self) -> None:
        self._sse = EventReader()
        self._usage: dict[str, Any] = {}
        self._calls: dict[int, int] = {}  # index of a block -> ordinal of its call

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Raises UpstreamNonsense."""
        for data in self._sse.feed(piece):
            yield from self._read(parsed(data))

    def _read(self, said: Mapping[str, Any]) -> Iterator[Event]:
        kind = said.get("type")
        if kind == "message_start":
            message = mapping(said, "message")
            self._usage = dict(mapping(message, "usage"))
            usage = read_usage("messages", {"usage": self._usage})
            yield Began(id=text(message, "id"), model=text(message, "model"), usage=usage)
        elif kind == "content_block_start":
            yield from self._block(integer(said, "index") or 0, mapping(said, "content_block"))
        elif kind == "content_block_delta":
            yield from self._delta(integer(said, "index") or 0, mapping(said, "delta"))
        elif kind == "message_delta":
            yield from self._stop(said)
        elif kind == "message_stop":
            yield Ended()
        elif kind == "error":
            error = mapping(said, "error")
            name = text(error, "type") or ""
            yield Failed(status=status_of(name), message=text(error, "message") or name or "it failed")

    def _block(self, index: int, block: Mapping[str, Any]) -> Iterator[Event]:
        match block.get("type"):
            case "text" if text(block, "text"):
                yield TextPiece(text=text(block, "text") or "")
            case "redacted_thinking":
                yield RedactedPiece(data=text(block, "data") or "")
            case "tool_use":
                ordinal = self._calls[index] = len(self._calls)
                yield CallBegan(ordinal=ordinal, id=text(block, "id") or "", name=text(block, "name") or "")

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[Event]:
        match delta.get("type"):
            case "text_delta":
                yield TextPiece(text=text(delta, "text") or "")
            case "thinking_delta":
                yield ThinkingPiece(text=text(delta, "thinking") or "")
            case "signature_delta":
                yield Signed(signature=text(delta, "signature") or "")
            case "input_json_delta" if index in self._calls and text(delta, "partial_json"):
                yield CallPiece(ordinal=self._calls[index], arguments=text(delta, "partial_json") or "")

    def _stop(self, said: Mapping[str, Any]) -> Iterator[Event]:
        self._usage |= {name: value for name, value in mapping(said, "usage").items() if value is not None}
        usage = read_usage("messages", {"usage": self._usage})
        if usage is not None:
            yield Counted(usage=usage)
        delta = mapping(said, "delta")
        reason = text(delta, "stop_reason")
        if reason is not None:
            yield Stopped(reason=STOPS.get(reason, "end"), sequence=text(delta, "stop_sequence"))


read_stream = AnthropicStream  # as every dialect names it
