"""When requests are due: drawn from a process, or as a trace recorded them. No arrival waits for an answer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from math import sqrt
from typing import Final, Literal

from tonnage.sizing.traces import RequestTrace
from tonnage.values import dataclass

Process = Literal["poisson", "constant", "ramp"]
PROCESSES: Final = ("poisson", "constant", "ramp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request that is due `at_s` after the start; lengths where a trace states them."""

    at_s: float
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalPlan:
    """`rate_per_s` requests a second for `duration_s`; a ramp goes evenly from there to `last_rate_per_s`."""

    process: Process
    rate_per_s: float
    duration_s: float
    last_rate_per_s: float | None = None
    seed: int = 0

    @property
    def words(self) -> str:
        """As a page names it."""
        if self.process == "ramp":
            return f"ramp {self.rate_per_s:g} to {self.last_rate_per_s:g} requests/s"
        return f"{self.process} {self.rate_per_s:g} requests/s"

    def arrivals(self) -> Iterator[Arrival]:
        """In order of time; the same for the same seed.

        >>> [one.at_s for one in ArrivalPlan(process="constant", rate_per_s=2, duration_s=2).arrivals()]
        [0.0, 0.5, 1.0, 1.5]
        """
        times = {"poisson": self._poisson, "constant": self._constant, "ramp": self._ramp}[self.process]()
        for at_s in times:
            if at_s >= self.duration_s:
                return
            yield Arrival(at_s=at_s)

    def _constant(self) -> Iterator[float]:
        return (number / self.rate_per_s for number in count())

    def _poisson(self) -> Iterator[float]:
        draw, at_s = random.Random(self.seed), 0.0
        while True:
            at_s += draw.expovariate(self.rate_per_s)
            yield at_s

    def _ramp(self) -> Iterator[float]:
        """A Poisson process whose rate grows as a line: unit exponentials put through the inverse of its integral."""
        first = self.rate_per_s
        last = first if self.last_rate_per_s is None else self.last_rate_per_s
        slope = (last - first) / self.duration_s
        draw, summed = random.Random(self.seed), 0.0
        while True:
            summed += draw.expovariate(1.0)
            square = first * first + 2.0 * slope * summed
            if square < 0.0:  # a falling rate reaches zero before this request
                return
            yield 2.0 * summed / (first + sqrt(square))  # = (root - first) / slope, sound where the slope is zero too


def replayed(trace: RequestTrace, *, speed: float = 1.0) -> tuple[Arrival, ...]:
    """The arrivals of a recorded trace, from 0 on; `speed` 2 replays it twice as fast."""
    return tuple(
        Arrival(at_s=float(at_s) / speed, input_tokens=int(read), output_tokens=int(written))
        for at_s, read, written in zip(trace.at_s, trace.input_tokens, trace.output_tokens, strict=True)
    )
