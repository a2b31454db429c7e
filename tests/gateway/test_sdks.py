"""The SDKs of OpenAI and Anthropic, and LangChain, as their users call them: only the base URL is another one."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.gateway.harness import Answer, GatewayHarness, Scripted, event, play, said, streamed, whole, words

NEEDED = ("openai", "anthropic")
pytestmark = pytest.mark.skipif(not all(map(find_spec, NEEDED)), reason="the SDKs, which the first test loads")
MESSAGES: Any = [{"role": "user", "content": "what is the weather in Oslo?"}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
ANTHROPIC_TOOL: Any = {"name": "weather", "input_schema": TOOL["function"]["parameters"]}
ANTHROPIC = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "sunny"}], "usage": {"input_tokens": 5, "output_tokens": 9},
}  # fmt: skip


class City(BaseModel):
    """What a structured answer holds."""

    name: str
    degrees: int


def calls(*cities: str) -> Answer:
    """An answer that calls the tool once for each city."""
    found = [
        {"id": f"call_{one}", "type": "function",
         "function": {"name": "weather", "arguments": '{"city": "%s"}' % one}}  # noqa: UP031 - braces
        for one in cities
    ]  # fmt: skip
    message = {"role": "assistant", "content": None, "tool_calls": found}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    return whole({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice],
                  "usage": usage})  # fmt: skip


def client_of(harness: GatewayHarness, **more: Any) -> Any:
    import openai

    return openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{harness.port}/v1", api_key="any", max_retries=0, **more)


def messages_of(harness: GatewayHarness) -> Any:
    import anthropic

    return anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{harness.port}", api_key="any", max_retries=0)


def test_openai_chats_streams_and_calls_tools(tmp_path: Path) -> None:
    """Whole answers, streams with their usage, tool calls with their ids, a JSON schema that the SDK parses."""
    structured = said('{"name": "Oslo", "degrees": 7}')

    async def scenario() -> None:
        script = (said("sunny"), streamed(*words(3)), calls("oslo", "bergen"), structured)
        async with (
            Scripted(*script) as up,
            GatewayHarness(tmp_path, {"a": up}) as harness,
            client_of(harness) as client,
        ):
            raw = await client.chat.completions.with_raw_response.create(model="chat", messages=MESSAGES, max_tokens=9)
            assert raw.headers["x-tonnage-deployment"] == "a"
            assert raw.parse().choices[0].message.content == "sunny"
            usage: Any = {"include_usage": True}
            stream = await client.chat.completions.create(
                model="chat", messages=MESSAGES, max_tokens=9, stream=True, stream_options=usage
            )
            chunks = [one async for one in stream]
            assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices) == "w0w1w2"
            assert chunks[-1].usage.total_tokens == 11
            called = await client.chat.completions.create(
                model="chat", messages=MESSAGES, tools=[TOOL], parallel_tool_calls=True, max_tokens=9
            )
            told = called.choices[0].message.tool_calls
            assert [(one.id, one.function.arguments) for one in told] == [
                ("call_oslo", '{"city": "oslo"}'), ("call_bergen", '{"city": "bergen"}'),
            ]  # fmt: skip
            parsed = await client.chat.completions.parse(
                model="chat", messages=MESSAGES, response_format=City, max_tokens=99
            )
            assert parsed.choices[0].message.parsed == City(name="Oslo", degrees=7)
            assert up.seen[3]["response_format"]["json_schema"]["name"] == "City"
            assert up.seen[2]["tools"] == [TOOL]
            rows = await harness.rows()
            assert [(row["input_tokens"], row["output_tokens"]) for row in rows] == [(7, 4), (7, 4), (9, 5), (7, 4)]

    play(scenario())


def test_openai_embeds_completes_and_lists(tmp_path: Path) -> None:
    """The other endpoints, through the SDK's own types."""
    vector = {"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}
    embedded = whole({"object": "list", "model": "m", "data": [vector], "usage": {"prompt_tokens": 2,
                                                                               "total_tokens": 2}})  # fmt: skip
    text = {"index": 0, "text": " more", "finish_reason": "stop", "logprobs": None}
    completed = whole({"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [text],
                       "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})  # fmt: skip

    async def scenario() -> None:
        async with (
            Scripted(embedded, completed) as up,
            GatewayHarness(tmp_path, {"a": up}) as harness,
            client_of(harness) as client,
        ):
            found = await client.embeddings.create(model="chat", input="hi", encoding_format="float")
            assert found.data[0].embedding == [0.5, -0.25]
            assert (await client.completions.create(model="chat", prompt="one", max_tokens=1)).choices[
                0
            ].text == " more"
            assert [one.id async for one in client.models.list()] == ["chat"]

    play(scenario())


def test_openai_raises_its_own_errors(tmp_path: Path) -> None:
    """An unknown model, a budget at its end, an upstream's refusal, a stream that is cut: the class that users catch,
    with the reason."""
    import openai

    async def scenario() -> None:
        bad = whole({"error": {"message": "too long", "type": "invalid_request_error", "code": None}}, 400)
        cut = streamed(*words(2, end=False)[:2], cut=True)
        async with (
            Scripted(bad, cut) as up, GatewayHarness(tmp_path, {"a": up}, budgets=[{"usd": 0.001}]) as harness,
            client_of(harness) as client,
        ):  # fmt: skip
            with pytest.raises(openai.NotFoundError, match="chat"):
                await client.chat.completions.create(model="chatt", messages=MESSAGES, max_tokens=9)
            with pytest.raises(openai.RateLimitError, match="budget"):
                await client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=10_000)
            with pytest.raises(openai.BadRequestError, match="too long"):
                await client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=9)
            stream = await client.chat.completions.create(model="chat", messages=MESSAGES, max_tokens=9, stream=True)
            with pytest.raises((openai.APIError, openai.APIConnectionError)):
                [one async for one in stream]

    play(scenario())


def test_anthropic_over_its_own_and_over_an_engine(tmp_path: Path) -> None:
    """Messages, a stream and a tool call: by an upstream of Anthropic's dialect, and by an OpenAI-compatible engine."""

    import anthropic

    async def scenario() -> None:
        script = (said("sunny"), streamed(*words(3)), calls("oslo"))
        async with Scripted(whole(ANTHROPIC)) as own, Scripted(*script) as engine, GatewayHarness(
            tmp_path, {"a": own, "b": engine}, a={"dialect": "anthropic"}, route={"deployments": ["a"]},
            more={"engine": {"deployments": ["b"]}},
        ) as harness, messages_of(harness) as client:  # fmt: skip
            whole_answer = await client.messages.create(model="chat", max_tokens=9, messages=MESSAGES)
            assert (whole_answer.content[0].text, whole_answer.usage.output_tokens) == ("sunny", 9)
            answer = await client.messages.create(model="engine", max_tokens=9, messages=MESSAGES)
            assert (answer.content[0].text, answer.usage.input_tokens) == ("sunny", 7)
            async with client.messages.stream(model="engine", max_tokens=9, messages=MESSAGES) as stream:
                assert "".join([one async for one in stream.text_stream]) == "w0w1w2"
                assert (await stream.get_final_message()).usage.output_tokens == 4
            called = await client.messages.create(
                model="engine", max_tokens=9, messages=MESSAGES, tools=[ANTHROPIC_TOOL]
            )
            [use] = [one for one in called.content if one.type == "tool_use"]
            assert (use.id, use.name, use.input) == ("call_oslo", "weather", {"city": "oslo"})
            with pytest.raises(anthropic.NotFoundError):
                await client.messages.create(model="nothing", max_tokens=9, messages=MESSAGES)

    play(scenario())


def test_clients_at_once_share_the_door(tmp_path: Path) -> None:
    """Thirty chats of one client at a time, whole and streamed: each has its own answer, and holds return to none."""

    async def scenario() -> None:
        async with (
            Scripted(always=streamed(*words(4))) as up,
            GatewayHarness(tmp_path, {"a": up}, budgets=[{"usd": 1}]) as harness,
            client_of(harness) as client,
        ):

            async def one() -> str:
                stream = await client.chat.completions.create(
                    model="chat", messages=MESSAGES, max_tokens=9, stream=True
                )
                return "".join([part.choices[0].delta.content or "" async for part in stream if part.choices])

            assert set(await asyncio.gather(*(one() for _ in range(30)))) == {"w0w1w2w3"}
            assert len(await harness.rows()) == 30
            assert harness.book.open_holds == 0

    play(scenario())


@pytest.mark.heavy
def test_langchain_chats_streams_and_calls_tools(tmp_path: Path) -> None:
    """ChatOpenAI and ChatAnthropic."""
    langchain_openai = pytest.importorskip("langchain_openai")
    langchain_anthropic = pytest.importorskip("langchain_anthropic")
    tool_chunk = event({"choices": [{"index": 0, "finish_reason": None, "delta": {"tool_calls": [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":'}},
    ]}}]}) + event({"choices": [{"index": 0, "finish_reason": "tool_calls", "delta": {"tool_calls": [
        {"index": 0, "function": {"arguments": ' "oslo"}'}},
    ]}}]}) + event(b"[DONE]")  # fmt: skip

    async def scenario() -> None:
        script = (said("sunny"), streamed(*words(3)), streamed(tool_chunk), said('{"name": "Oslo", "degrees": 7}'))
        async with Scripted(*script, always=said("again")) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            chat = langchain_openai.ChatOpenAI(
                model="chat",
                base_url=f"http://127.0.0.1:{harness.port}/v1",
                api_key="any",
                max_tokens=99,
                max_retries=0,
            )
            assert (await chat.ainvoke("hi")).content == "sunny"
            assert "".join([one.content async for one in chat.astream("hi")]) == "w0w1w2"
            pieces = [one async for one in chat.bind_tools([TOOL]).astream("weather in oslo?")]
            told = pieces[0]
            for one in pieces[1:]:
                told = told + one
            assert [(one["id"], one["name"], one["args"]) for one in told.tool_calls] == [
                ("call_1", "weather", {"city": "oslo"})
            ]
            found = await chat.with_structured_output(City, method="json_schema").ainvoke("where?")
            assert found == City(name="Oslo", degrees=7)
            other = langchain_anthropic.ChatAnthropic(
                model="chat", base_url=f"http://127.0.0.1:{harness.port}", api_key="any", max_tokens=9, max_retries=0
            )
            assert (await other.ainvoke("hi")).content == "again"

    play(scenario())
