"""The time of an output token of a stream: its own count of tokens, else its events where each is one."""

from __future__ import annotations

import pytest

from tonnage.serving.replicas.latencies import StreamClock


def clock_of(*, event_per_token: bool, usage: bytes = b"") -> StreamClock:
    """Five events in two seconds, then usage (where it is sent) and the end."""
    clock = StreamClock(event_per_token=event_per_token)
    for event in range(5):
        clock.note(1.0 + event * 0.5, b'data: {"text": "two words"}\n\n')
    clock.note(3.0, usage + b"data: [DONE]\n\n")
    return clock


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("event_per_token", [True, False])
def test_tokens_of_usage_count_whatever_events_carry(event_per_token: bool, pieces: int) -> None:
    """Eleven tokens in five events: ten after the first in two seconds, also where usage comes in parts."""
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 11, "total_tokens": 18}}\n\n'
    clock = clock_of(event_per_token=event_per_token, usage=usage)
    assert clock.per_token_s == pytest.approx(0.2)
    parted = StreamClock(event_per_token=event_per_token)
    whole = b"data: a\n\n" * 4 + usage
    for part in range(pieces):
        size = len(whole) // pieces + 1
        parted.note(1.0 + part, whole[part * size : (part + 1) * size])
    assert parted.per_token_s == pytest.approx((pieces - 1) / 10)


def test_events_are_tokens_only_where_the_engine_sends_one_for_each() -> None:
    """With speculative decoding and without usage the time of a token is not known."""
    assert clock_of(event_per_token=True).per_token_s == pytest.approx(0.5)
    assert clock_of(event_per_token=False).per_token_s is None


def test_words_of_an_answer_are_no_usage() -> None:
    """A model may write the name of that field: inside a text its quotation marks are escaped."""
    said = rb'data: {"text": "{\\"completion_tokens\\": 2000}"}' + b"\n\n"
    assert clock_of(event_per_token=True, usage=said).per_token_s == pytest.approx(2.0 / 5)
