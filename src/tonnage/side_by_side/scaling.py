"""Scaling over workers: rows a second at n workers over n times those at one, and what the difference is made of.

Strong scaling keeps the rows of the table, weak scaling those of a worker (Hager and Wellein 2010, *Introduction to
High Performance Computing for Scientists and Engineers*, 5.3). The parts of a step come from steps looked at after the
training (`engine_workers.step_parts`). With T = seconds of a step and b = rows of a worker in it,

    T = input + waiting for a processor + computing + imbalance + communication,

where imbalance is the slowest worker's step without exchange less the mean of all, and communication the step with
exchange less the slowest without. Each part at n workers less b_n / b_1 times itself at one, over T_n, is what it takes
from the efficiency; together they are 1 - (b_n / b_1) T_1 / T_n.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.result import interval, rate_of
from tonnage.side_by_side.spec import BenchSpec, EngineSpec, ScalingKind
from tonnage.side_by_side.spread import place_difference
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

WORTH_NAMING: Final = 0.02  # of the efficiency
PARTS: Final = ("communication", "load imbalance", "input", "cores shared", "computing")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """A step, mean over the repeats. Seconds; `rows` of a worker. `waiting_s` None: within `computing_s`, unknown."""

    input_s: float
    waiting_s: float | None
    computing_s: float
    imbalance_s: float
    communication_s: float
    rows: float

    @property
    def total_s(self) -> float:
        return self.input_s + (self.waiting_s or 0.0) + self.computing_s + self.imbalance_s + self.communication_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """An engine on one number of workers. `losses`: part of a step -> what it takes from the efficiency (negative:
    gives), None where that was not measured; no entries where nothing was."""

    data: str
    group: str
    kind: ScalingKind
    workers: int
    train_rows: int
    rows_per_s: Figure
    efficiency: Figure | None  # None: one worker has no finished cell
    repeats: int  # of the side that has fewer; below 2 the efficiency has no interval
    losses: Mapping[str, float | None]

    @property
    def limited_by(self) -> str | None:
        """The part that takes most; None: not measured. Empty where none takes more than `WORTH_NAMING`."""
        known = {name: loss for name, loss in self.losses.items() if loss is not None}
        if not known:
            return None
        worst = max(known, key=lambda name: known[name])
        return worst if known[worst] > WORTH_NAMING else ""


def scaling_points(spec: BenchSpec, cells: Iterable[BenchCell]) -> tuple[ScalingPoint, ...]:
    """Every point of every curve, by data set, engine, kind, workers; points without a finished cell are left out."""
    good: dict[tuple[str, str], list[BenchCell]] = {}
    for cell in cells:
        if cell.reason is None:
            good.setdefault((cell.data, cell.engine), []).append(cell)
    kinds: tuple[ScalingKind, ...] = ("strong", "weak")
    groups = dict.fromkeys(engine.scaling.group for engine in spec.engines if engine.scaling is not None)
    found: list[ScalingPoint] = []
    for data in spec.data:
        for group in groups:
            for kind in kinds:
                curve = [
                    (engine, good.get((data.name, engine.name), []))
                    for engine in spec.engines
                    if engine.scaling is not None and engine.scaling.group == group and kind in engine.scaling.kinds
                ]
                found += _curve(data.name, group, kind, curve)
    return tuple(found)


def _curve(
    data: str, group: str, kind: ScalingKind, curve: Sequence[tuple[EngineSpec, list[BenchCell]]]
) -> list[ScalingPoint]:
    if not curve:
        return []
    first, alone = curve[0]
    base, base_parts, found = _rates(alone, first), step_parts(alone), []
    for engine, cells in curve:
        rates, rows = _rates(cells, engine), cells[0].train_rows if cells else None
        rate = interval(rates)
        if rate is None or rows is None:
            continue
        found.append(ScalingPoint(
            data=data, group=group, kind=kind, workers=engine.workers, train_rows=rows, rows_per_s=rate,
            efficiency=efficiency(base, rates, engine.workers), repeats=min(len(base), len(rates)),
            losses={} if engine.workers == 1 else losses(base_parts, step_parts(cells)),
        ))  # fmt: skip
    return found


def _rates(cells: Sequence[BenchCell], engine: EngineSpec) -> list[float]:
    return [rate for cell in cells if (rate := rate_of(cell, engine)) is not None]


def efficiency(alone: Sequence[float], together: Sequence[float], workers: int) -> Figure | None:
    """Rows a second of so many workers over that many times those of one, with its 80 % interval (Welch, of the
    logarithms); without width where either side has one repeat alone, or where it is one worker itself.

    >>> figure = efficiency([100.0, 100.0], [160.0, 160.0], 2)
    >>> figure is not None and round(figure.value, 6)
    0.8
    """
    if workers == 1:
        return Figure(value=1.0, low=1.0, high=1.0, basis="measured")
    difference = place_difference(("one", [workers * rate for rate in alone]), ("many", together))
    if difference is not None:
        return difference.ratio
    one, many = interval(alone), interval(together)
    if one is None or many is None:
        return None
    ratio = many.value / (workers * one.value)
    return Figure(value=ratio, low=ratio, high=ratio, basis="measured")


def step_parts(cells: Sequence[BenchCell]) -> StepParts | None:
    """The mean over the cells whose steps were looked into; None where no cell's were."""
    found = [_of_ranks(cell.steps) for cell in cells if cell.steps]
    if not found:
        return None
    waits = [one.waiting_s for one in found if one.waiting_s is not None]
    names = ("input_s", "computing_s", "imbalance_s", "communication_s", "rows")
    means = {name: fmean(getattr(one, name) for one in found) for name in names}
    return StepParts(waiting_s=fmean(waits) if len(waits) == len(found) else None, **means)


def _of_ranks(ranks: Sequence[Mapping[str, float | None]]) -> StepParts:
    def every(name: str) -> list[float]:
        return [value for one in ranks if (value := one.get(name)) is not None]

    alone, waits = every("alone_s"), every("waited_s")
    waiting = fmean(waits) if len(waits) == len(ranks) else None
    fetching = fmean(every("input_s"))
    return StepParts(
        input_s=fetching, waiting_s=waiting, computing_s=fmean(alone) - fetching - (waiting or 0.0),
        imbalance_s=max(alone) - fmean(alone), communication_s=fmean(every("synced_s")) - max(alone),
        rows=fmean(every("rows")),
    )  # fmt: skip


def losses(one: StepParts | None, many: StepParts | None) -> dict[str, float | None]:
    """What each part takes from the efficiency; {} where the steps of either were not looked into."""
    if one is None or many is None:
        return {}
    share = many.rows / one.rows
    waits = None if one.waiting_s is None or many.waiting_s is None else many.waiting_s - share * one.waiting_s
    lost = {
        "communication": many.communication_s - share * one.communication_s,
        "load imbalance": many.imbalance_s - share * one.imbalance_s,
        "input": many.input_s - share * one.input_s,
        "cores shared": waits,
        "computing": many.computing_s - share * one.computing_s,
    }
    return {name: None if value is None else value / many.total_s for name, value in lost.items()}
