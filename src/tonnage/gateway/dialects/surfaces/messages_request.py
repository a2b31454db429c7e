"""Anthropic's messages: reading a request.

Source: the API reference of messages, as the types of the official Python library state it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from tonnage.gateway.dialects.conversation import (
    AnswerSchema,
    Conversation,
    Document,
    Image,
    Part,
    Redacted,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
    UntranslatableRequest,
)
from tonnage.gateway.dialects.fields import Fields, cache_of, strings


def read_messages(body: Mapping[str, Any]) -> Conversation:
    """Raises UntranslatableRequest, which names the field."""
    fields = Fields(body)
    fields.take("model", str)
    turns = tuple(_turn(Fields(said, f"messages[{at}]")) for at, said in enumerate(fields.need("messages", list)))
    system, dropped = fields.take("system", (str, list)), fields.drop("service_tier", "speed", "cache_control")
    choice, parallel = _choice(fields)
    schema, effort = _output(fields)
    metadata = Fields(fields.take("metadata", dict) or {}, "metadata")
    found = Conversation(
        turns=tuple(turn for turn in turns if turn.parts),
        system=tuple(_system(system)),
        tools=tuple(_tools(fields.take("tools", list) or [])),
        choice=choice,
        parallel_calls=parallel,
        max_tokens=fields.need("max_tokens", int),
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        top_k=fields.take("top_k", int),
        stop=strings(fields, "stop_sequences"),
        schema=schema,
        effort=effort,
        thinking=fields.take("thinking", dict),
        user=metadata.take("user_id", str),
        stream=fields.take("stream", bool) or False,
        dropped=tuple(dropped),
    )
    metadata.end()
    fields.end()
    return found


def _turn(fields: Fields) -> Turn:
    role = fields.need("role", str)
    content = fields.take("content", (str, list))
    fields.end()
    if role not in ("user", "assistant"):
        raise UntranslatableRequest(fields.at("role"), f"'{role}' is neither user nor assistant")
    parts = tuple(_blocks(content, fields.at("content")))
    return Turn(role="user" if role == "user" else "assistant", parts=parts)


def _system(said: str | list[Any] | None) -> Iterator[Text]:
    for part in _blocks(said, "system"):
        if not isinstance(part, Text):
            raise UntranslatableRequest("system", "is not text alone")
        yield part


def _blocks(content: str | list[Any] | None, where: str) -> Iterator[Part]:
    if isinstance(content, str):
        if content:
            yield Text(text=content)
        return
    for index, block in enumerate(content or []):
        fields = Fields(block, f"{where}[{index}]")
        yield _block(fields)
        fields.end()


def _block(fields: Fields) -> Part:
    kind = fields.need("type", str)
    cache = cache_of(fields)
    if kind == "text":
        fields.only("citations", [])
        return Text(text=fields.need("text", str), cache=cache)
    if kind == "thinking":
        return Thinking(text=fields.need("thinking", str), signature=fields.take("signature", str))
    if kind == "redacted_thinking":
        return Redacted(data=fields.need("data", str))
    if kind == "image":
        return _image(fields, cache)
    if kind == "document":
        return _document(fields, cache)
    if kind == "tool_use":
        fields.only("caller", {"type": "direct"})
        arguments = orjson.dumps(fields.take("input", dict) or {}).decode()
        return ToolCall(id=fields.need("id", str), name=fields.need("name", str), arguments=arguments, cache=cache)
    if kind == "tool_result":
        return _tool_result(fields, cache)
    raise UntranslatableRequest(fields.at("type"), f"'{kind}' has no counterpart in the upstream's dialect")


def _tool_result(fields: Fields, cache: str | None) -> ToolResult:
    parts = tuple(_blocks(fields.take("content", (str, list)), fields.at("content")))
    allowed = tuple(part for part in parts if isinstance(part, Text | Image | Document))
    if len(allowed) != len(parts):
        raise UntranslatableRequest(fields.at("content"), "holds blocks that are no result")
    failed = fields.take("is_error", bool) or False
    return ToolResult(id=fields.need("tool_use_id", str), parts=allowed, failed=failed, cache=cache)


def _image(fields: Fields, cache: str | None) -> Image:
    source = Fields(fields.need("source", dict), fields.at("source"))
    kind = source.need("type", str)
    if kind == "base64":
        found = Image(media_type=source.need("media_type", str), data=source.need("data", str), cache=cache)
    elif kind == "url":
        found = Image(url=source.need("url", str), cache=cache)
    else:
        raise UntranslatableRequest(source.at("type"), f"'{kind}' names what the upstream does not have")
    source.end()
    return found


def _document(fields: Fields, cache: str | None) -> Document:
    source = Fields(fields.need("source", dict), fields.at("source"))
    kind = source.need("type", str)
    fields.only("citations", {"enabled": False})
    title = fields.take("title", str)
    if kind == "base64":
        source.only("media_type", "application/pdf")
        found = Document(name=title, data=source.need("data", str), cache=cache)
    elif kind == "url":
        found = Document(name=title, url=source.need("url", str), cache=cache)
    else:
        raise UntranslatableRequest(source.at("type"), f"'{kind}' has no counterpart in the upstream's dialect")
    source.end()
    return found


def _tools(said: list[Any]) -> Iterator[Tool]:
    for index, tool in enumerate(said):
        fields = Fields(tool, f"tools[{index}]")
        fields.only("type", "custom", why="is a tool of the provider, which the upstream does not have")
        yield Tool(
            name=fields.need("name", str),
            description=fields.take("description", str),
            schema=fields.need("input_schema", dict),
            strict=fields.take("strict", bool),
            cache=cache_of(fields),
        )
        fields.only("defer_loading", False)
        fields.only("allowed_callers", ["direct"])
        fields.drop("eager_input_streaming", "input_examples")
        fields.end()


def _choice(fields: Fields) -> tuple[ToolChoice | None, bool | None]:
    said = fields.take("tool_choice", dict)
    if said is None:
        return None, None
    inner = Fields(said, "tool_choice")
    kind, single = inner.need("type", str), inner.take("disable_parallel_tool_use", bool)
    name = inner.take("name", str)
    inner.end()
    parallel = None if single is None else not single
    if kind == "auto":
        return ToolChoice(kind="auto"), parallel
    if kind == "any":
        return ToolChoice(kind="any"), parallel
    if kind == "none":
        return ToolChoice(kind="none"), parallel
    if kind == "tool" and name is not None:
        return ToolChoice(kind="tool", name=name), parallel
    raise UntranslatableRequest("tool_choice.type", f"'{kind}' is none of auto, any, none or tool with a name")


def _output(fields: Fields) -> tuple[AnswerSchema | None, str | None]:
    said = Fields(fields.take("output_config", dict) or {}, "output_config")
    effort = said.take("effort", str)
    form = said.take("format", dict)
    said.end()
    if form is None:
        return None, effort
    inner = Fields(form, "output_config.format")
    inner.only("type", "json_schema")
    found = AnswerSchema(schema=inner.need("schema", dict))
    inner.end()
    return found, effort
