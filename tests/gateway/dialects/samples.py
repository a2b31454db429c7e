"""Requests, answers and streams as the references of the three dialects describe them."""

from __future__ import annotations

import struct
from typing import Any
from zlib import crc32

import orjson

PIXEL = "iVBORw0KGgo="
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

CHAT: dict[str, Any] = {
    "model": "door",
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [
            {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        ]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
            {"id": "call_b", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
        ]},
        {"role": "tool", "tool_call_id": "call_a", "content": "4 C"},
        {"role": "tool", "tool_call_id": "call_b", "content": "19 C"},
        {"role": "user", "content": "And?"},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "description": "Now", "parameters": WEATHER}}],
    "tool_choice": "required",
    "max_completion_tokens": 100,
    "temperature": 0.5,
    "top_p": 0.9,
    "stop": "END",
    "response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": WEATHER, "strict": True}},
    "user": "u1",
    "seed": 7,
}  # fmt: skip

MESSAGES: dict[str, Any] = {
    "model": "door",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    "messages": [
        {"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            {"type": "text", "text": "What is this?"},
        ]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_a", "name": "weather", "input": {"city": "Oslo"}},
            {"type": "tool_use", "id": "toolu_b", "name": "weather", "input": {"city": "Rome"}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_a", "content": "4 C"},
            {"type": "tool_result", "tool_use_id": "toolu_b", "content": [{"type": "text", "text": "no"}],
             "is_error": True},
            {"type": "text", "text": "And?"},
        ]},
    ],
    "tools": [{"name": "weather", "description": "Now", "input_schema": WEATHER}],
    "tool_choice": {"type": "tool", "name": "weather"},
    "temperature": 0.5,
    "stop_sequences": ["END"],
    "metadata": {"user_id": "u1"},
    "output_config": {"effort": "high"},
}  # fmt: skip

ANTHROPIC_ANSWER: dict[str, Any] = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude",
    "content": [
        {"type": "thinking", "thinking": "Two cities.", "signature": "sig"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_a", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "toolu_b", "name": "weather", "input": {"city": "Rome"}},
    ],
    "stop_reason": "tool_use", "stop_sequence": None,
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5,
              "output_tokens": 20},
}  # fmt: skip

CONVERSE_ANSWER: dict[str, Any] = {
    "output": {"message": {"role": "assistant", "content": [
        {"reasoningContent": {"reasoningText": {"text": "Two cities.", "signature": "sig"}}},
        {"text": "I look."},
        {"toolUse": {"toolUseId": "toolu_a", "name": "weather", "input": {"city": "Oslo"}}},
        {"toolUse": {"toolUseId": "toolu_b", "name": "weather", "input": {"city": "Rome"}}},
    ]}},
    "stopReason": "tool_use",
    "usage": {"inputTokens": 10, "outputTokens": 20, "totalTokens": 30, "cacheReadInputTokens": 100,
              "cacheWriteInputTokens": 5},
    "metrics": {"latencyMs": 100},
}  # fmt: skip

OPENAI_ANSWER: dict[str, Any] = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt",
    "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": "I look.", "reasoning_content": "Two cities.",
        "tool_calls": [
            {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
            {"id": "call_b", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
        ]}}],
    "usage": {"prompt_tokens": 115, "completion_tokens": 20, "total_tokens": 135,
              "prompt_tokens_details": {"cached_tokens": 100}},
}  # fmt: skip


def sse(*events: dict[str, Any], named: bool = False, done: bool = False) -> bytes:
    """Server-sent events of these objects."""
    written = b"".join(
        (b"event: %b\n" % said["type"].encode() if named else b"") + b"data: " + orjson.dumps(said) + b"\n\n"
        for said in events
    )
    return written + (b"data: [DONE]\n\n" if done else b"")


def event_stream(*events: tuple[str, dict[str, Any]], kind: str = "event") -> bytes:
    """AWS's binary events: (type, payload)."""
    return b"".join(_message(kind, name, orjson.dumps(said)) for name, said in events)


def _message(kind: str, name: str, payload: bytes) -> bytes:
    key = ":event-type" if kind == "event" else ":exception-type"
    pairs = ((":message-type", kind), (key, name), (":content-type", "application/json"))
    headers = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for key, value in pairs
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    prelude += struct.pack(">I", crc32(prelude))
    return prelude + headers + payload + struct.pack(">I", crc32(prelude + headers + payload))


def _block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": one} for one in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _called(index: int, id_: str, *pieces: str) -> list[dict[str, Any]]:
    start = {"type": "tool_use", "id": id_, "name": "weather", "input": {}}
    return _block(index, start, *({"type": "input_json_delta", "partial_json": one} for one in pieces))


ANTHROPIC_STREAM = sse(
    {"type": "message_start", "message": {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {"input_tokens": 10, "cache_read_input_tokens": 100,
                                         "cache_creation_input_tokens": 5, "output_tokens": 1}}},
    *_block(0, {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Two "}, {"type": "thinking_delta", "thinking": "cities."},
            {"type": "signature_delta", "signature": "sig"}),
    {"type": "ping"},
    *_block(1, {"type": "text", "text": ""},
            {"type": "text_delta", "text": "I "}, {"type": "text_delta", "text": "look. 🌤"}),
    *_called(2, "toolu_a", "", '{"city":', '"Oslo"}'),
    *_called(3, "toolu_b", '{"ci', 'ty":"Rome"}'),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None},
     "usage": {"output_tokens": 20}},
    {"type": "message_stop"},
    named=True,
)  # fmt: skip


def _delta(index: int, delta: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": delta}


def _use(index: int, id_: str, *pieces: str) -> list[tuple[str, dict[str, Any]]]:
    start = {"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": id_, "name": "weather"}}}
    return [
        ("contentBlockStart", start),
        *(_delta(index, {"toolUse": {"input": one}}) for one in pieces),
        ("contentBlockStop", {"contentBlockIndex": index}),
    ]


CONVERSE_STREAM = event_stream(
    ("messageStart", {"role": "assistant"}),
    _delta(0, {"reasoningContent": {"text": "Two "}}),
    _delta(0, {"reasoningContent": {"text": "cities."}}),
    _delta(0, {"reasoningContent": {"signature": "sig"}}),
    ("contentBlockStop", {"contentBlockIndex": 0}),
    _delta(1, {"text": "I "}),
    _delta(1, {"text": "look. 🌤"}),
    ("contentBlockStop", {"contentBlockIndex": 1}),
    *_use(2, "toolu_a", '{"city":', '"Oslo"}'),
    *_use(3, "toolu_b", '{"ci', 'ty":"Rome"}'),
    ("messageStop", {"stopReason": "tool_use"}),
    ("metadata", {"usage": CONVERSE_ANSWER["usage"], "metrics": {"latencyMs": 1}}),
)


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }  # fmt: skip


def _call(index: int | None, arguments: str, id_: str | None = None) -> dict[str, Any]:
    said: dict[str, Any] = {"function": {"arguments": arguments}}
    if index is not None:
        said["index"] = index
    if id_ is not None:
        said |= {"id": id_, "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return {"tool_calls": [said]}


def openai_stream(*calls: dict[str, Any], finish: str = "tool_calls") -> bytes:
    """A stream with reasoning, text and these deltas of tool calls."""
    usage = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt", "choices": [],
             "usage": OPENAI_ANSWER["usage"]}  # fmt: skip
    return sse(
        _chunk({"role": "assistant", "content": ""}), _chunk({"reasoning_content": "Two "}),
        _chunk({"reasoning_content": "cities."}), _chunk({"content": "I "}), _chunk({"content": "look. 🌤"}),
        *(_chunk(one) for one in calls), _chunk({}, finish), usage, done=True,
    )  # fmt: skip


BY_TURNS = (_call(0, "", "call_a"), _call(1, "", "call_b"), _call(0, '{"city":'), _call(1, '{"ci'),
            _call(0, '"Oslo"}'), _call(1, 'ty":"Rome"}'))  # fmt: skip
ALL_INDEX_0 = (_call(0, '{"city":"Oslo"}', "call_a"), _call(0, '{"city":"Rome"}', "call_b"))
NO_INDEX = (_call(None, '{"city":"Oslo"}', "call_a"), _call(None, '{"city":"Rome"}', "call_b"))
OPENAI_STREAM = openai_stream(*BY_TURNS)
