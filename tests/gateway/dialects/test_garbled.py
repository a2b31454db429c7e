"""Upstreams that send JSON of a shape that their dialect does not have: an error is said, and no fault is ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.dialects.samples import (
    ANTHROPIC_ANSWER,
    ANTHROPIC_STREAM,
    CONVERSE_ANSWER,
    OPENAI_ANSWER,
    OPENAI_STREAM,
    event_stream,
)

from tonnage.gateway.dialects import UntranslatableRequest, UpstreamNonsense, translator
from tonnage.gateway.dialects.translation import TRANSLATED
from tonnage.gateway.dialects.usage import Dialect, Surface, read_usage
from tonnage.gateway.proxy.tap import UsageTap

ANSWERS: dict[Dialect, dict[str, Any]] = {
    "anthropic": ANTHROPIC_ANSWER, "converse": CONVERSE_ANSWER, "openai": OPENAI_ANSWER,
}  # fmt: skip
CONVERSE_EVENTS = [
    ("messageStart", {"role": "assistant"}), ("contentBlockStart", {"contentBlockIndex": 0, "start": {"toolUse": {
        "toolUseId": "a", "name": "n"}}}), ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"toolUse": {
            "input": "{}"}}}), ("messageStop", {"stopReason": "end_turn"}),
    ("metadata", {"usage": {"inputTokens": 1, "outputTokens": 2}}),
]  # fmt: skip
ODD = st.sampled_from([None, True, -1, 0.5, "x", [], {}, [None], ["x"], [[1]], {"x": None}, [{"x": []}]])


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from places(inner, (*path, key))


def garbled(node: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """The same with `odd` at a place."""
    if not path:
        return odd
    changed = dict(node) if isinstance(node, dict) else list(node)
    changed[path[0]] = garbled(node[path[0]], path[1:], odd)
    return changed


def somewhere(data: st.DataObject, node: Any) -> Any:
    odd = data.draw(ODD)
    return garbled(node, data.draw(st.sampled_from(list(places(node)))), odd)


def events_of(stream: bytes) -> list[Any]:
    return [orjson.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]


@pytest.mark.parametrize(("surface", "dialect"), TRANSLATED)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_garbled_answers(surface: Surface, dialect: Dialect, data: st.DataObject) -> None:
    """Translated as far as it can be, or refused by one of two errors that the gateway knows."""
    answer = somewhere(data, ANSWERS[dialect])
    if isinstance(answer, dict):
        made = translator(surface, dialect)
        with suppress(UpstreamNonsense, UntranslatableRequest):
            made.answer(answer)
            made.usage(answer)


@pytest.mark.parametrize(("surface", "dialect"), TRANSLATED)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_garbled_streams(surface: Surface, dialect: Dialect, data: st.DataObject) -> None:
    """The translation goes on, or ends in one error event; events may also come twice, or in a wrong order."""
    if dialect == "converse":
        named = [list(one) for one in CONVERSE_EVENTS]
        at = data.draw(st.integers(0, len(named) - 1))
        named[at][1] = somewhere(data, named[at][1])
        order = data.draw(st.permutations(named))
        sent = event_stream(*((name, said) for name, said in (*order, *named)))
    else:
        said = events_of(OPENAI_STREAM if dialect == "openai" else ANTHROPIC_STREAM)
        at = data.draw(st.integers(0, len(said) - 1))
        said[at] = somewhere(data, said[at])
        order = data.draw(st.permutations(said))
        sent = b"".join(b"data: %b\n\n" % orjson.dumps(one) for one in (*said[: at + 1], *order))
    made = translator(surface, dialect).stream(include_usage=True)
    written = made.feed(sent) + made.end()
    assert written.count(b'"error":{') == (1 if made.failed else 0)


@pytest.mark.parametrize("surface", ["chat", "messages", "responses"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_garbled_usage(surface: Surface, data: st.DataObject) -> None:
    """A tap reads what is a count, and lets every byte pass."""
    responses = [{"type": "response.completed", "response": {"usage": {
        "input_tokens": 1, "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 1}}}}]  # fmt: skip
    kinds = {"chat": events_of(OPENAI_STREAM), "messages": events_of(ANTHROPIC_STREAM), "responses": responses}
    said = list(kinds[surface])
    at = data.draw(st.integers(0, len(said) - 1))
    said[at] = somewhere(data, said[at])
    tap = UsageTap(surface, strip=False)
    sent = b"".join(b"data: %b\n\n" % orjson.dumps(one) for one in said)
    assert tap.feed(sent) == sent
    if isinstance(said[at], dict):
        read_usage(surface, said[at])
