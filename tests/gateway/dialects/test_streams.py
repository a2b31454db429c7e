"""Answers and streams say the same on the client's side, however the upstream's bytes are cut into pieces."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.dialects.samples import (
    ALL_INDEX_0,
    ANTHROPIC_ANSWER,
    ANTHROPIC_STREAM,
    BY_TURNS,
    CONVERSE_ANSWER,
    CONVERSE_STREAM,
    NO_INDEX,
    OPENAI_ANSWER,
    OPENAI_STREAM,
    event_stream,
    openai_stream,
    sse,
)

from tonnage.gateway.dialects import Usage, translator
from tonnage.gateway.dialects.translation import TRANSLATED, StreamTranslator
from tonnage.gateway.dialects.usage import Dialect, Surface

STREAMS: dict[Dialect, bytes] = {
    "anthropic": ANTHROPIC_STREAM, "converse": CONVERSE_STREAM, "openai": OPENAI_STREAM,
}  # fmt: skip
ANSWERS: dict[Dialect, dict[str, Any]] = {
    "anthropic": ANTHROPIC_ANSWER, "converse": CONVERSE_ANSWER, "openai": OPENAI_ANSWER,
}  # fmt: skip
COUNTED = Usage(input_tokens=115, output_tokens=20, cached_input_tokens=100, cache_write_tokens=5)
ARGUMENTS = ['{"city":"Oslo"}', '{"city":"Rome"}']


def stream(surface: Surface, dialect: Dialect) -> StreamTranslator:
    return translator(surface, dialect).stream(include_usage=True, model="door", id_="id-1", created=1)


def events(written: bytes) -> list[dict[str, Any]]:
    """The objects of a surface's stream."""
    lines = (line[6:] for line in written.splitlines() if line.startswith(b"data: "))
    return [orjson.loads(line) for line in lines if line != b"[DONE]"]


def chat_calls(written: bytes) -> list[tuple[str, str]]:
    """Id and arguments of each call of a chat stream, gathered by index as a client does."""
    found: dict[int, list[str]] = {}
    for said in events(written):
        for choice in said["choices"]:
            for call in choice["delta"].get("tool_calls", []):
                one = found.setdefault(call["index"], ["", ""])
                one[0] += call.get("id", "")
                one[1] += call["function"]["arguments"]
    return [(id_, arguments) for id_, arguments in found.values()]


def messages_calls(written: bytes) -> list[tuple[str, str]]:
    """The same of a messages stream, by index of the block."""
    found: dict[int, list[str]] = {}
    for said in events(written):
        if said["type"] == "content_block_start" and said["content_block"]["type"] == "tool_use":
            found[said["index"]] = [said["content_block"]["id"], ""]
        if said["type"] == "content_block_delta" and said["delta"]["type"] == "input_json_delta":
            found[said["index"]][1] += said["delta"]["partial_json"]
    return [(id_, arguments) for id_, arguments in found.values()]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(TRANSLATED), st.data())
def test_any_split_gives_the_same_bytes(pair: tuple[Surface, Dialect], data: st.DataObject) -> None:
    """What the client gets does not depend on how the network cut the upstream's bytes."""
    whole, cut = stream(*pair), stream(*pair)
    sent = STREAMS[pair[1]]
    expected = whole.feed(sent) + whole.end()
    places = sorted(data.draw(st.sets(st.integers(1, len(sent) - 1), max_size=40)))
    pieces = [sent[start:end] for start, end in zip([0, *places], [*places, len(sent)], strict=True)]
    assert b"".join(cut.feed(piece) for piece in pieces) + cut.end() == expected
    assert cut.usage == whole.usage
    assert cut.finished


@pytest.mark.parametrize(("surface", "dialect"), TRANSLATED)
def test_streams_say_what_was_said(surface: Surface, dialect: Dialect) -> None:
    """Ids, arguments, words, stop reason and counts arrive; pieces are not bunched."""
    one = stream(surface, dialect)
    written = one.feed(STREAMS[dialect]) + one.end()
    ids = ["call_a", "call_b"] if dialect == "openai" else ["toolu_a", "toolu_b"]
    calls = (chat_calls if surface == "chat" else messages_calls)(written)
    assert calls == list(zip(ids, ARGUMENTS, strict=True))
    assert one.usage == (COUNTED if dialect != "openai" else Usage(input_tokens=115, output_tokens=20,
                                                                   cached_input_tokens=100))  # fmt: skip
    said = events(written)
    if surface == "chat":
        deltas = [choice["delta"] for event in said for choice in event["choices"]]
        assert [one["content"] for one in deltas if "content" in one] == ["", "I ", "look. 🌤"]
        assert [one["reasoning_content"] for one in deltas if "reasoning_content" in one] == ["Two ", "cities."]
        assert said[-2]["choices"][0]["finish_reason"] == "tool_calls"
        assert said[-1]["usage"]["prompt_tokens"] == 115
        assert written.endswith(b"data: [DONE]\n\n")
    else:
        deltas = [event["delta"] for event in said if event["type"] == "content_block_delta"]
        assert [one["text"] for one in deltas if one["type"] == "text_delta"] == ["I ", "look. 🌤"]
        assert said[-2]["delta"]["stop_reason"] == "tool_use"
        assert said[-2]["usage"]["cache_read_input_tokens"] == 100
        assert said[-1] == {"type": "message_stop"}


@pytest.mark.parametrize(("surface", "dialect"), TRANSLATED)
def test_blocks_open_once_and_close_once(surface: Surface, dialect: Dialect) -> None:
    """Every block of a messages stream is opened, then spoken of, then closed; the indices go up by one."""
    if surface == "chat":
        return
    one = stream(surface, dialect)
    open_, seen = set(), []
    for said in events(one.feed(STREAMS[dialect]) + one.end()):
        if said["type"] == "content_block_start":
            open_.add(said["index"])
            seen.append(said["index"])
        elif said["type"] == "content_block_delta":
            assert said["index"] in open_
        elif said["type"] == "content_block_stop":
            open_.remove(said["index"])
    assert not open_
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("calls", [BY_TURNS, ALL_INDEX_0, NO_INDEX])
def test_calls_of_servers_that_number_them_badly(calls: tuple[dict[str, Any], ...]) -> None:
    """Two calls stay two, whether their pieces come by turns, all at index 0, or without any index."""
    one = stream("messages", "openai")
    written = one.feed(openai_stream(*calls, finish="stop")) + one.end()
    assert messages_calls(written) == list(zip(["call_a", "call_b"], ARGUMENTS, strict=True))
    assert events(written)[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize(("surface", "dialect"), TRANSLATED)
def test_a_cut_stream_is_not_finished(surface: Surface, dialect: Dialect) -> None:
    """A stream without the upstream's end never ends as a whole one does."""
    one = stream(surface, dialect)
    sent = STREAMS[dialect]
    written = one.feed(sent[: len(sent) // 2]) + one.end()
    assert not one.finished
    assert b"[DONE]" not in written
    assert b"message_stop" not in written


def test_an_end_without_counts_has_none() -> None:
    """Unknown is not zero: no usage is made up."""
    one = stream("chat", "converse")
    cut = CONVERSE_STREAM[: CONVERSE_STREAM.index(b"metadata") - 40]
    written = one.feed(cut) + one.end()
    assert one.finished
    assert one.usage is None
    assert b'"usage"' not in written
    assert written.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("surface", "dialect", "sent"),
    [
        ("chat", "anthropic", sse({"type": "error", "error": {"type": "overloaded_error", "message": "too busy"}})),
        ("chat", "converse", event_stream(("throttlingException", {"message": "too busy"}), kind="exception")),
        ("messages", "openai", sse({"error": {"message": "too busy", "code": "rate_limit_exceeded"}})),
    ],
)
def test_errors_inside_a_stream(surface: Surface, dialect: Dialect, sent: bytes) -> None:
    """They arrive as errors of the surface, and nothing follows them."""
    one = stream(surface, dialect)
    said = events(one.feed(sent) + one.end())
    assert said[-1]["error"]["message"] == "too busy"
    assert not one.finished
    assert one.failed is not None
    assert one.failed.status in (429, 503)
    assert one.feed(STREAMS[dialect]) == b""


@pytest.mark.parametrize("at", [5, 9, 40, -3])
def test_a_changed_byte_of_a_binary_stream_is_found(at: int) -> None:
    """The checksums of the prelude and of the message are compared."""
    sent = bytearray(CONVERSE_STREAM)
    sent[at] ^= 1
    one = stream("chat", "converse")
    one.feed(bytes(sent))
    assert one.failed is not None
    assert "checksum" in one.failed.message or at == 5


@pytest.mark.parametrize(("surface", "dialect"), TRANSLATED)
def test_whole_answers(surface: Surface, dialect: Dialect) -> None:
    """Words, calls, reason and counts of a whole answer."""
    way = translator(surface, dialect)
    said = way.answer(ANSWERS[dialect], model="door", id_="id-1", created=1)
    ids = ["call_a", "call_b"] if dialect == "openai" else ["toolu_a", "toolu_b"]
    if surface == "chat":
        message = said["choices"][0]["message"]
        assert message["content"] == "I look."
        assert message["thinking_blocks"] == [{"type": "thinking", "thinking": "Two cities.", "signature": "sig"}]
        assert [(one["id"], one["function"]["arguments"]) for one in message["tool_calls"]] == list(
            zip(ids, ARGUMENTS, strict=True)
        )
        assert said["choices"][0]["finish_reason"] == "tool_calls"
        assert said["usage"]["total_tokens"] == 135
    else:
        assert [block["type"] for block in said["content"]] == ["thinking", "text", "tool_use", "tool_use"]
        assert [block["id"] for block in said["content"][2:]] == ids
        assert said["stop_reason"] == "tool_use"
        assert said["usage"]["cache_read_input_tokens"] == 100
    counted = way.usage(ANSWERS[dialect])
    assert counted is not None
    assert (counted.input_tokens, counted.cached_input_tokens) == (115, 100)


def test_an_answer_without_counts_has_none() -> None:
    """Unknown is not zero."""
    body = {name: value for name, value in ANTHROPIC_ANSWER.items() if name != "usage"}
    assert "usage" not in translator("chat", "anthropic").answer(body)
    assert translator("chat", "anthropic").usage(body) is None


@pytest.mark.parametrize(
    ("surface", "dialect", "status", "body", "expected"),
    [
        ("chat", "anthropic", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
         (503, "server_error")),
        ("chat", "converse", 429, {"message": "busy"}, (429, "rate_limit_error")),
        ("chat", "converse", 424, {"message": "busy"}, (502, "server_error")),
        ("messages", "openai", 429, {"error": {"message": "busy"}}, (429, "rate_limit_error")),
        ("messages", "openai", 503, {"error": {"message": "busy"}}, (529, "overloaded_error")),
        ("messages", "converse", 400, {"Message": "busy"}, (400, "invalid_request_error")),
    ],
)  # fmt: skip
def test_errors(
    surface: Surface, dialect: Dialect, status: int, body: dict[str, Any], expected: tuple[int, str]
) -> None:
    """Status, type and message in the surface's words."""
    told, said = translator(surface, dialect).error(status, orjson.dumps(body))
    assert (told, said["error"]["type"]) == expected
    assert said["error"]["message"] == "busy"


@pytest.mark.slow
def test_the_openai_library_reads_our_streams() -> None:
    """The official library accumulates a translated stream to the two calls."""
    pytest.importorskip("openai")
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    for dialect in ("anthropic", "converse"):
        one = stream("chat", dialect)  # type: ignore[arg-type]
        state = ChatCompletionStreamState()
        for said in events(one.feed(STREAMS[dialect]) + one.end()):  # type: ignore[index]
            state.handle_chunk(ChatCompletionChunk.model_validate(said))
        found = state.get_final_completion()
        assert [call.id for call in found.choices[0].message.tool_calls or []] == ["toolu_a", "toolu_b"]
        assert found.usage is not None
        assert found.usage.total_tokens == 135
        ChatCompletion.model_validate(translator("chat", dialect).answer(ANSWERS[dialect]))  # type: ignore[arg-type,index]


@pytest.mark.slow
def test_the_anthropic_library_reads_our_streams() -> None:
    """The official library accumulates a translated stream to thinking, text and the two calls."""
    pytest.importorskip("anthropic")
    from anthropic.lib.streaming._messages import accumulate_event
    from anthropic.types import Message, RawMessageStreamEvent
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    dialects: tuple[Dialect, ...] = ("openai", "converse")
    for dialect in dialects:
        one = stream("messages", dialect)
        found: Any = None
        partial: dict[int, bytes] = {}
        for said in events(one.feed(STREAMS[dialect]) + one.end()):
            found = accumulate_event(event=adapter.validate_python(said), current_snapshot=found, json_bufs=partial)
        assert [block.type for block in found.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert [block.input for block in found.content[2:]] == [{"city": "Oslo"}, {"city": "Rome"}]
        assert (found.stop_reason, found.usage.output_tokens) == ("tool_use", 20)
        Message.model_validate(translator("messages", dialect).answer(ANSWERS[dialect]))
