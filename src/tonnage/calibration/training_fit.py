"""Fitting the few parameters of training time to measured rows: a deterministic coordinate search in plain numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import log
from types import MappingProxyType

import numpy as np

from tonnage.calibration.judgement import Skipped
from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_case import Case
from tonnage.calibration.training_judge import case_ratio, time_case
from tonnage.calibration.training_memory_rows import MemoryTable, memory_table
from tonnage.calibration.training_table import TrainingTable, training_table
from tonnage.catalog.catalog import Catalog
from tonnage.errors import InputError
from tonnage.sizing.assumptions import Assumptions, fitted_parameters, unfitted
from tonnage.sizing.devices import GENERATIONS
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

TIME, MEMORY = fitted_parameters("training time"), fitted_parameters("training memory")
# Parameter -> the range it may take, and where a search begins that must not know any fitted value.
TIME_PARAMETERS: Mapping[str, tuple[float, float]] = MappingProxyType({one.name: (one.low, one.high) for one in TIME})
MEMORY_PARAMETERS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {one.name: (one.low, one.high) for one in MEMORY}
)
JUDGEMENTS: Mapping[str, float] = MappingProxyType(
    {one.name: one.value if one.start is None else one.start for one in (*TIME, *MEMORY)}
)
FIRST_STEP, LAST_STEP = 0.16, 0.01
ROUNDED = 0.03  # log error below which the loss is round: a search by coordinates stalls on sharp creases
CAP = 0.7  # log error beyond which a row counts no more: a misread row must not pull a parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Quantiles of the log ratio, predicted over measured rate (or memory), of one group of rows."""

    group: str
    rows: int
    median_abs_log: float
    quantiles: tuple[tuple[float, float], ...]  # probability, log(predicted / measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFit:
    """Fitted parameters with the ranges they could take, the rows behind them, and what is left over."""

    values: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    rows: int
    residuals: tuple[Residuals, ...]
    generations: frozenset[str]
    precisions: frozenset[str]
    engines: frozenset[str]

    def assumptions(self, base: Assumptions | None = None) -> Assumptions:
        """`base` (the shipped assumptions) with the fitted values. Raises InputError where a value belongs to other
        formulas than this version's."""
        unknown = sorted(set(self.values) - Assumptions.__dataclass_fields__.keys())
        if unknown:
            raise InputError(
                f"the calibration has a value for '{unknown[0]}', which this version does not have",
                hint="it was made by another version; make it anew: `tonnage calibrate`",
            )
        return replace(base or Assumptions(), **dict(self.values))

    def distance(self, case: Case) -> int:
        """How many of device, its generation, precision and engine no fitted row had: of a generation that none had,
        there was no device either."""
        return (
            2 * (generation_of(case) not in self.generations)
            + (case.jobs[0].precision not in self.precisions)
            + (case.program_class not in self.engines)
        )


def apply(fit: TrainingFit) -> Assumptions:
    """The shipped assumptions with the fitted values."""
    return fit.assumptions()


def fit_training(rows: Sequence[TrainingRow], catalog: Catalog, *, start: TrainingFit | None = None) -> TrainingFit:
    """Fit time to the rows of good quality whose metric is a rate, memory to those that print a peak. `start`: where
    the search begins. What rows leave open is settled by judgements made before any fit: no row that is left out has a
    say in it."""
    before = start.assumptions() if start else unfitted()
    time_fit = fit_cases(training_table(fitting_cases(rows, catalog, before)), start=start)
    table = memory_table(rows, catalog, before)
    return _with_memory_once(time_fit, table, start) if table.cases else time_fit


_MEMORY: dict[tuple[object, ...], TrainingFit] = {}


def _with_memory_once(fit: TrainingFit, table: MemoryTable, start: TrainingFit | None) -> TrainingFit:
    """`with_memory`, its search remembered: most rounds leave out no row that prints a peak."""
    key = memory_key(table, start)
    if key not in _MEMORY:
        _MEMORY[key] = with_memory(replace(fit, residuals=()), table, start=start)
    found = _MEMORY[key]
    memory = {name: found.values[name] for name in MEMORY_PARAMETERS}
    return replace(
        fit,
        values=MappingProxyType({**fit.values, **memory}),
        ranges=MappingProxyType({**fit.ranges, **MEMORY_PARAMETERS}),
        residuals=(*fit.residuals, *found.residuals),
    )


def memory_key(table: MemoryTable, start: TrainingFit | None) -> tuple[object, ...]:
    """What a memory fit depends on: where it begins, the rows with their values, and the devices as the catalog has
    them (what fits on one settles what its row leaves open)."""
    begin = tuple((start.values if start else JUDGEMENTS).items())
    return (begin, tuple((case.row, case.machine.accelerator) for case in table.cases))


def with_memory(
    fit: TrainingFit, table: MemoryTable, *, start: TrainingFit | None = None, use: Array | None = None
) -> TrainingFit:
    """`fit` with the memory parameters fitted to a table too; `use` leaves rows out (weight 0)."""
    weights = family_weights(table.cases) * (1.0 if use is None else use)

    def loss(values: Mapping[str, float]) -> float:
        errors = np.abs(table.log_ratios(replace(Assumptions(), **dict(values))))
        return float(np.sum(weights * np.minimum(errors, CAP)) / np.sum(weights))

    begin = start.values if start else JUDGEMENTS
    values = coordinate_search(loss, begin, MEMORY_PARAMETERS, first_step=FIRST_STEP, last_step=0.03)
    errors = table.log_ratios(replace(Assumptions(), **values))[weights > 0]
    return replace(
        fit,
        values=MappingProxyType({**fit.values, **values}),
        ranges=MappingProxyType({**fit.ranges, **MEMORY_PARAMETERS}),
        residuals=(*fit.residuals, residuals_of("memory", errors)),
    )


def fitting_cases(rows: Sequence[TrainingRow], catalog: Catalog, assumed: Assumptions) -> list[Case]:
    """Cases to fit to: not suspect, and rates rather than sums over whole runs."""
    known = _cases_of(catalog)
    wanted = [row for row in rows if row.quality != "suspect" and row.metric not in UNFITTED_METRICS]
    for row in wanted:
        if (row, assumed) not in known:
            known[row, assumed] = time_case(row, catalog, assumed)
    found = [known[row, assumed] for row in wanted]
    return [case for case in found if not isinstance(case, Skipped)]


Known = dict[tuple[TrainingRow, Assumptions], Case | Skipped]
_CASES: dict[int, tuple[Catalog, Known]] = {}


def _cases_of(catalog: Catalog) -> Known:
    """Cases already built from a catalog (held, so that no other takes its place): the rounds of a cross-validation fit
    to nearly the same rows."""
    return _CASES.setdefault(id(catalog), (catalog, {}))[1]


UNFITTED_METRICS = ("gpu_hours", "achieved_tflops_per_gpu", "iteration_time_s")


def fit_cases(table: TrainingTable, *, start: TrainingFit | None = None, use: Array | None = None) -> TrainingFit:
    """Fit to the cases of a table; `use` leaves some out (weight 0)."""
    weights = family_weights(table.cases) * (1.0 if use is None else use)

    at_one_second = one_second(table)

    def loss(values: Mapping[str, float]) -> float:
        ratios = _log_ratios(table, at_one_second, replace(Assumptions(), **dict(values)))
        errors = np.sqrt(ratios**2 + ROUNDED**2)
        return float(np.sum(weights * np.minimum(errors, CAP)) / np.sum(weights))

    begin = start.values if start else JUDGEMENTS
    values = coordinate_search(loss, begin, TIME_PARAMETERS, first_step=0.04 if start else FIRST_STEP)
    kept = [case for case, weight in zip(table.cases, weights, strict=True) if weight > 0]
    errors = log_ratios(table, replace(Assumptions(), **values))[weights > 0]
    return TrainingFit(
        values=MappingProxyType(values),
        ranges=TIME_PARAMETERS,
        rows=len(kept),
        residuals=_residuals(kept, errors),
        generations=frozenset(generation_of(case) for case in kept),
        precisions=frozenset(case.jobs[0].precision for case in kept),
        engines=frozenset(case.program_class for case in kept) - {""},
    )


def log_ratios(table: TrainingTable, assumed: Assumptions) -> Array:
    """log(predicted / measured) as rates, one a case; large where nothing is predicted."""
    return _log_ratios(table, one_second(table), assumed)


def one_second(table: TrainingTable) -> Array:
    """log(predicted / measured) of each case if its step took a second: every metric goes with the step's time."""
    return np.array([log(case_ratio(case, 1.0)) for case in table.cases])


def _log_ratios(table: TrainingTable, at_one_second: Array, assumed: Assumptions) -> Array:
    seconds = table.steps(assumed).total_s
    known = np.isfinite(seconds) & (seconds > 0)
    ratios: Array = np.where(known, at_one_second - np.log(np.where(known, seconds, 1.0)), CAP)
    return ratios


def family_weights(cases: Sequence[Case]) -> Array:
    """A family of n rows weighs as sqrt(n): many rows of one table are no independent evidence."""
    families = [case.row.family for case in cases]
    counts = {family: families.count(family) for family in set(families)}
    return np.array([counts[family] ** -0.5 for family in families])


def coordinate_search(
    loss: Callable[[Mapping[str, float]], float],
    begin: Mapping[str, float],
    ranges: Mapping[str, tuple[float, float]],
    *,
    first_step: float,
    last_step: float = LAST_STEP,
) -> dict[str, float]:
    """Each parameter in turn up or down by a factor while the loss falls, then all of them together as far again as a
    round has moved them (Hooke and Jeeves 1961: parameters that trade against one another lie in a narrow valley);
    then half the factor, to `last_step`."""
    values = {name: float(np.clip(begin[name], *ranges[name])) for name in ranges}
    best, step = loss(values), first_step
    while step >= last_step:
        before, improved = values, False
        for name, (low, high) in ranges.items():
            for factor in (1.0 + step, 1.0 / (1.0 + step)):
                trial = {**values, name: float(np.clip(values[name] * factor, low, high))}
                found = loss(trial)
                if found < best - 1e-6:
                    values, best, improved = trial, found, True
                    break
        if not improved:
            step /= 2.0
            continue
        trial = {name: float(np.clip(values[name] ** 2 / before[name], *ranges[name])) for name in ranges}
        found = loss(trial)
        if found < best - 1e-6:
            values, best = trial, found
    return values


def generation_of(case: Case) -> str:
    """Device generation of a case, as the rates know it."""
    first = case.machine.accelerator.architecture.split(" ")[0]
    return first if first in GENERATIONS else case.machine.accelerator.architecture


def _residuals(cases: Sequence[Case], errors: Array) -> tuple[Residuals, ...]:
    groups = ["all", *sorted({generation_of(case) for case in cases})]
    masks = [np.array([group in ("all", generation_of(case)) for case in cases]) for group in groups]
    return tuple(residuals_of(group, errors[mask]) for group, mask in zip(groups, masks, strict=True))


def residuals_of(group: str, errors: Array) -> Residuals:
    """Quantiles of log ratios."""
    probabilities = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
    return Residuals(
        group=group,
        rows=len(errors),
        median_abs_log=float(np.median(np.abs(errors))),
        quantiles=tuple(zip(probabilities, np.quantile(errors, probabilities).tolist(), strict=True)),
    )
