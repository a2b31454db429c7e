"""What answers took in the last minute, from a request's arrival at the balancer to the end of its answer."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Final

WINDOW_S: Final = 60.0
SLICE_S: Final = 5.0
RATIO: Final = 1.05  # between two edges: a percentile is right to 5 %
LEAST_S: Final = 1e-5
FEWEST: Final = 20  # answers, below which a 95th percentile is one answer's


class LatencyWindow:
    """Counts in steps of 5 %, in slices of five seconds: its memory does not grow with the rate."""

    def __init__(self) -> None:
        self._slices: deque[tuple[float, Counter[int]]] = deque()

    def add(self, at_s: float, took_s: float) -> None:
        """An answer that ended at `at_s` of a clock that only goes forward."""
        if not self._slices or at_s - self._slices[-1][0] >= SLICE_S:
            self._slices.append((at_s, Counter()))
            self._forget(at_s)
        self._slices[-1][1][math.ceil(math.log(max(took_s, LEAST_S) / LEAST_S, RATIO))] += 1

    def p95_s(self, at_s: float) -> float | None:
        """The 95th percentile of the last minute, at most 5 % too high; None with fewer than twenty answers.

        >>> window = LatencyWindow()
        >>> for number in range(100):
        ...     window.add(number / 10, 0.2 if number < 90 else 2.0)
        >>> 2.0 <= window.p95_s(10.0) <= 2.1
        True
        >>> window.p95_s(100.0) is None
        True
        """
        self._forget(at_s)
        steps: Counter[int] = Counter()
        for _, counts in self._slices:
            steps.update(counts)
        total = steps.total()
        if total < FEWEST:
            return None
        below = 0
        for step in sorted(steps):
            below += steps[step]
            if below >= 0.95 * total:
                return float(LEAST_S * RATIO**step)
        raise AssertionError("the counts add up to their total")

    def _forget(self, at_s: float) -> None:
        while self._slices and self._slices[0][0] <= at_s - WINDOW_S:
            self._slices.popleft()
