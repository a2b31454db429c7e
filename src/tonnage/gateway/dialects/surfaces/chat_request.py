"""OpenAI's chat completions: reading a request.

Source: the API reference of chat completions, as the types of the official Python library state it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tonnage.gateway.dialects.conversation import (
    AnswerSchema,
    Conversation,
    Document,
    Image,
    Part,
    Redacted,
    Role,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
    UntranslatableRequest,
)
from tonnage.gateway.dialects.fields import Fields, cache_of, data_url, strings

HINTS: Final = (
    "seed", "store", "metadata", "service_tier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "prediction", "verbosity",
)  # fmt: skip
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def read_chat(body: Mapping[str, Any]) -> Conversation:
    """Raises UntranslatableRequest, which names the field."""
    fields = Fields(body)
    fields.take("model", str)
    system, turns, dropped = _messages(fields.need("messages", list))
    for name, allowed in (("n", (1,)), ("logprobs", (False,)), ("top_logprobs", (0,)), ("modalities", (["text"],)),
                          ("presence_penalty", (0,)), ("frequency_penalty", (0,)), ("logit_bias", ({},))):  # fmt: skip
        fields.only(name, *allowed)
    fields.only("functions", why="is deprecated: use `tools`")
    fields.only("function_call", why="is deprecated: use `tool_choice`")
    options = fields.take("stream_options", dict) or {}
    dropped += [f"stream_options.{name}" for name in options if name != "include_usage"]
    dropped += fields.drop(*HINTS)
    schema, json_object = _response_format(fields)
    effort = fields.take("reasoning_effort", str)
    if effort is not None and effort not in EFFORTS:
        raise UntranslatableRequest("reasoning_effort", f"is none of {', '.join(EFFORTS)}")
    user = fields.take("safety_identifier", str)
    most, most_before = fields.take("max_completion_tokens", int), fields.take("max_tokens", int)
    found = Conversation(
        turns=turns,
        system=system,
        tools=tuple(_tools(fields.take("tools", list) or [])),
        choice=_choice(fields.take("tool_choice", (str, dict))),
        parallel_calls=fields.take("parallel_tool_calls", bool),
        max_tokens=most if most is not None else most_before,
        temperature=fields.number("temperature"),
        top_p=fields.number("top_p"),
        top_k=fields.take("top_k", int),
        stop=strings(fields, "stop"),
        schema=schema,
        json_object=json_object,
        effort=effort,
        user=fields.take("user", str) or user,
        stream=fields.take("stream", bool) or False,
        dropped=tuple(dropped),
    )
    fields.end()
    return found


def _messages(said: list[Any]) -> tuple[tuple[Text, ...], tuple[Turn, ...], list[str]]:
    """System texts and turns; neighbours of one role are one turn, as tool results and what the user adds are."""
    system: list[Text] = []
    turns: list[tuple[Role, list[Part]]] = []
    dropped: list[str] = []
    for index, message in enumerate(said):
        fields = Fields(message, f"messages[{index}]")
        role = fields.need("role", str)
        if role in ("system", "developer"):
            if turns:
                dropped.append(f"the place of {fields.where}: instructions stand first in the upstream's dialect")
            system += _texts(fields)
        else:
            side, parts = _turn(role, fields)
            if turns and turns[-1][0] == side:
                turns[-1][1].extend(parts)
            elif parts:
                turns.append((side, parts))
        dropped += fields.drop("name", "annotations")
        fields.end()
    return tuple(system), tuple(Turn(role=side, parts=tuple(parts)) for side, parts in turns), dropped


def _turn(role: str, fields: Fields) -> tuple[Role, list[Part]]:
    if role == "user":
        return "user", list(_content(fields))
    if role == "assistant":
        return "assistant", list(_assistant(fields))
    if role == "tool":
        id_ = fields.need("tool_call_id", str)
        cache = cache_of(fields)
        return "user", [ToolResult(id=id_, parts=tuple(_content(fields)), cache=cache)]
    raise UntranslatableRequest(fields.at("role"), f"'{role}' has no counterpart in the upstream's dialect")


def _assistant(fields: Fields) -> Iterator[Part]:
    for index, block in enumerate(fields.take("thinking_blocks", list) or []):
        yield _thinking(Fields(block, f"{fields.at('thinking_blocks')}[{index}]"))
    fields.take("reasoning_content", str)  # the words of `thinking_blocks`, which alone are signed
    fields.only("audio")
    fields.only("function_call", why="is deprecated: use `tool_calls`")
    yield from _content(fields)
    refusal = fields.take("refusal", str)
    if refusal:
        yield Text(text=refusal)
    for index, call in enumerate(fields.take("tool_calls", list) or []):
        inner = Fields(call, f"{fields.at('tool_calls')}[{index}]")
        inner.only("type", "function")
        inner.take("index", int)
        function = Fields(inner.need("function", dict), inner.at("function"))
        yield ToolCall(
            id=inner.need("id", str), name=function.need("name", str), arguments=function.take("arguments", str) or ""
        )
        function.end()
        inner.end()


def _thinking(fields: Fields) -> Part:
    kind = fields.need("type", str)
    part: Part = (
        Redacted(data=fields.need("data", str))
        if kind == "redacted_thinking"
        else Thinking(text=fields.need("thinking", str), signature=fields.take("signature", str))
    )
    fields.end()
    return part


def _texts(fields: Fields) -> list[Text]:
    found = list(_content(fields))
    texts = [part for part in found if isinstance(part, Text)]
    if len(texts) != len(found):
        raise UntranslatableRequest(fields.at("content"), "is not text alone")
    return texts


def _content(fields: Fields) -> Iterator[Text | Image | Document]:
    content = fields.take("content", (str, list))
    cache = cache_of(fields)
    if isinstance(content, str):
        if content:
            yield Text(text=content, cache=cache)
        return
    for index, part in enumerate(content or []):
        inner = Fields(part, f"{fields.at('content')}[{index}]")
        yield _part(inner)
        inner.end()


def _part(fields: Fields) -> Text | Image | Document:
    kind = fields.need("type", str)
    if kind in ("text", "refusal"):
        return Text(text=fields.need(kind, str), cache=cache_of(fields))
    if kind == "image_url":
        inner = Fields(fields.need("image_url", dict), fields.at("image_url"))
        url = inner.need("url", str)
        inner.take("detail", str)  # a hint of how finely to look; elsewhere the provider decides
        inner.end()
        inside = data_url(url)
        cache = cache_of(fields)
        if inside is None:
            return Image(url=url, cache=cache)
        return Image(media_type=inside[0], data=inside[1], cache=cache)
    if kind == "file":
        return _file(Fields(fields.need("file", dict), fields.at("file")), cache_of(fields))
    raise UntranslatableRequest(fields.at("type"), f"'{kind}' has no counterpart in the upstream's dialect")


def _file(fields: Fields, cache: str | None) -> Document:
    fields.only("file_id", why="names a file that the upstream does not have: send its `file_data`")
    inside = data_url(fields.need("file_data", str))
    if inside is None or inside[0] != "application/pdf":
        raise UntranslatableRequest(fields.at("file_data"), "is no PDF as a base64 data URL")
    found = Document(name=fields.take("filename", str), data=inside[1], cache=cache)
    fields.end()
    return found


def _tools(said: list[Any]) -> Iterator[Tool]:
    for index, tool in enumerate(said):
        fields = Fields(tool, f"tools[{index}]")
        fields.only("type", "function")
        cache = cache_of(fields)
        function = Fields(fields.need("function", dict), fields.at("function"))
        yield Tool(
            name=function.need("name", str),
            description=function.take("description", str),
            schema=function.take("parameters", dict) or {"type": "object", "properties": {}},
            strict=function.take("strict", bool),
            cache=cache,
        )
        function.end()
        fields.end()


def _choice(said: str | dict[str, Any] | None) -> ToolChoice | None:
    if said is None:
        return None
    if isinstance(said, dict):
        fields = Fields(said, "tool_choice")
        fields.only("type", "function")
        function = Fields(fields.need("function", dict), "tool_choice.function")
        fields.end()
        return ToolChoice(kind="tool", name=function.need("name", str))
    if said == "required":
        return ToolChoice(kind="any")
    if said == "auto":
        return ToolChoice(kind="auto")
    if said == "none":
        return ToolChoice(kind="none")
    raise UntranslatableRequest("tool_choice", f"'{said}' is none of auto, none, required or a function")


def _response_format(fields: Fields) -> tuple[AnswerSchema | None, bool]:
    said = fields.take("response_format", dict)
    if said is None:
        return None, False
    inner = Fields(said, "response_format")
    kind = inner.need("type", str)
    if kind in ("text", "json_object"):
        return None, kind == "json_object"
    if kind != "json_schema":
        raise UntranslatableRequest("response_format.type", f"'{kind}' has no counterpart in the upstream's dialect")
    schema = Fields(inner.need("json_schema", dict), "response_format.json_schema")
    found = AnswerSchema(
        schema=schema.need("schema", dict),
        name=schema.take("name", str) or "answer",
        description=schema.take("description", str),
        strict=schema.take("strict", bool),
    )
    schema.end()
    return found, False
