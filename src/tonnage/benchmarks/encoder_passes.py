"""Forward passes of encoders timed as an encoder server runs them: one thread a worker, one worker and all at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import quantiles
from typing import Final

from tonnage.calibration.local_profile import Timing
from tonnage.errors import InputError

Pass = Callable[[], object]
FEWEST: Final = 5
MOST: Final = 200  # calls of a point in each worker, the first left out
POINT_S: Final = 0.4
QUICK_POINT_S: Final = 0.05


def time_passes(
    make: Callable[[int, int], Pass], batches: Sequence[int], *, tokens: int, workers: int, quick: bool = False
) -> Iterator[tuple[int, Timing]]:
    """Processor seconds of one pass for each number of texts, `workers` of them running beside one another.

    `make(texts, tokens)`: a pass that computes in the thread that calls it. Its thread's own processor time counts, so
    waiting for a processor that other programs hold does not; sharing caches and memory with them does.
    """
    for texts in batches:
        taken: list[float] = []
        call, end = make(texts, tokens), time.perf_counter() + (QUICK_POINT_S if quick else POINT_S)
        threads = [threading.Thread(target=_repeat, args=(call, end, taken)) for _ in range(workers)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        yield texts, timing_of(taken)


def _repeat(call: Pass, end: float, taken: list[float]) -> None:
    call()
    for done in range(MOST):
        began = time.thread_time()
        call()
        taken.append(time.thread_time() - began)
        if done + 1 >= FEWEST and time.perf_counter() > end:
            return


def timing_of(seconds: Sequence[float]) -> Timing:
    """Median and quartiles. InputError where nothing, or no time at all, was measured."""
    if len(seconds) < 2 or min(seconds) <= 0:
        raise InputError("the processor's clock is too coarse to time an encoder here")
    low, middle, high = quantiles(seconds, n=4, method="inclusive")
    return Timing(median_s=middle, low_quartile_s=low, high_quartile_s=high, repeats=len(seconds))
