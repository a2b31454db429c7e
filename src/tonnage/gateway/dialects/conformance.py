"""Which field of a request goes where: made by sending each field through the translation and looking at the outcome.

`python -m tonnage.gateway.dialects.conformance > docs/gateway-dialects.md` writes the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tonnage.gateway.dialects.conversation import UntranslatableRequest
from tonnage.gateway.dialects.translation import TRANSLATED, translator
from tonnage.gateway.dialects.usage import Dialect, Surface

_SCHEMA: Final = {"type": "object", "properties": {}}
_PIXEL: Final = "iVBORw0KGgo="
_CALL: Final = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_TOOL: Final = {"type": "function", "function": {"name": "f", "parameters": _SCHEMA}}
_FORM: Final = {"type": "json_schema", "json_schema": {"name": "a", "schema": _SCHEMA}}
_BLOCK: Final = {"type": "thinking", "thinking": "t", "signature": "s"}


def _says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content, **more}]}


def _user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return _says("user", list(blocks))


def _image(url: str) -> dict[str, Any]:
    return _user({"type": "image_url", "image_url": {"url": url}})


def _source(**source: str) -> dict[str, Any]:
    return _user({"type": "image", "source": source})


CHAT: Final[dict[str, dict[str, Any]]] = {
    "system message": _says("system", "x"),
    "assistant's `tool_calls`": _says("assistant", None, tool_calls=[_CALL]),
    "assistant's `thinking_blocks`": _says("assistant", "x", thinking_blocks=[_BLOCK]),
    "tool message": _says("tool", "x", tool_call_id="c"),
    "image, base64": _image(f"data:image/png;base64,{_PIXEL}"),
    "image, URL": _image("https://a.example/a.png"),
    "PDF, base64": _user({"type": "file", "file": {"file_data": f"data:application/pdf;base64,{_PIXEL}"}}),
    "audio": _user({"type": "input_audio", "input_audio": {"data": _PIXEL, "format": "wav"}}),
    "`cache_control` of a part": _user({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}),
    "`max_completion_tokens`": {"max_completion_tokens": 9}, "`max_tokens`": {"max_tokens": 9},
    "`temperature` to 1": {"temperature": 0.5}, "`temperature` above 1": {"temperature": 1.5},
    "`top_p`": {"top_p": 0.5}, "`top_k`": {"top_k": 5}, "`stop`": {"stop": "x"},
    "`tools`": {"tools": [_TOOL]}, "`tool_choice: required`": {"tools": [_TOOL], "tool_choice": "required"},
    "`tool_choice: none`": {"tools": [_TOOL], "tool_choice": "none"},
    "`tool_choice` of a function": {
        "tools": [_TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}},
    },
    "`parallel_tool_calls: false`": {"tools": [_TOOL], "parallel_tool_calls": False},
    "`response_format: json_schema`": {"response_format": _FORM},
    "`response_format: json_object`": {"response_format": {"type": "json_object"}},
    "`reasoning_effort: high`": {"reasoning_effort": "high"},
    "`reasoning_effort: none`": {"reasoning_effort": "none"},
    "`user`": {"user": "u"}, "`stream`": {"stream": True}, "`seed`": {"seed": 1},
    "`metadata`": {"metadata": {"a": "b"}},
    "`store`": {"store": True}, "`service_tier`": {"service_tier": "flex"},
    "`prompt_cache_key`": {"prompt_cache_key": "k"}, "`verbosity`": {"verbosity": "low"},
    "`n` above 1": {"n": 2}, "`logprobs`": {"logprobs": True}, "`logit_bias`": {"logit_bias": {"1": 1}},
    "`presence_penalty`": {"presence_penalty": 1}, "`frequency_penalty`": {"frequency_penalty": 1},
    "`modalities: audio`": {"modalities": ["audio"]}, "`web_search_options`": {"web_search_options": {"a": 1}},
    "`functions`": {"functions": [{"name": "f"}]}, "any other field": {"another": 1},
}  # fmt: skip

_OWN_TOOL: Final = {"name": "f", "input_schema": _SCHEMA}
MESSAGES: Final[dict[str, dict[str, Any]]] = {
    "`system`": {"system": "x"},
    "`tool_use`": _says("assistant", [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]),
    "`tool_result`": _user({"type": "tool_result", "tool_use_id": "c", "content": "x"}),
    "`tool_result` with an image": _user({"type": "tool_result", "tool_use_id": "c", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": _PIXEL}}]}),
    "`thinking` block": _says("assistant", [{"type": "text", "text": "x"}, _BLOCK]),
    "image, base64": _source(type="base64", media_type="image/png", data=_PIXEL),
    "image, URL": _source(type="url", url="https://a.example/a.png"),
    "PDF, base64": _user({"type": "document", "source": {
        "type": "base64", "media_type": "application/pdf", "data": _PIXEL}}),
    "PDF, URL": _user({"type": "document", "source": {"type": "url", "url": "https://a.example/a.pdf"}}),
    "`cache_control` of a block": _user({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}),
    "`temperature`": {"temperature": 0.5}, "`top_p`": {"top_p": 0.5}, "`top_k`": {"top_k": 5},
    "`stop_sequences`": {"stop_sequences": ["x"]}, "`tools`": {"tools": [_OWN_TOOL]},
    "tools of the provider": {"tools": [{"type": "bash_20250124", "name": "bash"}]},
    "`tool_choice: any`": {"tools": [_OWN_TOOL], "tool_choice": {"type": "any"}},
    "`tool_choice: none`": {"tools": [_OWN_TOOL], "tool_choice": {"type": "none"}},
    "`tool_choice: tool`": {"tools": [_OWN_TOOL], "tool_choice": {"type": "tool", "name": "f"}},
    "`disable_parallel_tool_use`": {
        "tools": [_OWN_TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    },
    "`output_config.format`": {"output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}}},
    "`output_config.effort`": {"output_config": {"effort": "high"}},
    "`thinking`": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    "`metadata.user_id`": {"metadata": {"user_id": "u"}}, "`stream`": {"stream": True},
    "`service_tier`": {"service_tier": "auto"}, "`container`": {"container": "c"}, "any other field": {"another": 1},
}  # fmt: skip

_BASE: Final[dict[str, dict[str, Any]]] = {
    "chat": {"messages": [], "max_tokens": 1}, "messages": {"messages": [], "max_tokens": 1},
}  # fmt: skip
_HEAD: Final = """# What the gateway translates

A request whose client and upstream speak the same dialect passes through byte for byte. Otherwise it is translated,
and so are the answer, the stream, the counts and the errors. This page says where each field of a request goes; it is
made by translating each of them. *Refused*: the client gets a 400 that names the field. *Dropped*: a hint that the
upstream has no word for; the request goes on.

Ids of tool calls are kept. Answers say cached tokens, and reasoning in `reasoning_content` (chat) or `thinking`
(messages). What a provider signed of its reasoning is in `thinking_blocks` of a chat message; a client that sends
the message back sends the proof with it. Anthropic needs `max_tokens`: where a chat request has none it is 4,096. The
input tokens in `message_start` of a translated stream are 0 where the upstream counts at the end; those in
`message_delta` are the count.
"""


def outcome(surface: Surface, dialect: Dialect, probe: Mapping[str, Any]) -> str:
    """Where a field goes: paths in the upstream's request, `refused` or `dropped`."""
    way, base = translator(surface, dialect), _BASE[surface]
    plain = way.request(base, "m")
    try:
        asked = way.request({**base, **probe}, "m")
    except UntranslatableRequest:
        return "refused"
    before = dict(_leaves(plain.body))
    # tools are in the probes of what chooses among them: their own row says where they go
    new = [path for path, value in _leaves(asked.body) if before.get(path) != value and path != "messages[].role"]
    tools = [path for path in new if path.startswith(("tools", "toolConfig.tools"))]
    others = [path for path in new if path not in tools]
    paths = list(dict.fromkeys(others or tools))
    if plain.path != asked.path:
        paths.append(asked.path)
    found = ", ".join(f"`{path}`" for path in paths)
    dropped = len(asked.dropped) > len(plain.dropped)
    return (
        f"{found}; the mark itself dropped"
        if found and dropped
        else found or ("dropped" if dropped else "as if not said")
    )


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and value of each leaf; positions in lists are left out of the path."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from _leaves(inner, f"{path}[]")
    else:
        yield path, repr(value)


def page() -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    for surface, probes in (("chat", CHAT), ("messages", MESSAGES)):
        dialects = [there for here, there in TRANSLATED if here == surface]
        parts.append(f"\n## Clients that speak {surface}\n")
        parts.append(f"| field | {' | '.join(dialects)} |\n| --- |{' --- |' * len(dialects)}")
        for field, probe in probes.items():
            cells = (outcome(surface, dialect, probe) for dialect in dialects)  # type: ignore[arg-type]
            parts.append(f"| {field} | {' | '.join(cells)} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
