"""Fitting the few parameters of training time and memory to measured rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from tonnage.calibration.memo import MEMO, Same
from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.search import CAP, SearchSchedule, fit_values, shared_weights
from tonnage.calibration.training_case import TrainingCase
from tonnage.calibration.training_fitted import Residuals, TrainingFit, generation_of
from tonnage.calibration.training_judge import time_case
from tonnage.calibration.training_memory_rows import MemoryBatch, memory_batch
from tonnage.calibration.training_table import TrainingBatch, training_batch
from tonnage.calibration.unseen import structures_of
from tonnage.catalog.catalog import Catalog
from tonnage.sizing.assumption_table import Assumption
from tonnage.sizing.assumptions import Assumptions, fitted_parameters, unfitted
from tonnage.sizing.estimates import Array

TIME, MEMORY = fitted_parameters("training time"), fitted_parameters("training memory")
FIRST_STEP, LAST_STEP, LAST_MEMORY_STEP = 0.16, 0.01, 0.03
REFIT_STEP: Final = 0.04  # the first step from values of another fit
LEAST_GAIN: Final = 1e-6
ROUNDED: Final = 0.03  # log error below which the loss is round


def apply(fit: TrainingFit) -> Assumptions:
    """The shipped assumptions with the fitted values."""
    return fit.assumptions()


def fit_training(rows: Sequence[TrainingRow], catalog: Catalog, *, start: TrainingFit | None = None) -> TrainingFit:
    """Fit time to the rows of good quality whose metric is a rate, memory to those that print a peak. `start`: where
    the search begins. What rows leave open is settled by judgements made before any fit: no row that is left out has a
    say in it."""
    before = start.assumptions() if start else unfitted()
    time_fit = _time_once(fitting_cases(rows, catalog, before), start)
    peaks = memory_batch(rows, catalog, before)
    return _with_memory_once(time_fit, peaks, start) if peaks.cases else time_fit


def _time_once(cases: Sequence[TrainingCase], start: TrainingFit | None) -> TrainingFit:
    """`fit_cases`, remembered: some rounds leave out rows of memory alone."""
    key = ("training time", tuple(_begin(TIME, start).items()), start is None, *map(Same, cases))
    return MEMO.recall(key, lambda: fit_cases(training_batch(cases), start=start))


def _with_memory_once(fit: TrainingFit, batch: MemoryBatch, start: TrainingFit | None) -> TrainingFit:
    """`fit` with the memory parameters of a batch. The search is remembered: most rounds leave out no row that prints a
    peak."""
    values, residuals = MEMO.recall(memory_key(batch, start), lambda: _fit_memory(batch, start))
    return replace(
        fit,
        values=MappingProxyType({**fit.values, **values}),
        ranges=MappingProxyType({**fit.ranges, **_ranges(MEMORY)}),
        residuals=(*fit.residuals, residuals),
    )


def memory_key(batch: MemoryBatch, start: TrainingFit | None) -> tuple[object, ...]:
    """What a memory fit depends on: where it begins, the rows with their values, and the devices as the catalog has
    them (what fits on one settles what its row leaves open)."""
    begin = tuple(_begin(MEMORY, start).items())
    return ("training memory", begin, tuple((case.row, case.machine.accelerator) for case in batch.cases))


def _fit_memory(batch: MemoryBatch, start: TrainingFit | None) -> tuple[dict[str, float], Residuals]:
    """The memory parameters of a batch, and what is left over."""
    weights = shared_weights([case.row.family for case in batch.cases])
    values = fit_values(
        batch, MEMORY, _begin(MEMORY, start), weights=weights / weights.sum(),
        schedule=_schedule(FIRST_STEP, LAST_MEMORY_STEP),
    )  # fmt: skip
    return values, residuals_of("memory", batch.log_ratios(values))


def _begin(parameters: Sequence[Assumption], start: TrainingFit | None) -> dict[str, float]:
    """Where a search begins: at the values of another fit, or at judgements made before the first."""
    judged = {one.name: one.value if one.start is None else one.start for one in parameters}
    return judged if start is None else {name: start.values.get(name, value) for name, value in judged.items()}


def _schedule(first: float, last: float) -> SearchSchedule:
    """Steps of a factor of 1 + `first` up and down, halved down to `last`."""
    steps, step = [], first
    while step >= last:
        steps.append(step)
        step /= 2.0
    factors = tuple((1.0 + step, 1.0 / (1.0 + step)) for step in steps)
    return SearchSchedule(factors=factors, least_gain=LEAST_GAIN, leaps=True)


def _ranges(parameters: Sequence[Assumption]) -> dict[str, tuple[float, float]]:
    return {one.name: (one.low, one.high) for one in parameters}


def fitting_cases(rows: Sequence[TrainingRow], catalog: Catalog, assumed: Assumptions) -> list[TrainingCase]:
    """Cases to fit to: not suspect, and rates rather than sums over whole runs."""
    wanted = [row for row in rows if row.quality != "suspect" and row.metric not in UNFITTED_METRICS]
    found = [
        MEMO.recall(("training case", Same(catalog), row, assumed), partial(time_case, row, catalog, assumed))
        for row in wanted
    ]
    return [case for case in found if not isinstance(case, SkippedRow)]


UNFITTED_METRICS = ("gpu_hours", "achieved_tflops_per_gpu", "iteration_time_s")


def fit_cases(batch: TrainingBatch, *, start: TrainingFit | None = None) -> TrainingFit:
    """Fit the parameters of time to the cases of a batch."""
    weights = shared_weights([case.row.family for case in batch.cases])
    values = fit_values(
        batch, TIME, _begin(TIME, start), weights=weights / weights.sum(), rounded=ROUNDED,
        schedule=_schedule(REFIT_STEP if start else FIRST_STEP, LAST_STEP),
    )  # fmt: skip
    errors = np.nan_to_num(batch.log_errors(values), nan=CAP)
    return TrainingFit(
        values=MappingProxyType(values),
        ranges=_ranges(TIME),
        rows=len(batch.cases),
        residuals=_residuals(batch.cases, errors),
        generations=frozenset(_generations(batch.cases)),
        precisions=frozenset(case.jobs[0].precision for case in batch.cases),
        engines=frozenset(case.program_class for case in batch.cases) - {""},
        structures=frozenset(name for case in batch.cases for name in structures_of(case.jobs[0].model)),
    )


def _generations(cases: Sequence[TrainingCase]) -> list[str]:
    return [generation_of(case.machine.accelerator) for case in cases]


def _residuals(cases: Sequence[TrainingCase], errors: Array) -> tuple[Residuals, ...]:
    generations = _generations(cases)
    groups = ["all", *sorted(set(generations))]
    masks = [np.array([group in ("all", one) for one in generations]) for group in groups]
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
