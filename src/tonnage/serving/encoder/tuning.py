"""How many workers and how large a batch: measured at the start, under the promise.

On a CPU texts one by one are within 15 % of the best and larger batches only add latency; on a GPU batches win. Which
it is here is measured: items a second of batches of several sizes, one worker and all at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tonnage.serving.encoder.batching import Compute, Item
from tonnage.sizing.encoder_queue import GAIN, SHARE
from tonnage.values import dataclass

SECONDS: Final = 0.15  # of one measurement


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
