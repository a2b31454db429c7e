"""The batcher: nothing waits for company, no length starves, what cannot be answered says why."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.serving.encoder.batching import Batcher, EncodedText, Waiting
from tonnage.serving.encoder.faults import BadRequest, Draining, Late, ModelFailed, Overloaded
from tonnage.sizing.encoder_queue import FIRST, RATIO, bucket_of


class Gate:
    """A model that answers each text with its length, once it is let through; remembers its batches."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.batches: list[list[int]] = []
        self.let = threading.Event()
        if is_open:
            self.let.set()

    def __call__(self, texts: Sequence[EncodedText]) -> Sequence[int]:
        self.batches.append([len(text.ids) for text in texts])
        assert self.let.wait(10)
        return [len(text.ids) for text in texts]


def texts(*lengths: int) -> list[EncodedText]:
    return [EncodedText(ids=[1] * length) for length in lengths]


def batcher(compute: Any, **changed: int) -> Batcher[int]:
    return Batcher(compute, **{"workers": 1, "batch_tokens": 64, "queue_items": 100, **changed})


def submit(one: Batcher[int], *lengths: int, deadline: float | None = None) -> tuple[Waiting[int], threading.Event]:
    told = threading.Event()
    return one.submit(texts(*lengths), lambda _: told.set(), deadline=deadline), told


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=6), min_size=1, max_size=20), st.integers(1, 3))
def test_every_text_is_answered_once_in_its_place(requests: list[list[int]], workers: int) -> None:
    """Whatever comes, each answer is that of its own text; batches keep the budget, but for one text alone, and little
    of them is padding."""
    model = Gate()
    one = batcher(model, workers=workers, queue_items=1000)
    waiting = [submit(one, *lengths) for lengths in requests]
    assert one.drain(timeout_s=10)
    for (request, told), lengths in zip(waiting, requests, strict=True):
        assert told.is_set()
        assert request.answers == lengths
    assert sorted(length for batch in model.batches for length in batch) == sorted(
        length for lengths in requests for length in lengths
    )
    for batch in model.batches:
        assert len(batch) == 1 or max(batch) * len(batch) <= 64
        assert max(batch) <= max(FIRST, min(batch) * RATIO + 1)


def test_a_lone_text_does_not_wait() -> None:
    """Nothing is held back for a fuller batch."""
    model = Gate()
    one = batcher(model)
    for _ in range(3):
        _, told = submit(one, 5)
        assert told.wait(10)
    assert model.batches == [[5]] * 3
    one.drain(timeout_s=5)


def test_the_text_that_waited_longest_goes_first() -> None:
    """A long text that came first is computed before the many short ones that came later."""
    model = Gate(is_open=False)
    one = batcher(model)
    submit(one, 3)
    while not model.batches:
        time.sleep(0.001)
    submit(one, 200)
    for _ in range(20):
        submit(one, 3)
    model.let.set()
    one.drain(timeout_s=5)
    assert model.batches[1] == [200]


def test_a_full_queue_turns_away_with_place_and_time() -> None:
    """Beyond the bound nothing is queued, not even part of a request."""
    model = Gate(is_open=False)
    one = batcher(model, queue_items=3)
    submit(one, 3)
    while one.waiting:
        time.sleep(0.001)
    submit(one, 3, 3)
    with pytest.raises(Overloaded) as refused:
        submit(one, 3, 3)
    assert refused.value.position == 3
    assert dict(refused.value.headers())[b"retry-after"] == b"1"
    _, told = submit(one, 3)
    model.let.set()
    assert told.wait(5)
    one.drain(timeout_s=5)


def test_what_is_too_late_is_not_computed() -> None:
    """A request whose deadline passes in the queue fails, and the model never sees it; so does one given up."""
    model = Gate(is_open=False)
    one = batcher(model)
    submit(one, 3)
    while not model.batches:
        time.sleep(0.001)
    late, told = submit(one, 50, deadline=time.monotonic() - 1)
    left, _ = submit(one, 60)
    one.give_up(left)
    model.let.set()
    assert told.wait(5)
    assert isinstance(late.fault, Late)
    assert one.drain(timeout_s=5)
    assert model.batches == [[3]]


def test_one_bad_text_fails_alone() -> None:
    """The model raises for one text of a batch: the others are answered."""
    begun = threading.Event()

    def picky(batch: Sequence[EncodedText]) -> Sequence[int]:
        begun.wait(5)
        if any(len(text.ids) == 7 for text in batch):
            raise ValueError("seven")
        return [len(text.ids) for text in batch]

    one = batcher(picky)
    waiting = [submit(one, length) for length in (5, 6, 7, 8)]
    begun.set()
    assert one.drain(timeout_s=5)
    faults = [request.fault for request, _ in waiting]
    assert [type(fault) for fault in faults] == [type(None), type(None), ModelFailed, type(None)]
    assert "ValueError: seven" in str(faults[2])
    assert one.computing == 0


def test_a_model_that_loses_an_answer_fails_its_requests_alone() -> None:
    """Fewer answers than texts: those requests fail, the worker lives on, and the next is answered."""

    def short(batch: Sequence[EncodedText]) -> Sequence[int]:
        return [len(text.ids) for text in batch][: -1 if len(batch[0].ids) == 7 else None]

    one = batcher(short)
    lost, told = submit(one, 7)
    assert told.wait(5)
    assert isinstance(lost.fault, ModelFailed)
    found, told = submit(one, 5)
    assert told.wait(5)
    assert (found.answers, one.alive) == ([5], True)
    assert one.drain(timeout_s=5)


def test_a_fault_of_the_request_stays_what_it_is() -> None:
    """What the model's reader says of one request reaches that request as it was said."""

    def picky(batch: Sequence[EncodedText]) -> Sequence[int]:
        if len(batch[0].ids) == 7:
            raise BadRequest("no tokens")
        return [len(text.ids) for text in batch]

    one = batcher(picky)
    request, told = submit(one, 7)
    assert told.wait(5)
    assert isinstance(request.fault, BadRequest)
    one.drain(timeout_s=5)


def test_a_loop_that_has_ended_kills_no_worker() -> None:
    """Telling nobody is no fault: the worker answers the next request."""

    def gone(_: Waiting[int]) -> None:
        raise RuntimeError("Event loop is closed")

    one = batcher(Gate())
    one.submit(texts(3), gone)
    _, told = submit(one, 4)
    assert told.wait(5)
    one.drain(timeout_s=5)


def test_a_draining_batcher_takes_nothing_and_finishes_all() -> None:
    """What was taken is answered; what comes later is refused."""
    model = Gate(is_open=False)
    one = batcher(model)
    waiting = [submit(one, 3) for _ in range(5)]
    ended: list[bool] = []
    draining = threading.Thread(target=lambda: ended.append(one.drain(timeout_s=10)))
    draining.start()
    while True:
        try:
            waiting.append(submit(one, 3))
        except Draining:
            break
    model.let.set()
    draining.join(10)
    assert ended == [True]
    assert all(request.answers == [3] for request, _ in waiting)


def test_buckets_grow_with_length() -> None:
    """A longer text never comes into an earlier bucket."""
    numbers = [bucket_of(tokens) for tokens in range(1, 1000)]
    assert numbers == sorted(numbers)
