"""Upstreams that speak OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

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
    Stopped,
    StopReason,
    Text,
    TextPiece,
    Thinking,
    ThinkingPiece,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
    UntranslatableRequest,
    UpstreamNonsense,
    UpstreamRequest,
)
from tonnage.gateway.dialects.errors import status_of
from tonnage.gateway.dialects.event_stream import EventReader
from tonnage.gateway.dialects.upstreams.decoding import integer, mapping, objects, parsed, text
from tonnage.gateway.dialects.usage import read_usage

STOPS: Final[dict[str, StopReason]] = {
    "stop": "end", "length": "length", "tool_calls": "tool", "function_call": "tool", "content_filter": "filtered",
}  # fmt: skip
CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def write_request(said: Conversation, model: str) -> UpstreamRequest:
    """Raises UntranslatableRequest."""
    if said.top_k is not None:
        raise UntranslatableRequest("top_k", "has no counterpart in OpenAI's dialect")
    dropped = list(said.dropped)
    body: dict[str, Any] = {"model": model, "messages": list(_messages(said, dropped))}
    _set(body, "max_completion_tokens", said.max_tokens)
    _set(body, "temperature", said.temperature)
    _set(body, "top_p", said.top_p)
    _set(body, "stop", list(said.stop) or None)
    _set(body, "user", said.user)
    _set(body, "reasoning_effort", said.effort)
    _set(body, "parallel_tool_calls", said.parallel_calls if said.tools else None)
    _set(body, "tools", [_tool(tool) for tool in said.tools] or None)
    _set(body, "tool_choice", _choice(said.choice))
    _set(body, "response_format", _response_format(said))
    if said.thinking is not None:
        dropped.append("thinking: an upstream of OpenAI's dialect decides itself how long it thinks")
    if any(_cached(said)):
        dropped.append("cache_control: an upstream of OpenAI's dialect decides itself what it keeps")
    if said.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return UpstreamRequest(path="/chat/completions", body=body, stream=said.stream, dropped=tuple(dropped))


def _set(body: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        body[name] = value


def _cached(said: Conversation) -> Iterator[bool]:
    yield from (part.cache is not None for part in said.system)
    yield from (tool.cache is not None for tool in said.tools)
    for turn in said.turns:
        yield from (getattr(part, "cache", None) is not None for part in turn.parts)


def _messages(said: Conversation, dropped: list[str]) -> Iterator[dict[str, Any]]:
    if said.system:
        yield {"role": "system", "content": "\n\n".join(part.text for part in said.system)}
    for turn in said.turns:
        yield from _assistant(turn, dropped) if turn.role == "assistant" else _user(turn)


def _assistant(turn: Turn, dropped: list[str]) -> Iterator[dict[str, Any]]:
    texts = [part.text for part in turn.parts if isinstance(part, Text)]
    calls = [part for part in turn.parts if isinstance(part, ToolCall)]
    note = "thinking of earlier turns: OpenAI's dialect has no place for it"
    if any(isinstance(part, Thinking | Redacted) for part in turn.parts) and note not in dropped:
        dropped.append(note)
    if any(isinstance(part, Image | Document | ToolResult) for part in turn.parts):
        raise UntranslatableRequest("messages", "hold an image, a document or a tool's result of the assistant")
    if not texts and not calls:
        return
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts else None}
    if calls:
        message["tool_calls"] = [
            {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in calls
        ]
    yield message


def _user(turn: Turn) -> Iterator[dict[str, Any]]:
    """Results of tools first, each a message of its own, then what the user says."""
    content = []
    for part in turn.parts:
        if isinstance(part, ToolResult):
            yield _result(part)
        elif isinstance(part, Text | Image | Document):
            content.append(_part(part))
        else:
            raise UntranslatableRequest("messages", "hold a call or thinking of the user")
    if len(content) == 1 and content[0]["type"] == "text":
        yield {"role": "user", "content": content[0]["text"]}
    elif content:
        yield {"role": "user", "content": content}


def _result(result: ToolResult) -> dict[str, Any]:
    texts = [part.text for part in result.parts if isinstance(part, Text)]
    if len(texts) != len(result.parts):
        raise UntranslatableRequest("tool_result.content", "is not text alone, which is all that OpenAI's dialect has")
    said = "".join(texts)
    return {"role": "tool", "tool_call_id": result.id, "content": f"Error: {said}" if result.failed else said}


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=words):
            return {"type": "text", "text": words}
        case Image(url=url, media_type=media_type, data=data):
            return {"type": "image_url", "image_url": {"url": url or f"data:{media_type};base64,{data}"}}
        case Document(name=name, data=data) if data is not None:
            inner = {"filename": name or "document.pdf", "file_data": f"data:application/pdf;base64,{data}"}
            return {"type": "file", "file": inner}
    raise UntranslatableRequest("document.source", "is a URL, which OpenAI's dialect has no word for")


def _tool(tool: Any) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": dict(tool.schema)}
    _set(function, "description", tool.description)
    _set(function, "strict", tool.strict)
    return {"type": "function", "function": function}


def _choice(choice: ToolChoice | None) -> Any:
    if choice is None:
        return None
    if choice.kind == "tool":
        return {"type": "function", "function": {"name": choice.name}}
    return CHOICES[choice.kind]


def _response_format(said: Conversation) -> dict[str, Any] | None:
    if said.schema is None:
        return {"type": "json_object"} if said.json_object else None
    inner: dict[str, Any] = {"name": said.schema.name, "schema": dict(said.schema.schema)}
    _set(inner, "description", said.schema.description)
    _set(inner, "strict", said.schema.strict)
    return {"type": "json_schema", "json_schema": inner}


def read_answer(body: Mapping[str, Any]) -> ModelAnswer:
    """Raises UpstreamNonsense."""
    choices = objects(body, "choices")
    if not choices:
        raise UpstreamNonsense("an answer without choices")
    message = mapping(choices[0], "message")
    parts: list[Part] = []
    if thought := text(message, "reasoning_content") or text(message, "reasoning"):
        parts.append(Thinking(text=thought))
    if words := text(message, "content") or text(message, "refusal"):
        parts.append(Text(text=words))
    for call in objects(message, "tool_calls"):
        function = mapping(call, "function")
        parts.append(
            ToolCall(
                id=text(call, "id") or "",
                name=text(function, "name") or "",
                arguments=text(function, "arguments") or "{}",
            )
        )
    stop: StopReason = STOPS.get(text(choices[0], "finish_reason") or "", "end")
    if stop == "end" and any(isinstance(part, ToolCall) for part in parts):
        stop = "tool"  # some servers say `stop` after a call; a client that waits for calls would miss it
    return ModelAnswer(
        id=text(body, "id"), model=text(body, "model"), parts=tuple(parts), stop=stop, usage=read_usage("chat", body)
    )


class OpenAIStream:
    """Bytes -> events. A call is known by its index and, where servers give all the same index, by its id."""

    def __init__(self) -> None:
        self._sse = EventReader()
        self._begun = False
        self._calls: dict[int, tuple[int, str]] = {}  # the upstream's index -> our ordinal, the id
        self._made = 0

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Raises UpstreamNonsense."""
        for data in self._sse.feed(piece):
            if data.strip() == b"[DONE]":
                yield Ended()
            else:
                yield from self._read(parsed(data))

    def _read(self, said: Mapping[str, Any]) -> Iterator[Event]:
        if isinstance(error := said.get("error"), Mapping):
            kind = text(error, "code") or text(error, "type") or ""
            yield Failed(status=status_of(kind), message=text(error, "message") or kind or "it failed")
            return
        if not self._begun:
            self._begun = True
            yield Began(id=text(said, "id"), model=text(said, "model"))
        choices = objects(said, "choices")
        if choices:
            yield from self._delta(mapping(choices[0], "delta"))
            finish = text(choices[0], "finish_reason")
            if finish is not None:
                stop: StopReason = STOPS.get(finish, "end")
                yield Stopped(reason="tool" if stop == "end" and self._made else stop)
        usage = read_usage("chat", said)
        if usage is not None:
            yield Counted(usage=usage)

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[Event]:
        if thought := text(delta, "reasoning_content") or text(delta, "reasoning"):
            yield ThinkingPiece(text=thought)
        if words := text(delta, "content") or text(delta, "refusal"):
            yield TextPiece(text=words)
        for call in objects(delta, "tool_calls"):
            yield from self._call(call)

    def _call(self, call: Mapping[str, Any]) -> Iterator[Event]:
        function = mapping(call, "function")
        index, id_ = integer(call, "index"), text(call, "id")
        at = index if index is not None else (max(self._calls, default=-1) + (1 if id_ else 0))
        known = self._calls.get(at)
        if known is None or (id_ and id_ != known[1]):
            if not id_:
                raise UpstreamNonsense("a tool call without an id")
            known = self._calls[at] = (self._made, id_)
            self._made += 1
            yield CallBegan(ordinal=known[0], id=id_, name=text(function, "name") or "")
        if arguments := text(function, "arguments"):
            yield CallPiece(ordinal=known[0], arguments=arguments)


read_stream = OpenAIStream  # as every dialect names it
