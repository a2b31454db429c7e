"""A bench as it came out: cells summed up by engine, with intervals over the repeats, beside what was predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import Any, Final

from tonnage.calibration.tabular_fit import TabularFit
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.ease import EngineEase
from tonnage.side_by_side.host import Host
from tonnage.side_by_side.predicted import EnginePrediction, EnginePredictor
from tonnage.side_by_side.searches import EngineSearch, tuned, with_budget
from tonnage.side_by_side.spec import BenchData, BenchSpec, EngineSpec, TableFacts
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

POWER_FIGURES: Final = (
    "cpu_clock_hz", "cpu_power_w", "cpu_energy_j", "gpu_clock_hz", "gpu_power_w", "gpu_energy_j",
)  # fmt: skip
_T90: Final = (3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383)  # Student's t, 0.9, 1 to 9 degrees


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineResult:
    """One engine on one data set over all repeats. A figure measured twice or more has an 80 % interval.

    `engine`: with the settings that a search chose on this data set.
    """

    data: BenchData
    engine: EngineSpec
    done: int
    failed: int
    reason: str | None
    train_rows: int | None = None
    work_s: Figure | None = None
    alone_s: Figure | None = None  # estimated, with what others took of its cores besides its own
    train_s: Figure | None = None
    prepare_s: Figure | None = None
    startup_s: Figure | None = None
    warmup_s: Figure | None = None
    rows_per_s: Figure | None = None
    quality: Figure | None = None
    to_target_s: Figure | None = None
    reached: int = 0  # repeats that came to the target
    usd_to_target: Figure | None = None
    cores_used: Figure | None = None
    peak_rss_bytes: Figure | None = None
    cpu_clock_hz: Figure | None = None
    cpu_power_w: Figure | None = None
    cpu_energy_j: Figure | None = None
    gpu_clock_hz: Figure | None = None
    gpu_power_w: Figure | None = None
    gpu_energy_j: Figure | None = None
    throttled_by: str | None = None  # None: not known; empty: by nothing
    predicted_s: Figure | None = None
    predicted_bytes: Figure | None = None
    predicted_by_tables: int = 0  # tables whose rows corrected the prediction
    curve: tuple[tuple[float, float], ...] = ()  # of the first repeat: seconds with preparing, quality
    versions: Mapping[str, str] | None = None
    settings: Mapping[str, Any] | None = None  # that a search chose; None: nothing was searched


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """All of a bench. `digests`: SHA-256 of the parts of each data set, which every engine read; `sessions`: machine
    and settings each time that it was begun or went on."""

    spec: BenchSpec
    host: Host
    rows: tuple[EngineResult, ...]
    cells: tuple[BenchCell, ...]
    digests: Mapping[str, Mapping[str, str]]
    shapes: Mapping[str, tuple[int, int]]  # data set -> training rows, columns
    cells_asked: int
    facts: Mapping[str, TableFacts] = field(default_factory=dict)  # by data set
    searches: tuple[EngineSearch, ...] = ()
    ease: Mapping[str, EngineEase] = field(default_factory=dict)  # by engine
    sessions: tuple[Mapping[str, str], ...] = ()


def interval(values: Iterable[float | None]) -> Figure | None:
    """Geometric mean of the known values, all above 0, with its 80 % interval by Student's t of their logarithms.

    Times vary by factors, so that the interval never goes below zero. One value has no width; none are None.

    >>> figure = interval([1.0, 4.0])
    >>> round(figure.value, 6), figure.low > 0
    (2.0, True)
    """
    known = [log(value) for value in values if value is not None and value > 0]
    if not known:
        return None
    middle, half = fmean(known), 0.0
    degrees = len(known) - 1
    if degrees:
        half = t90(degrees) * stdev(known) / sqrt(len(known))
    return Figure(value=exp(middle), low=exp(middle - half), high=exp(middle + half), basis="measured")


def t90(degrees: int) -> float:
    """The quantile of Student's t at 0.9 for so many degrees of freedom: half of an 80 % interval.

    >>> t90(1), round(t90(30), 2)
    (3.078, 1.31)
    """
    return _T90[degrees - 1] if degrees <= len(_T90) else 1.2816 + 0.9 / degrees


def sum_up(
    spec: BenchSpec,
    cells: Iterable[BenchCell],
    host: Host,
    columns: Mapping[str, int],
    *,
    facts: Mapping[str, TableFacts] | None = None,
    fit: TabularFit | None = None,
    train_rows: Mapping[str, int] | None = None,
) -> tuple[EngineResult, ...]:
    """A row for each data set and engine that has a cell. `fit`: what rows of earlier benches say of the engines.

    `train_rows`: of each data set; with them a row for engines that have no finished cell yet too, with what is
    predicted of them.
    """
    every = list(cells)
    pairs = ((data, engine) for data in spec.data for engine in spec.engines)
    found = []
    for data, engine in pairs:
        mine = [cell for cell in every if (cell.data, cell.engine) == (data.name, engine.name)]
        known = (train_rows or {}).get(data.name)
        if mine or known is not None:
            predictor = EnginePredictor(host=host, facts=(facts or {}).get(data.name), fit=fit)
            found.append(_row(spec, data, engine, mine, predictor, columns.get(data.name), known))
    return tuple(found)


def _row(
    spec: BenchSpec,
    data: BenchData,
    engine: EngineSpec,
    cells: list[BenchCell],
    predictor: EnginePredictor,
    columns: int | None,
    whole: int | None,
) -> EngineResult:
    good = [cell for cell in cells if cell.reason is None]
    reasons = [cell.reason for cell in cells if cell.reason is not None]
    counts = {"done": len(good), "failed": len(reasons), "reason": reasons[0] if reasons else None}
    if not good:
        share = None if whole is None else engine.share_of(whole)
        known = share is not None and columns is not None
        predicted = predictor.predicted(engine, share, columns) if known else EnginePrediction()  # type: ignore[arg-type]
        return EngineResult(
            data=data, engine=engine, **counts, train_rows=share, predicted_s=predicted.seconds,  # type: ignore[arg-type]
            predicted_bytes=predicted.memory_bytes, predicted_by_tables=predicted.tables,
        )  # fmt: skip
    engine = with_budget(engine_of(good[0], engine), spec)
    target, hourly = data.target, spec.usd_per_hour
    to_target = [None if target is None else cell.to_target_s(data.metric, target) for cell in good]
    seconds = interval(to_target) if None not in to_target else None  # a mean over the lucky repeats would flatter
    rows = good[0].train_rows
    known = rows is not None and columns is not None
    predicted = predictor.predicted(engine, rows, columns) if known else EnginePrediction()  # type: ignore[arg-type]
    return EngineResult(
        data=data, engine=engine, **counts, train_rows=rows,  # type: ignore[arg-type]
        work_s=interval(cell.work_s for cell in good), alone_s=_alone(good),
        train_s=interval(cell.train_s for cell in good),
        prepare_s=interval(cell.prepare_s for cell in good), startup_s=interval(cell.startup_s for cell in good),
        warmup_s=interval(cell.warmup_s for cell in good),
        rows_per_s=interval(rate_of(cell, engine) for cell in good), quality=interval(cell.quality for cell in good),
        to_target_s=seconds, reached=sum(one is not None for one in to_target),
        usd_to_target=None if seconds is None or hourly is None else seconds.scaled(hourly / 3600),
        cores_used=interval(cell.cpu_s / cell.train_s for cell in good if cell.cpu_s is not None and cell.train_s),
        peak_rss_bytes=interval(cell.peak_rss_bytes for cell in good), **_power(good),
        predicted_s=predicted.seconds, predicted_bytes=predicted.memory_bytes, predicted_by_tables=predicted.tables,
        curve=tuple((s + (good[0].prepare_s or 0.0), value) for _, s, value in good[0].curve),
        versions=good[0].versions, settings=good[0].settings,
    )  # fmt: skip


def _alone(cells: list[BenchCell]) -> Figure | None:
    """Unknown unless it is known of every repeat."""
    values = [cell.alone_s for cell in cells]
    return interval(values) if None not in values else None


def _power(cells: list[BenchCell]) -> dict[str, Any]:
    """Clocks, power and energy of the work that are known of every repeat; what held clocks down in any of them."""
    found: dict[str, Any] = {}
    for name in POWER_FIGURES:
        values = [None if cell.power is None else getattr(cell.power, name) for cell in cells]
        found[name] = interval(values) if None not in values else None
    asked = [cell.power.throttled_by for cell in cells if cell.power is not None]
    known = [one for one in asked if one is not None]
    found["throttled_by"] = ", ".join(sorted({one for one in known if one})) if known else None
    return found


def engine_of(cell: BenchCell, engine: EngineSpec) -> EngineSpec:
    """The engine as it ran in the cell: with what a search chose."""
    return tuned(engine, cell.settings) if cell.settings else engine


def rate_of(cell: BenchCell, engine: EngineSpec) -> float | None:
    """Rows a second of training: each row counts once for every tree, or epoch. Unknown of AutoML."""
    if cell.train_rows is None or not cell.train_s or engine.family == "automl":
        return None
    return cell.train_rows * engine.passes / cell.train_s
