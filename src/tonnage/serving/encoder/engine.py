"""A served model ready to answer: opened, its batches measured, its batcher started.

On a CPU texts one by one are within 15 % of the best and larger batches only add latency; on a GPU batches win. Which
it is here is measured at the start, under the promise: items a second of batches of several sizes, one worker and all
at once.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from numpy.typing import NDArray

from tonnage.serving.encoder.batching import Batcher, Compute, Item, Waiting
from tonnage.serving.encoder.caching import AnswerCache, Kept, key_of
from tonnage.serving.encoder.faults import BadRequest, TooLarge
from tonnage.serving.encoder.kinds import open_served
from tonnage.serving.encoder.opened import Kind
from tonnage.serving.encoder.service import EncoderService
from tonnage.sizing.encoder_queue import GAIN, SHARE
from tonnage.values import dataclass

_THINGS: Final[dict[Kind, str]] = {"texts": "texts", "tables": "rows", "images": "pictures"}
Given = Sequence[Any] | NDArray[Any]  # texts; pictures; rows of numbers
SECONDS: Final = 0.15  # of one measurement


class Encoder:
    """One model. `answers` is for the event loop that serves requests; the workers are threads of their own."""

    def __init__(self, service: EncoderService, *, cache: AnswerCache | None = None) -> None:
        self.service, self.cache = service, cache
        self.hits = 0
        self.opened = open_served(service)
        self.folder, self.device = self.opened.folder, self.opened.device
        self.version = f"{self.opened.digest[:12]}-{self.folder.task}-{service.weights}"
        self.tuned = self._tuned()
        self.batcher: Batcher[Any] = Batcher(
            self.opened.compute, workers=self.tuned.workers, batch_tokens=self.tuned.batch_tokens,
            queue_items=service.queue_items,
        )  # fmt: skip

    def _tuned(self) -> Tuned:
        """As the service says, or as measured."""
        service, opened = self.service, self.opened
        alone = opened.sizes == (1,)
        if service.workers is not None and (service.batch_tokens is not None or alone):
            return Tuned(workers=service.workers, batch_tokens=1 if alone else service.batch_tokens or 1, tried=())
        workers = [service.workers] if service.workers else _workers(opened.device, service.threads)
        return tune(opened.compute, opened.example, sizes=opened.sizes, workers=workers, p95_s=service.p95_s)

    async def answers(
        self, given: Given, *, truncate: bool | None, deadline: float | None, tenant: bytes = b""
    ) -> tuple[list[Any], int]:
        """The answer to each text (or row), and their tokens in all. Raises a Fault for what is not answered.

        Cancelled, it gives up what still waits.
        """
        if not len(given):
            raise BadRequest("there is nothing to answer: the batch is empty")
        if len(given) > self.opened.request_items:
            things, most = _THINGS[self.opened.kind], self.opened.request_items
            raise TooLarge(f"{len(given)} {things} in one request, at most {most}")
        cut = self.service.truncate if truncate is None else truncate
        if self.cache is None:
            kept = await self._computed(given, cut=cut, deadline=deadline)
        else:
            kept = await self._kept(self.cache, given, cut=cut, deadline=deadline, tenant=tenant)
        return [answer for answer, _ in kept], sum(tokens for _, tokens in kept)

    async def _kept(
        self, cache: AnswerCache, given: Given, *, cut: bool, deadline: float | None, tenant: bytes
    ) -> list[Kept]:
        """Those that are kept as they are, the others computed and kept."""
        asked = f"{self.version} {self.opened.settings}"
        keys = [key_of(asked, tenant, self.opened.reader.key_parts(one), cut=cut) for one in given]
        found = await cache.read(keys)
        missing = [at for at, one in enumerate(found) if one is None]
        self.hits += len(given) - len(missing)
        if missing:
            made = await self._computed([given[at] for at in missing], cut=cut, deadline=deadline)
            await cache.keep([(keys[at], one) for at, one in zip(missing, made, strict=True)])
            found = [*found]
            for at, one in zip(missing, made, strict=True):
                found[at] = one
        return [one for one in found if one is not None]

    async def _computed(self, given: Given, *, cut: bool, deadline: float | None) -> list[Kept]:
        reader = self.opened.reader
        items = await reader.read_all(given, truncate=cut)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def wake(_: Waiting[Any]) -> None:
            loop.call_soon_threadsafe(_finish, future)

        request = self.batcher.submit(items, wake, deadline=deadline)
        try:
            await future
        finally:
            self.batcher.give_up(request)
        if request.fault is not None:
            raise request.fault
        return [one for item, answer in zip(items, request.answers, strict=True) for one in reader.kept(item, answer)]

    def drain(self, *, timeout_s: float) -> bool:
        """Finish what waits; whether all was finished."""
        return self.batcher.drain(timeout_s=timeout_s)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _workers(device: str, threads: int) -> list[int]:
    """On a GPU one worker computes and another prepares; on a CPU one for each core, or for each group of threads."""
    if device != "cpu":
        return [1, 2]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return sorted({1, max(1, cores // threads)})


def deadline_in(seconds: float | None) -> float | None:
    """A deadline of time.monotonic."""
    return None if seconds is None else time.monotonic() + seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBatches:
    """Items a second of batches of one size, of all workers together, and the seconds one batch takes."""

    workers: int
    items: int
    items_per_s: float
    batch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What was chosen, and what it was chosen from. `batch_tokens`: tokens of texts; rows of a table."""

    workers: int
    batch_tokens: int
    tried: tuple[MeasuredBatches, ...]


def tune(
    compute: Compute[Any], example: Item, *, sizes: Sequence[int], workers: Sequence[int], p95_s: float | None
) -> Tuned:
    """The most workers and the smallest batch, unless fewer or larger gain 5 % in items a second and keep the promise.

    A worker too many waits; one too few leaves a core idle for as long as the server lives.
    `sizes`: numbers of examples in the batches to be tried, growing.
    """
    tried = tuple(
        one for count in sorted(workers, reverse=True) for one in _measured(compute, example, count, sizes, p95_s)
    )
    best = tried[0]
    for one in tried[1:]:
        if one.items_per_s > best.items_per_s * GAIN:
            best = one
    return Tuned(workers=best.workers, batch_tokens=best.items * example.length if best.items > 1 else 1, tried=tried)


def _measured(
    compute: Compute[Any], example: Item, workers: int, sizes: Sequence[int], p95_s: float | None
) -> Iterator[MeasuredBatches]:
    """Batches of growing size, until one takes longer than its share of the promise."""
    for size in sizes:
        batch = [example] * size
        compute(batch)
        rate, batch_s = _rate(lambda: compute(batch), workers)  # noqa: B023  # called before the next round
        if size > sizes[0] and p95_s is not None and batch_s > p95_s * SHARE:
            return
        yield MeasuredBatches(workers=workers, items=size, items_per_s=rate * size, batch_s=batch_s)


def _rate(call: Callable[[], Any], workers: int) -> tuple[float, float]:
    """Calls a second of so many threads, and the mean seconds of one."""
    counts = [0] * workers
    until = time.perf_counter() + SECONDS

    def work(at: int) -> None:
        while time.perf_counter() < until or not counts[at]:
            call()
            counts[at] += 1

    began = time.perf_counter()
    threads = [threading.Thread(target=work, args=(at,)) for at in range(workers)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    took = time.perf_counter() - began
    return sum(counts) / took, took * workers / sum(counts)
