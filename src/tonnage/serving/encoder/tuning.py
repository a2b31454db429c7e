"""How many workers and how large a batch: measured at the start, under the promise.

On a CPU texts one by one are within 15 % of the best and larger batches only add latency; on a GPU batches win. Which
it is here is measured: items a second of batches of several sizes at two lengths, one worker and all at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tonnage.serving.encoder.batching import Text
from tonnage.values import dataclass

SIZES: Final = (1, 2, 4, 8, 16, 32)
TOKENS: Final = 64
SECONDS: Final = 0.15  # of one measurement
GAIN: Final = 1.05  # what a larger batch must gain
SHARE: Final = 0.5  # of the promise that a batch may take: the other half is for waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Texts a second of batches of one size, of all workers together, and the seconds one batch takes."""

    workers: int
    texts: int
    texts_per_s: float
    batch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What was chosen, and what it was chosen from."""

    workers: int
    batch_tokens: int
    tried: tuple[Measured, ...]


def tune(
    compute: Callable[[Sequence[Text]], Any], *, workers: Sequence[int], most_tokens: int, p95_s: float | None,
    alone: bool,
) -> Tuned:  # fmt: skip
    """The most workers and the smallest batch, unless fewer or larger gain 5 % in texts a second and keep the promise.

    A worker too many waits; one too few leaves a core idle for as long as the server lives.
    `alone`: a batch is one text (its answer would depend on its batch-mates).
    """
    tokens = min(TOKENS, most_tokens)
    sizes = SIZES[:1] if alone else SIZES
    tried = tuple(
        one for count in sorted(workers, reverse=True) for one in _measured(compute, count, sizes, tokens, p95_s)
    )
    best = tried[0]
    for one in tried[1:]:
        if one.texts_per_s > best.texts_per_s * GAIN:
            best = one
    return Tuned(workers=best.workers, batch_tokens=best.texts * tokens if best.texts > 1 else 1, tried=tried)


def _measured(
    compute: Callable[[Sequence[Text]], Any], workers: int, sizes: Sequence[int], tokens: int, p95_s: float | None
) -> Iterator[Measured]:
    """Batches of growing size, until one takes longer than its share of the promise."""
    text = Text(ids=[1] * tokens)
    for size in sizes:
        batch = [text] * size
        compute(batch)
        rate, batch_s = _rate(lambda: compute(batch), workers)  # noqa: B023  # called before the next round
        if size > sizes[0] and p95_s is not None and batch_s > p95_s * SHARE:
            return
        yield Measured(workers=workers, texts=size, texts_per_s=rate * size, batch_s=batch_s)


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
