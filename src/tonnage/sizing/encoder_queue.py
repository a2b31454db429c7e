"""The queue of Tonnage's encoder server, as the server and its prediction use it: buckets of like length, batches
filled at once, workers that never wait for company; and its latency under Poisson arrivals."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from math import exp, inf, log, sqrt
from typing import Final

import numpy as np

from tonnage.sizing.arrivals import Arrivals, Poisson, SpreadLengths
from tonnage.sizing.estimates import Array
from tonnage.sizing.percentiles import Percentiles
from tonnage.values import dataclass
from tonnage.workload.jobs import Requests

RATIO: Final = 1.25  # of the lengths in one bucket
FIRST: Final = 16  # tokens; texts up to here share the first bucket
EXAMPLE_TOKENS: Final = 64  # of the texts that the server times at its start
SIZES: Final = (1, 2, 4, 8, 16, 32)  # texts in the batches that it times
GAIN: Final = 1.05  # what a larger batch must gain in texts a second
SHARE: Final = 0.5  # of the promise that a batch may take: the other half is for waiting
LOADS: Final = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.78, 0.85, 0.9, 0.94, 0.97)  # of saturation
REQUESTS: Final = 4_000  # simulated at each load
WARM_UP: Final = 0.1  # of the requests
QUEUE_ITEMS: Final = 1024  # that may wait, as the server is set by default

BatchSeconds = Callable[[int, int, int], float]  # texts, tokens of the longest, workers that compute -> seconds


def bucket_of(tokens: int) -> int:
    """The number of the bucket for texts of so many tokens.

    >>> [bucket_of(tokens) for tokens in (3, 16, 17, 20, 21, 512)]
    [0, 0, 1, 1, 2, 16]
    """
    number, edge = 0, float(FIRST)
    while tokens > edge:
        number, edge = number + 1, edge * RATIO
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderQueue:
    """One server: `workers` batches at a time, each at most `batch_tokens` with padding, or a single text."""

    batch_s: BatchSeconds
    workers: int
    batch_tokens: int


def tuned_batch_tokens(batch_s: BatchSeconds, workers: int, *, longest: int, p95_s: float | None) -> int:
    """The bound of a batch that the server finds at its start: the smallest batch unless a larger one gains 5 % in
    texts a second, none that takes over half of the promise; 1: texts one by one."""
    example = min(EXAMPLE_TOKENS, longest)
    best, best_rate = 1, 0.0
    for size in SIZES:
        took = batch_s(size, example, workers)
        if size > 1 and p95_s is not None and took > p95_s * SHARE:
            break
        if size / took > best_rate * GAIN:
            best, best_rate = size, size / took
    return best * example if best > 1 else 1


def answer_times(
    queue: EncoderQueue, at_s: Sequence[float], lengths: Sequence[int], most_waiting: float = inf
) -> Array:
    """Seconds from each arrival to its answer, event by event; infinite for a request that found the queue full.

    The bucket whose first text waited longest goes first. What a batch takes depends on the workers that compute when
    it starts.
    """
    found = np.full(len(at_s), inf)
    buckets: dict[int, deque[int]] = {}
    ends: list[tuple[float, int, list[int]]] = []
    numbers = {length: bucket_of(length) for length in set(lengths)}
    free, waiting, index, started = queue.workers, 0, 0, 0
    while index < len(at_s) or ends:
        if index < len(at_s) and (not ends or at_s[index] <= ends[0][0]):
            now = at_s[index]
            if waiting < most_waiting:
                buckets.setdefault(numbers[lengths[index]], deque()).append(index)
                waiting += 1
            index += 1
        else:
            now, _, done = heapq.heappop(ends)
            free += 1
            for one in done:
                found[one] = now - at_s[one]
        while free and waiting:
            batch = _take(buckets, lengths, queue.batch_tokens)
            waiting -= len(batch)
            busy = queue.workers - free + 1
            end = now + queue.batch_s(len(batch), max(lengths[one] for one in batch), busy)
            started += 1
            heapq.heappush(ends, (end, started, batch))
            free -= 1
    return found


def _take(buckets: dict[int, deque[int]], lengths: Sequence[int], most_tokens: int) -> list[int]:
    number = min(buckets, key=lambda one: buckets[one][0])
    waiting, longest = buckets[number], 0
    batch: list[int] = []
    while waiting:
        longest = max(longest, lengths[waiting[0]])
        if batch and longest * (len(batch) + 1) > most_tokens:
            break
        batch.append(waiting.popleft())
    if not waiting:
        del buckets[number]
    return batch


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyCurve:
    """Latencies of a queue over its load, and the load that fills it. Seconds; percentiles at each of `LOADS`.

    A server k times as slow has k times these latencies at loads k times smaller: time has no scale of its own.
    """

    saturation_per_s: float
    seen: tuple[Percentiles, ...]

    def latency_s(self, share: str, rate_per_s: float, slower: float = 1.0) -> float | None:
        """The percentile `share` (p50, p95, mean, ...) at a rate, of a server `slower` times as slow; None where the
        rate is over the largest load simulated: the queue grows without end, or nearly."""
        load = rate_per_s * slower / self.saturation_per_s
        if load > LOADS[-1]:
            return None
        values = np.maximum.accumulate([log(getattr(one, share)) for one in self.seen])
        found: float = exp(float(np.interp(load, LOADS, values)))
        return slower * found

    def slowness(self, share: str, rate_per_s: float, latency_s: float) -> float | None:
        """How many times as slow the server is that shows this latency at this rate; None where no load below
        saturation shows it."""
        high = LOADS[-1] * self.saturation_per_s / rate_per_s
        low = min(latency_s / self._least(share), high) * 1e-3
        most = self.latency_s(share, rate_per_s, high * (1 - 1e-9))
        if most is None or latency_s > most:
            return None
        for _ in range(60):
            middle = sqrt(low * high)
            seen = self.latency_s(share, rate_per_s, middle)
            if seen is not None and seen < latency_s:
                low = middle
            else:
                high = middle
        return sqrt(low * high)

    def largest_rate(self, p95_s: float | None, slower: float = 1.0) -> float:
        """The highest rate whose p95 latency keeps the promise; the saturation where nothing is promised, 0 where even
        a lone request breaks it."""
        if p95_s is None:
            return self.saturation_per_s / slower
        low, high = 0.0, LOADS[-1] * self.saturation_per_s / slower
        for _ in range(50):
            middle = (low + high) / 2.0
            seen = self.latency_s("p95", middle, slower)
            low, high = (middle, high) if seen is not None and seen <= p95_s else (low, middle)
        return low

    def _least(self, share: str) -> float:
        found: float = getattr(self.seen[0], share)
        return found


def latency_curve(queue: EncoderQueue, requests: Requests, *, seed: int = 0) -> LatencyCurve:
    """The queue simulated at each of `LOADS`, with the same unit draws. Saturation: all requests there at once."""
    lengths = SpreadLengths(requests=requests)
    stream = Arrivals(process=Poisson(rate_per_s=1.0), lengths=lengths, requests=REQUESTS).draw(seed)
    tokens: list[int] = stream.input_tokens.tolist()
    one_a_second = stream.at_s * (REQUESTS / stream.at_s[-1])  # exactly, so that a load is the load it says
    saturation = REQUESTS / float(np.max(answer_times(queue, [0.0] * REQUESTS, tokens)))
    cut = int(WARM_UP * REQUESTS)
    seen = []
    for load in LOADS:
        at_s = (one_a_second / (load * saturation)).tolist()
        seen.append(Percentiles.of(answer_times(queue, at_s, tokens)[cut:]))
    return LatencyCurve(saturation_per_s=saturation, seen=tuple(seen))
