"""A request says the same in the dialect of the upstream, or is refused with the name of what cannot be said."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.gateway.dialects.samples import CHAT, MESSAGES, PIXEL, WEATHER

from tonnage.gateway.dialects import (
    UnsupportedTranslation,
    UntranslatableRequest,
    native,
    translator,
)
from tonnage.gateway.dialects.usage import Dialect, Surface

RESULTS = [{"type": "tool_result", "tool_use_id": "call_a", "content": [{"type": "text", "text": "4 C"}]},
           {"type": "tool_result", "tool_use_id": "call_b", "content": [{"type": "text", "text": "19 C"}]}]  # fmt: skip


def test_chat_to_anthropic() -> None:
    """Results of tools and what the user adds are one turn; ids, order and schema stay."""
    asked = translator("chat", "anthropic").request(CHAT, "claude")
    assert asked.path == "/messages"
    assert not asked.stream
    assert asked.dropped == ("seed",)
    assert asked.body == {
        "model": "claude", "max_tokens": 100, "system": [{"type": "text", "text": "Be short."}],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral"}},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            ]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "call_a", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "call_b", "name": "weather", "input": {"city": "Rome"}},
            ]},
            {"role": "user", "content": [*RESULTS, {"type": "text", "text": "And?"}]},
        ],
        "tools": [{"name": "weather", "description": "Now", "input_schema": WEATHER}],
        "tool_choice": {"type": "any"}, "temperature": 0.5, "top_p": 0.9, "stop_sequences": ["END"],
        "output_config": {"format": {"type": "json_schema", "schema": WEATHER}}, "metadata": {"user_id": "u1"},
    }  # fmt: skip


def test_chat_to_converse() -> None:
    """The model stands in the path; a cache point is a block of its own; the schema is text."""
    asked = translator("chat", "converse").request({**CHAT, "stream": True}, "eu.anthropic.claude:0")
    assert asked.path == "/model/eu.anthropic.claude%3A0/converse-stream"
    assert asked.stream
    assert asked.body["system"] == [{"text": "Be short."}]
    assert asked.body["messages"][0]["content"] == [
        {"text": "What is this?"},
        {"cachePoint": {"type": "default"}},
        {"image": {"format": "png", "source": {"bytes": PIXEL}}},
    ]
    result = {"toolUseId": "call_a", "content": [{"text": "4 C"}], "status": "success"}
    assert asked.body["messages"][2]["content"][0] == {"toolResult": result}
    assert asked.body["inferenceConfig"] == {
        "maxTokens": 100, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]
    }  # fmt: skip
    assert asked.body["toolConfig"] == {
        "tools": [{"toolSpec": {"name": "weather", "inputSchema": {"json": WEATHER}, "description": "Now"}}],
        "toolChoice": {"any": {}},
    }
    assert asked.body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]["name"] == "city"


@pytest.mark.heavy
def test_converse_bodies_are_what_botocore_knows() -> None:
    """AWS's own model of the service finds no unknown or missing field."""
    botocore = pytest.importorskip("botocore.session")
    from botocore.validate import ParamValidator

    shape = botocore.get_session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape
    for surface, body in (("chat", CHAT), ("messages", {**MESSAGES, "thinking": {"type": "disabled"}})):
        asked = translator(surface, "converse").request(body, "m")  # type: ignore[arg-type]
        report = ParamValidator().validate({"modelId": "m", **asked.body}, shape)
        assert not report.has_errors(), report.generate_report()


def test_messages_to_openai() -> None:
    """A failed result says so in words; thinking of earlier turns and cache marks are named as dropped."""
    asked = translator("messages", "openai").request({**MESSAGES, "stream": True}, "gpt")
    assert asked.path == "/chat/completions"
    assert [one.partition(":")[0] for one in asked.dropped] == ["thinking of earlier turns", "cache_control"]
    assert asked.body == {
        "model": "gpt",
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                {"type": "text", "text": "What is this?"},
            ]},
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": "toolu_a", "type": "function",
                 "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
                {"id": "toolu_b", "type": "function",
                 "function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
            ]},
            {"role": "tool", "tool_call_id": "toolu_a", "content": "4 C"},
            {"role": "tool", "tool_call_id": "toolu_b", "content": "Error: no"},
            {"role": "user", "content": "And?"},
        ],
        "max_completion_tokens": 100, "temperature": 0.5, "stop": ["END"], "user": "u1", "reasoning_effort": "high",
        "tools": [{"type": "function",
                   "function": {"name": "weather", "parameters": WEATHER, "description": "Now"}}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_there_and_back() -> None:
    """A chat request in Anthropic's words, read again as messages, is the chat request in OpenAI's words."""
    said = copy.deepcopy(CHAT)
    del said["seed"], said["response_format"]["json_schema"]["name"]
    there = translator("chat", "anthropic").request(said, "door").body
    back = translator("messages", "openai").request(there, "door").body
    for name in ("tools", "temperature", "top_p", "user", "max_completion_tokens"):
        assert back[name] == said[name]
    assert back["tool_choice"] == "required"
    assert back["stop"] == ["END"]
    assert back["messages"][2:] == said["messages"][2:]


@pytest.mark.parametrize(
    ("surface", "dialect", "more", "named"),
    [
        ("chat", "anthropic", {"n": 2}, "n"),
        ("chat", "anthropic", {"logprobs": True}, "logprobs"),
        ("chat", "converse", {"top_logprobs": 3}, "top_logprobs"),
        ("chat", "anthropic", {"logit_bias": {"5": 1}}, "logit_bias"),
        ("chat", "anthropic", {"frequency_penalty": 0.5}, "frequency_penalty"),
        ("chat", "anthropic", {"response_format": {"type": "json_object"}}, "response_format.type"),
        ("chat", "anthropic", {"temperature": 1.5}, "temperature"),
        ("chat", "anthropic", {"temperature": True}, "temperature"),
        ("chat", "anthropic", {"messages": "hi"}, "messages"),
        ("chat", "anthropic", {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
         "messages[0].content[0].type"),
        ("chat", "anthropic", {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ("chat", "anthropic", {"unheard_of": 1}, "unheard_of"),
        ("chat", "converse", {"parallel_tool_calls": False}, "parallel_tool_calls"),
        ("chat", "converse", {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}]}]}, "image_url"),
        ("messages", "openai", {"top_k": 5}, "top_k"),
        ("messages", "openai", {"max_tokens": None}, "max_tokens"),
        ("messages", "openai", {"container": "c"}, "container"),
        ("messages", "openai", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_named(surface: Surface, dialect: Dialect, more: dict[str, Any], named: str) -> None:
    """Nothing is dropped in silence."""
    body = {**(CHAT if surface == "chat" else MESSAGES), **more}
    with pytest.raises(UntranslatableRequest) as raised:
        translator(surface, dialect).request(body, "m")
    assert raised.value.parameter == named


def test_defaults_pass() -> None:
    """Parameters at their default need no counterpart."""
    more = {"n": 1, "logprobs": False, "presence_penalty": 0, "logit_bias": {}, "store": False, "top_logprobs": None}
    asked = translator("chat", "anthropic").request({**CHAT, **more}, "m")
    assert asked.dropped == ("seed",)


def test_arguments_that_are_no_json_are_named() -> None:
    """A call whose arguments were cut has no counterpart where arguments are an object."""
    call = {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"a'}}
    body = {"messages": [{"role": "assistant", "tool_calls": [call]}]}
    with pytest.raises(UntranslatableRequest, match="call_a"):
        translator("chat", "anthropic").request(body, "m")


def test_max_tokens_that_is_missing_is_said() -> None:
    """Anthropic needs a limit; the one that was added is named."""
    asked = translator("chat", "anthropic").request({"messages": [{"role": "user", "content": "hi"}]}, "m")
    assert asked.body["max_tokens"] == 4096
    assert asked.dropped[0].startswith("max_tokens is 4096")


def test_signed_thinking_goes_back_to_who_signed_it() -> None:
    """A client of chat that sends the answer's message back sends the proof of its thinking."""
    message = {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm.",
               "thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "sig"}]}  # fmt: skip
    asked = translator("chat", "anthropic").request({"messages": [message], "max_tokens": 5}, "m")
    assert asked.body["messages"][0]["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"}, {"type": "text", "text": "Yes."},
    ]  # fmt: skip


def test_pairs() -> None:
    """The same dialect passes unchanged; a pair without a way is refused with what there is."""
    assert native("chat", "openai")
    assert native("messages", "anthropic")
    assert not native("chat", "anthropic")
    with pytest.raises(UnsupportedTranslation) as raised:
        translator("embeddings", "converse")
    assert raised.value.hint == "upstreams for embeddings speak openai"
