"""Which engine is faster, how surely: ratios of seconds over the repeats that two engines share.

The first engine is chosen by the same times that it is compared by. So a confidence is two-sided and corrected for all
pairs among the engines (Holm 1979, *Scandinavian Journal of Statistics* 6(2)): whichever comes first, at most one bench
in ten of equal engines calls any of them faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import exp, inf, log, sqrt
from statistics import fmean, stdev
from typing import Final

from tonnage.side_by_side.result import BenchResult, EngineResult, t90
from tonnage.side_by_side.spec import BenchData
from tonnage.side_by_side.spread import student
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

SURE: Final = 0.9  # the confidence from which on one engine is called faster
Seconds = Mapping[int, float]  # of an engine, by repeat
Pair = tuple[str, str]  # the names of two engines


@dataclass(frozen=True, slots=True, kw_only=True)
class Faster:
    """The quickest engine on a data set beside another one.

    `ratio`: seconds of `other` over those of `first`, with its 80 % interval. `confidence`: that they differ, corrected
    for all pairs of engines; None of one shared repeat, which says nothing of it.
    """

    data: str
    first: str
    other: str
    ratio: Figure
    repeats: int
    confidence: float | None

    @property
    def sure(self) -> bool:
        return self.confidence is not None and self.confidence >= SURE and self.ratio.value > 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NotCompared:
    """An engine that is never first: repeats of it failed, or missed the target; what is left would flatter it."""

    data: str
    engine: str
    repeats: int
    failed: int
    missed: int


def faster_on(found: BenchResult, data: BenchData) -> tuple[Faster, ...]:
    """The engine with the least seconds to the target (in all, where no target is stated) beside each other one that
    came to it in all of its repeats; nothing where fewer than two did."""
    every = {row.engine.name: _seconds(found, row) for row in _rows(found, data) if _kept(row)}
    return tuple(first_beside(data.name, {name: known for name, known in every.items() if known}))


def not_compared(found: BenchResult, data: BenchData) -> tuple[NotCompared, ...]:
    """Engines that came to an end at least once, and failed or missed the target at least once."""
    return tuple(
        NotCompared(data=data.name, engine=row.engine.name, repeats=row.done + row.failed, failed=row.failed,
                    missed=_missed(row))
        for row in _rows(found, data) if row.done and not _kept(row)
    )  # fmt: skip


def _rows(found: BenchResult, data: BenchData) -> list[EngineResult]:
    return [row for row in found.rows if row.data.name == data.name and row.engine.takes_all_rows]


def _kept(row: EngineResult) -> bool:
    return row.done > 0 and not row.failed and not _missed(row)


def _missed(row: EngineResult) -> int:
    return 0 if row.data.target is None else row.done - row.reached


def _seconds(found: BenchResult, row: EngineResult) -> Seconds:
    """By repeat."""
    data = row.data
    cells = [one for one in found.cells if (one.data, one.engine) == (data.name, row.engine.name)]
    every = {cell.turn: cell.work_s if data.target is None else cell.to_target_s(data.metric, data.target)
             for cell in cells}  # fmt: skip
    return {turn: value for turn, value in every.items() if value}


def _mean(seconds: Seconds) -> float:
    return exp(fmean(log(one) for one in seconds.values()))


def first_beside(data: str, seconds: Mapping[str, Seconds]) -> Iterator[Faster]:
    """The quickest of engines beside each other one, from the seconds of each by repeat. The confidences are corrected
    for all pairs, since any engine might have come first."""
    timed = sorted(seconds.items(), key=lambda one: _mean(one[1]))
    shared = {
        (first, other): [(one[turn], two[turn]) for turn in sorted(one.keys() & two.keys())]
        for (first, one), (other, two) in combinations(timed, 2)
    }
    found = {names: paired_ratio(pairs) for names, pairs in shared.items() if pairs}
    sure = holm({names: one for names, (_, one) in found.items() if one is not None})
    for names, (ratio, _) in found.items():
        if names[0] == timed[0][0]:
            yield Faster(data=data, first=names[0], other=names[1], ratio=ratio, repeats=len(shared[names]),
                         confidence=sure.get(names))  # fmt: skip


def holm(confidences: Mapping[Pair, float]) -> dict[Pair, float]:
    """Confidences of several comparisons such that, where nothing differs, any of them reaches a level as seldom as one
    comparison alone would: the least doubt counts as often as there are comparisons, the next once less, and so on.

    >>> found = holm({("a", "b"): 0.99, ("a", "c"): 0.7, ("b", "c"): 0.96})
    >>> [round(found[pair], 3) for pair in (("a", "b"), ("b", "c"), ("a", "c"))]
    [0.97, 0.92, 0.7]
    """
    found, doubt = {}, 0.0
    for place, (name, confidence) in enumerate(sorted(confidences.items(), key=lambda one: -one[1])):
        doubt = max(doubt, min((len(confidences) - place) * (1.0 - confidence), 1.0))
        found[name] = 1.0 - doubt
    return found


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> tuple[Figure, float | None]:
    """How many times the second of each pair is the first, with its 80 % interval, and the two-sided confidence that it
    is not once: Student's t of the differences of logarithms. Both of a pair were measured in the same turn, so that a
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
    reach = abs(middle) / error if error else inf if middle else 0.0
    confidence = 1.0 - 2.0 * (1.0 - student(reach, free)) if reach < inf else 1.0
    return Figure(value=exp(middle), low=exp(middle - half), high=exp(middle + half), basis="measured"), confidence
