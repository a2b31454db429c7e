"""Upstreams that speak Amazon Bedrock's Converse and ConverseStream.

Source: the service model of `bedrock-runtime` in botocore.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

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
    ToolCall,
    ToolResult,
    UntranslatableRequest,
    UpstreamRequest,
)
from tonnage.gateway.dialects.errors import status_of
from tonnage.gateway.dialects.event_stream import Message, MessageReader
from tonnage.gateway.dialects.fields import arguments_object
from tonnage.gateway.dialects.upstreams.anthropic import UNSIGNED, effort_of, thinking_of
from tonnage.gateway.dialects.upstreams.decoding import integer, mapping, objects, parsed, text
from tonnage.gateway.dialects.usage import Usage

STOPS: Final[dict[str, StopReason]] = {
    "end_turn": "end", "max_tokens": "length", "stop_sequence": "stop-sequence", "tool_use": "tool",
    "guardrail_intervened": "filtered", "content_filtered": "filtered", "malformed_model_output": "end",
    "malformed_tool_use": "end", "model_context_window_exceeded": "context",
}  # fmt: skip
IMAGES: Final = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}


def write_request(said: Conversation, model: str) -> UpstreamRequest:
    """The model is in the path. Raises UntranslatableRequest."""
    if said.json_object:
        raise UntranslatableRequest(
            "response_format.type", "'json_object' has no counterpart in Converse", hint="give a json_schema"
        )
    if said.temperature is not None and said.temperature > 1:
        raise UntranslatableRequest("temperature", "is above 1, which is the most in Converse")
    if said.parallel_calls is False and said.tools:
        raise UntranslatableRequest("parallel_tool_calls", "cannot be switched off in Converse")
    dropped = list(said.dropped)
    body: dict[str, Any] = {"messages": _messages(said, dropped)}
    optional = {
        "system": [block for part in said.system for block in _blocks(part)],
        "inferenceConfig": _inference(said), "toolConfig": _tools(said), "outputConfig": _output(said, dropped),
        "additionalModelRequestFields": _additional(said),
        "requestMetadata": {"user": said.user} if said.user else None,
    }  # fmt: skip
    body.update({name: value for name, value in optional.items() if value})
    verb = "converse-stream" if said.stream else "converse"
    path = f"/model/{quote(model, safe='')}/{verb}"
    return UpstreamRequest(path=path, body=body, stream=said.stream, dropped=tuple(dropped))


def _messages(said: Conversation, dropped: list[str]) -> list[dict[str, Any]]:
    """Turns alternate: neighbours of one role are one message."""
    found: list[dict[str, Any]] = []
    for turn in said.turns:
        content: list[dict[str, Any]] = []
        for part in turn.parts:
            if isinstance(part, Thinking) and not part.signature:
                if UNSIGNED not in dropped:
                    dropped.append(UNSIGNED)
            else:
                content += _blocks(part)
        if found and found[-1]["role"] == turn.role:
            found[-1]["content"] += content
        else:
            found.append({"role": turn.role, "content": content})
    return found


def _blocks(part: Part) -> Iterator[dict[str, Any]]:
    yield _block(part)
    cache = getattr(part, "cache", None)
    if cache is not None:
        yield _cache_point(cache)


def _cache_point(ttl: str) -> dict[str, Any]:
    return {"cachePoint": {"type": "default"} if ttl == "5m" else {"type": "default", "ttl": ttl}}


def _block(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=words):
            return {"text": words}
        case Image():
            return {"image": _image(part)}
        case Document(name=name, data=data) if data is not None:
            plain = re.sub(r"[^A-Za-z0-9 ()\[\]-]+", "-", name or "document")[:200]
            return {"document": {"format": "pdf", "name": plain, "source": {"bytes": data}}}
        case ToolCall(id=id_, name=name, arguments=arguments):
            called = arguments_object(arguments, f"tool_calls.{id_}.arguments")
            return {"toolUse": {"toolUseId": id_, "name": name, "input": called}}
        case ToolResult(id=id_, parts=parts, failed=failed):
            status = "error" if failed else "success"
            content = [_block(one) for one in parts] or [{"text": ""}]
            return {"toolResult": {"toolUseId": id_, "content": content, "status": status}}
        case Thinking(text=words, signature=signature):
            return {"reasoningContent": {"reasoningText": {"text": words, "signature": signature}}}
        case Redacted(data=data):
            return {"reasoningContent": {"redactedContent": data}}
    raise UntranslatableRequest("document.source", "is a URL, which Converse does not read")


def _image(image: Image) -> dict[str, Any]:
    if image.data is None:
        raise UntranslatableRequest("image_url", "is a URL, which Converse does not read", hint="send the image itself")
    form = IMAGES.get(image.media_type or "")
    if form is None:
        raise UntranslatableRequest("image_url", f"is of type '{image.media_type}', which Converse does not read")
    return {"format": form, "source": {"bytes": image.data}}


def _inference(said: Conversation) -> dict[str, Any]:
    stated = {
        "maxTokens": said.max_tokens, "temperature": said.temperature, "topP": said.top_p,
        "stopSequences": list(said.stop) or None,
    }  # fmt: skip
    return {name: value for name, value in stated.items() if value is not None}


def _tools(said: Conversation) -> dict[str, Any] | None:
    """Converse has no word for `none`: without tools the model calls none."""
    kind = said.choice.kind if said.choice is not None else "auto"
    if not said.tools:
        return None
    if kind == "none":
        if any(isinstance(part, ToolCall | ToolResult) for turn in said.turns for part in turn.parts):
            raise UntranslatableRequest("tool_choice", "'none' has no counterpart in Converse after a tool's call")
        return None
    tools: list[dict[str, Any]] = []
    for tool in said.tools:
        spec: dict[str, Any] = {"name": tool.name, "inputSchema": {"json": dict(tool.schema)}}
        if tool.description:
            spec["description"] = tool.description
        if tool.strict is not None:
            spec["strict"] = tool.strict
        tools.append({"toolSpec": spec})
        if tool.cache is not None:
            tools.append(_cache_point(tool.cache))
    found: dict[str, Any] = {"tools": tools}
    if said.choice is not None:
        found["toolChoice"] = {kind: {"name": said.choice.name} if kind == "tool" else {}}
    return found


def _output(said: Conversation, dropped: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    effort = effort_of(said, dropped)
    if effort is not None:
        found["effort"] = effort
    if said.schema is not None:
        schema = {"schema": orjson.dumps(dict(said.schema.schema)).decode(), "name": said.schema.name}
        if said.schema.description is not None:
            schema["description"] = said.schema.description
        found["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": schema}}
    return found


def _additional(said: Conversation) -> dict[str, Any]:
    """What Converse leaves to the words of the model's own provider."""
    stated = {"top_k": said.top_k, "thinking": thinking_of(said)}
    return {name: value for name, value in stated.items() if value is not None}


def read_usage(said: Mapping[str, Any]) -> Usage | None:
    """Converse counts input that was read from or written to a cache beside the rest."""
    fresh, written = integer(said, "inputTokens"), integer(said, "outputTokens")
    if fresh is None or written is None:
        return None
    cached, kept = integer(said, "cacheReadInputTokens") or 0, integer(said, "cacheWriteInputTokens") or 0
    return Usage(
        input_tokens=fresh + cached + kept, output_tokens=written, cached_input_tokens=cached, cache_write_tokens=kept
    )


def read_answer(body: Mapping[str, Any]) -> ModelAnswer:
    """Converse says neither id nor model."""
    blocks = objects(mapping(mapping(body, "output"), "message"), "content")
    return ModelAnswer(
        id=None, model=None, parts=tuple(part for block in blocks if (part := _part(block)) is not None),
        stop=STOPS.get(text(body, "stopReason") or "", "end"), usage=read_usage(mapping(body, "usage")),
    )  # fmt: skip


def _part(block: Mapping[str, Any]) -> Part | None:
    if "text" in block:
        return Text(text=text(block, "text") or "")
    if "toolUse" in block:
        use = mapping(block, "toolUse")
        arguments = orjson.dumps(use.get("input") or {}).decode()
        return ToolCall(id=text(use, "toolUseId") or "", name=text(use, "name") or "", arguments=arguments)
    if "citationsContent" in block:
        listed = objects(mapping(block, "citationsContent"), "content")
        return Text(text="".join(text(one, "text") or "" for one in listed))
    if "reasoningContent" in block:
        reasoning = mapping(block, "reasoningContent")
        hidden = text(reasoning, "redactedContent")
        if hidden is not None:
            return Redacted(data=hidden)
        words = mapping(reasoning, "reasoningText")
        return Thinking(text=text(words, "text") or "", signature=text(words, "signature"))
    return None


class ConverseStream:
    """Bytes -> events."""

    def __init__(self) -> None:
        self._messages = MessageReader()
        self._calls: dict[int, int] = {}  # index of a block -> ordinal of its call
        self._begun = False

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Raises UpstreamNonsense."""
        for message in self._messages.feed(piece):
            yield from self._read(message)

    def _read(self, message: Message) -> Iterator[Event]:
        said = parsed(message.payload) if message.payload else {}
        kind = message.headers.get(":message-type")
        if kind != "event":
            name = message.headers.get(":exception-type") or message.headers.get(":error-code") or ""
            words = text(said, "message") or message.headers.get(":error-message") or name or "it failed"
            yield Failed(status=status_of(name), message=words)
            return
        event = message.headers.get(":event-type")
        if event == "messageStart":
            yield Began()
        elif event == "contentBlockStart":
            use = mapping(mapping(said, "start"), "toolUse")
            if use:
                ordinal = self._calls[integer(said, "contentBlockIndex") or 0] = len(self._calls)
                yield CallBegan(ordinal=ordinal, id=text(use, "toolUseId") or "", name=text(use, "name") or "")
        elif event == "contentBlockDelta":
            yield from self._delta(integer(said, "contentBlockIndex") or 0, mapping(said, "delta"))
        elif event == "messageStop":
            yield Stopped(reason=STOPS.get(text(said, "stopReason") or "", "end"))
        elif event == "metadata":
            usage = read_usage(mapping(said, "usage"))
            if usage is not None:
                yield Counted(usage=usage)
            yield Ended()

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[Event]:
        if words := text(delta, "text"):
            yield TextPiece(text=words)
        arguments = text(mapping(delta, "toolUse"), "input")
        if arguments and index in self._calls:
            yield CallPiece(ordinal=self._calls[index], arguments=arguments)
        reasoning = mapping(delta, "reasoningContent")
        if thought := text(reasoning, "text"):
            yield ThinkingPiece(text=thought)
        if signature := text(reasoning, "signature"):
            yield Signed(signature=signature)
        if hidden := text(reasoning, "redactedContent"):
            yield RedactedPiece(data=hidden)


read_stream = ConverseStream  # as every dialect names it
