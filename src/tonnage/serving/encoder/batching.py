"""The batcher: items wait by length; each worker takes what is there, the longest-waiting length first, and never waits
for more to come.

Items are kept in buckets of like length, so that little of a batch is padding: a bucket's longest text has at most a
quarter more tokens than its shortest. A batch is taken from the bucket whose first item has waited longest (so no
length starves), as many as fit into the budget (of tokens, padding included; of rows of a table), at least one item.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Generic, Protocol, TypeVar

from tonnage.serving.encoder.faults import Draining, Fault, Late, ModelFailed, Overloaded
from tonnage.sizing.encoder_queue import bucket_of
from tonnage.values import dataclass

Answer = TypeVar("Answer")
Compute = Callable[[Sequence[Any]], Sequence[Answer]]  # items of one kind
SMOOTHING: Final = 0.1  # of the mean seconds an item takes


class Item(Protocol):
    """What a batch is made of: `count` things to answer, padded in a batch to the longest `length` in it."""

    @property
    def length(self) -> int: ...

    @property
    def count(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedText:
    """Token numbers of one text (or pair), with the segment of each; `parts`: how the task reads its answer back."""

    ids: Sequence[int]
    segments: Sequence[int] | None = None
    parts: Any = None

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def count(self) -> int:
        return 1


class Waiting(Generic[Answer]):
    """The items of one request: answered together when the last is, or failed together."""

    __slots__ = ("answers", "deadline", "done", "fault", "left", "on_done", "since")

    def __init__(self, count: int, on_done: Callable[[Waiting[Answer]], None], deadline: float | None) -> None:
        self.answers: list[Answer | None] = [None] * count
        self.left, self.on_done, self.deadline = count, on_done, deadline
        self.since = time.monotonic()
        self.fault: Fault | None = None
        self.done = False  # answered, failed or given up

    def fail(self, fault: Fault) -> bool:
        """Whether it was still open."""
        was_open, self.done = not self.done, True
        self.fault = self.fault or fault
        return was_open

    def put(self, at: int, answer: Answer) -> bool:
        """Whether this was the last answer that it waited for."""
        self.answers[at] = answer
        self.left -= 1
        if self.left or self.done:
            return False
        self.done = True
        return True


_Placed = tuple[Waiting[Any], int, Item]


class Batcher(Generic[Answer]):
    """Workers over a bounded queue. `compute` answers a batch in the calling thread; it must bear several at a time."""

    def __init__(self, compute: Compute[Answer], *, workers: int, batch_tokens: int, queue_items: int) -> None:
        self.compute, self.batch_tokens, self.queue_items = compute, batch_tokens, queue_items
        self.waiting, self.computing, self.computed, self.batches = 0, 0, 0, 0
        self.item_s: float | None = None  # mean, of one worker
        self.queue_s, self.batch_s = (
            0.0,
            0.0,
        )  # added up: waits of requests' parts for their batch, computing of batches
        self._buckets: dict[int, deque[_Placed]] = {}
        self._changed = threading.Condition()
        self._ending = False
        self.workers = [threading.Thread(target=self._work, name=f"encoder-{n}", daemon=True) for n in range(workers)]
        for worker in self.workers:
            worker.start()

    def submit(self, items: Sequence[Item], on_done: Callable[[Waiting[Answer]], None], *,
               deadline: float | None = None) -> Waiting[Answer]:  # fmt: skip
        """Queue the items of one request; `on_done` is called in a worker's thread once all are answered or one failed.

        `deadline` is of time.monotonic. Raises Overloaded where the queue has no room for all of them, Draining after
        `drain`.
        """
        request: Waiting[Answer] = Waiting(len(items), on_done, deadline)
        count = sum(item.count for item in items)
        with self._changed:
            if self._ending:
                raise Draining("the server is ending")
            if self.waiting + count > self.queue_items:
                wait_s = self.wait_s()
                raise Overloaded(f"{self.waiting} wait, of at most {self.queue_items}",
                                 retry_after_s=wait_s, position=self.waiting + 1)  # fmt: skip
            for at, item in enumerate(items):
                self._buckets.setdefault(bucket_of(item.length), deque()).append((request, at, item))
            self.waiting += count
            self._changed.notify(len(items))
        return request

    def wait_s(self) -> float:
        """Seconds until what comes now is taken, as it has gone so far."""
        return self.waiting * (self.item_s or 0.0) / len(self.workers)

    def give_up(self, request: Waiting[Answer]) -> None:
        """The client has left: items of it that still wait are not computed."""
        request.done = True

    def drain(self, *, timeout_s: float) -> bool:
        """Take nothing new and finish what waits; whether all of it was finished in time."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        until = time.monotonic() + timeout_s
        for worker in self.workers:
            worker.join(max(0.0, until - time.monotonic()))
        return not self.waiting and not self.alive

    @property
    def alive(self) -> bool:
        """Whether anybody computes."""
        return any(worker.is_alive() for worker in self.workers)

    def _work(self) -> None:
        while (batch := self._take()) is not None:
            if batch:
                self._answer(batch)

    def _take(self) -> list[_Placed] | None:
        """The next batch, which may turn out empty; None: all is done and the server ends."""
        with self._changed:
            while not self.waiting:
                if self._ending:
                    return None
                self._changed.wait()
            number = min(self._buckets, key=lambda one: self._buckets[one][0][0].since)
            batch = self._fill(number)
            now = time.monotonic()
            self.queue_s += sum(now - request.since for request, _, _ in batch)
            self.computing += _count(batch)
        return batch

    def _fill(self, number: int) -> list[_Placed]:
        queue, longest, count, now = self._buckets[number], 0, 0, time.monotonic()
        batch: list[_Placed] = []
        while queue:
            request, _, item = queue[0]
            longest = max(longest, item.length)
            if batch and longest * (count + item.count) > self.batch_tokens:
                break
            placed = queue.popleft()
            self.waiting -= item.count
            if request.deadline is not None and now > request.deadline and not request.done:
                self._fail(request, Late("its deadline passed while it waited"))
            elif not request.done:
                batch.append(placed)
                count += item.count
        if not queue:
            del self._buckets[number]
        return batch

    def _answer(self, batch: list[_Placed]) -> None:
        began = time.monotonic()
        try:
            answers = list(zip(batch, self.compute([item for _, _, item in batch]), strict=True))
        except Exception as error:  # whatever the model raises: the request fails, the worker goes on
            if len(batch) > 1:  # the others of the batch are not at fault
                self._again(batch)
            else:
                self._settle(batch, began)
                self._fail(
                    batch[0][0], error if isinstance(error, Fault) else ModelFailed(f"{type(error).__name__}: {error}")
                )
            return
        self._settle(batch, began)
        for (request, at, _), answer in answers:
            if request.put(at, answer):
                self._tell(request)

    def _again(self, batch: list[_Placed]) -> None:
        """Each item alone, of the requests that still wait for an answer."""
        for item in batch:
            if item[0].done:
                with self._changed:
                    self.computing -= item[2].count
            else:
                self._answer([item])

    def _fail(self, request: Waiting[Answer], fault: Fault) -> None:
        if request.fail(fault):
            self._tell(request)

    def _tell(self, request: Waiting[Answer]) -> None:
        """No fault where the loop that asked has ended."""
        with suppress(RuntimeError):
            request.on_done(request)

    def _settle(self, batch: list[_Placed], began: float) -> None:
        count = _count(batch)
        spent_s = time.monotonic() - began
        each = spent_s / count
        with self._changed:
            self.batch_s += spent_s
            self.computing -= count
            self.computed += count
            self.batches += 1
            self.item_s = each if self.item_s is None else self.item_s + SMOOTHING * (each - self.item_s)


def _count(batch: Sequence[_Placed]) -> int:
    return sum(item.count for _, _, item in batch)
