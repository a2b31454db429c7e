"""What a stream says of its usage is read however its bytes are cut; what passes is what was sent."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.gateway.dialects.usage import Usage
from tonnage.gateway.proxy.tap import UsageTap

USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}


def stream(end: str) -> list[bytes]:
    said = [{"choices": [{"delta": {"content": 'says "usage" \n\n'}}], "usage": None}, {"choices": [{"delta": {}}]}]
    events = [f"data: {json.dumps(one)}{end}".encode() for one in said]
    return [
        *events,
        f"data: {json.dumps({'choices': [], 'usage': USAGE})}{end}".encode(),
        f"data: [DONE]{end}".encode(),
    ]


@given(st.lists(st.integers(0, 500), max_size=12), st.sampled_from(["\n\n", "\r\n\r\n"]), st.booleans())
def test_any_cut_of_the_bytes(cuts: list[int], end: str, strip: bool) -> None:
    """Passed on as it came, or without the event of the usage; usage and end are read."""
    events = stream(end)
    data = b"".join(events)
    places = sorted({0, len(data), *(one % len(data) for one in cuts)})
    tap = UsageTap("chat", strip=strip)
    passed = b"".join(tap.feed(data[here:there]) for here, there in pairwise(places)) + tap.rest
    assert passed == (b"".join([*events[:2], events[3]]) if strip else data)
    assert tap.usage == Usage(input_tokens=7, output_tokens=2, cached_input_tokens=3)
    assert tap.finished


def test_whole_events_are_not_held_back() -> None:
    """Each piece that ends with an event goes on at once."""
    tap = UsageTap("chat", strip=True)
    for one in stream("\n\n")[:2]:
        assert tap.feed(one) == one
    assert not tap.finished


@pytest.mark.parametrize("surface", ["messages", "responses"])
def test_other_surfaces(surface: str) -> None:
    """Anthropic tells the input at the start and the output at the end; responses tell all at the end."""
    if surface == "messages":
        start = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 20}}}
        said = [start, {"type": "message_delta", "usage": {"output_tokens": 9}}, {"type": "message_stop"}]
        expected = Usage(input_tokens=25, output_tokens=9, cached_input_tokens=20)
    else:
        usage = {"input_tokens": 5, "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 4}}
        said = [{"type": "response.completed", "response": {"usage": usage}}]
        expected = Usage(input_tokens=5, output_tokens=9, reasoning_tokens=4)
    tap = UsageTap(surface, strip=False)  # type: ignore[arg-type]
    for one in said:
        tap.feed(f"event: {one['type']}\ndata: {json.dumps(one, separators=(',', ':'))}\n\n".encode())
    assert (tap.usage, tap.finished) == (expected, True)
