"""Which engine is faster, how surely: ratios of seconds over the repeats that two engines share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp, inf, log, sqrt
from statistics import fmean, stdev
from typing import Final

from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.result import BenchResult, t90
from tonnage.side_by_side.spec import BenchData
from tonnage.side_by_side.spread import student
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

SURE: Final = 0.9  # the confidence from which on one engine is called faster
Seconds = Mapping[int, float]  # of an engine, by repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Faster:
    """The quickest engine on a data set beside another one.

    `ratio`: seconds of `other` over those of `first`, with its 80 % interval. `confidence`: that `first` is the faster
    one, each pair for itself; None of one shared repeat, which says nothing of it.
    """

    data: str
    first: str
    other: str
    ratio: Figure
    repeats: int
    confidence: float | None

    @property
    def sure(self) -> bool:
        return self.confidence is not None and self.confidence >= SURE


def faster_on(found: BenchResult, data: BenchData) -> tuple[Faster, ...]:
    """The engine with the least seconds to the target (in all, where no target is stated) beside each other one that
    came to it in all of its repeats; nothing where fewer than two did."""
    names = [row.engine.name for row in found.rows
             if row.data.name == data.name and row.done and row.engine.takes_all_rows]  # fmt: skip
    every = [(name, _seconds(data, [one for one in found.cells if (one.data, one.engine) == (data.name, name)]))
             for name in names]  # fmt: skip
    timed = sorted(((name, known) for name, known in every if known), key=lambda one: _mean(one[1]))
    return tuple(_beside(data.name, timed[0], timed[1:])) if timed else ()


def _seconds(data: BenchData, cells: Sequence[BenchCell]) -> Seconds:
    """By repeat; nothing where one of them missed the target: what is left would flatter the engine."""
    good = [cell for cell in cells if cell.reason is None]
    found = {cell.turn: cell.work_s if data.target is None else cell.to_target_s(data.metric, data.target)
             for cell in good}  # fmt: skip
    return {turn: value for turn, value in found.items() if value} if None not in found.values() else {}


def _mean(seconds: Seconds) -> float:
    return exp(fmean(log(one) for one in seconds.values()))


def _beside(data: str, first: tuple[str, Seconds], others: Sequence[tuple[str, Seconds]]) -> Iterator[Faster]:
    for name, seconds in others:
        shared = sorted(first[1].keys() & seconds.keys())
        if shared:
            pairs = [(first[1][turn], seconds[turn]) for turn in shared]
            ratio, confidence = paired_ratio(pairs)
            yield Faster(data=data, first=first[0], other=name, ratio=ratio, repeats=len(pairs), confidence=confidence)


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> tuple[Figure, float | None]:
    """How many times the second of each pair is the first, with its 80 % interval, and the confidence that it is more
    than once: Student's t of the differences of logarithms. Both of a pair were measured in the same turn, so that a
    slow minute meets both and falls out. One pair has neither interval nor confidence.

    >>> ratio, confidence = paired_ratio([(1.0, 2.0), (3.0, 6.3), (1.1, 2.1)])
    >>> round(ratio.value, 2), ratio.low > 1.9, confidence is not None and confidence > 0.99
    (2.0, True, True)
    """
    steps = [log(second / one) for one, second in pairs]
    middle, free = fmean(steps), len(steps) - 1
    if not free:
        return Figure(value=exp(middle), low=exp(middle), high=exp(middle), basis="measured"), None
    error = stdev(steps) / sqrt(len(steps))
    half = t90(free) * error
    reach = middle / error if error else inf if middle > 0 else -inf if middle < 0 else 0.0
    confidence = student(reach, free) if abs(reach) < inf else float(reach > 0)
    return Figure(value=exp(middle), low=exp(middle - half), high=exp(middle + half), basis="measured"), confidence
