"""Clients and upstreams that speak differently, through the whole gateway: answers, streams, errors, money."""

from __future__ import annotations

import json
from pathlib import Path

from tests.gateway.harness import GatewayHarness, Scripted, chat, play, said, streamed, whole, words


def test_chat_over_an_anthropic_upstream(tmp_path: Path) -> None:
    """The answer is OpenAI's, the tokens are Anthropic's own, cached ones at their price; streams and errors too."""
    usage = {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 9}
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
              "content": [{"type": "text", "text": "hello"}], "usage": usage}  # fmt: skip
    events = [
        {"type": "message_start", "message": {**answer, "content": [], "usage": {**usage, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    stream = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events]
    refused = {"type": "error", "error": {"type": "invalid_request_error", "message": "messages: too short"}}
    price = {"input_usd_per_million": 1, "output_usd_per_million": 2, "cached_input_usd_per_million": 0.1}

    async def scenario() -> None:
        script = (whole(answer), streamed(*stream), whole(refused, 400))
        async with (
            Scripted(*script) as up,
            GatewayHarness(tmp_path, {"a": up}, a={"dialect": "anthropic", "price": price}) as harness,
        ):
            found = json.loads((await harness.ask()).body)
            assert found["choices"][0]["message"]["content"] == "hello"
            assert found["usage"]["prompt_tokens"] == 25
            assert up.heads[0].startswith("POST /v1/messages ")
            assert (up.seen[0]["model"], up.seen[0]["max_tokens"]) == ("upstream-model", 10)
            assert "anthropic-version: 2023-06-01" in up.heads[0].lower()
            passed = await harness.ask(chat(stream=True))
            assert passed.header("content-type") == "text/event-stream"
            document = [
                json.loads(line[6:]) for line in passed.body.decode().split("\n\n") if line.startswith("data: {")
            ]
            assert "".join(one["choices"][0]["delta"].get("content") or "" for one in document) == "hello"
            assert passed.body.endswith(b"data: [DONE]\n\n")
            bad = await harness.ask()
            assert (bad.status, json.loads(bad.body)["error"]["message"]) == (400, "messages: too short")
            rows = await harness.rows()
            cost = 5 * 10**6 + 20 * 10**5 + 9 * 2 * 10**6
            assert [(row["usd_pico"], row["estimated"]) for row in rows] == [(cost, 0), (cost, 0), (0, 0)]
            unheard = await harness.ask(chat(logprobs=True))
            assert unheard.status == 400
            assert "logprobs" in unheard.body.decode()
            assert harness.book.open_holds == 0

    play(scenario())


def test_messages_over_an_openai_upstream(tmp_path: Path) -> None:
    """Anthropic's clients are answered in their words by an engine of one's own; what it cannot be asked is said."""

    async def scenario() -> None:
        body = {"model": "chat", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}
        async with Scripted(said("hello"), streamed(*words(2))) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            found = json.loads((await harness.ask(body, "/v1/messages")).body)
            assert (found["type"], found["content"][0]["text"]) == ("message", "hello")
            assert found["usage"]["input_tokens"] == 7
            passed = await harness.ask({**body, "stream": True}, "/v1/messages")
            assert b"event: message_stop" in passed.body
            refused = await harness.ask({**body, "model": "other"}, "/v1/messages")
            assert json.loads(refused.body)["type"] == "error"
        async with Scripted() as up, GatewayHarness(tmp_path, {"a": up}, a={"dialect": "converse"}) as harness:
            answer = await harness.ask({"model": "chat", "input": "hi"}, "/v1/embeddings")
            assert answer.status in (400, 503)
            assert not up.seen

    play(scenario())
