"""Each family judged by a fit that has not seen it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from tonnage.calibration.judgement import Judged, Skipped
from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_fit import (
    UNFITTED_METRICS,
    TrainingFit,
    fit_cases,
    fit_training,
    with_memory,
)
from tonnage.calibration.training_judge import judge_training, time_case
from tonnage.calibration.training_memory_rows import MemoryTable, memory_table
from tonnage.calibration.training_table import TrainingTable, training_table
from tonnage.catalog.catalog import Catalog
from tonnage.sizing.estimates import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One family, judged by a fit to all others."""

    family: str
    fit: TrainingFit
    results: tuple[Judged | Skipped, ...]


def leave_families_out(rows: Sequence[TrainingRow], catalog: Catalog) -> list[LeftOut]:
    """For each family: fit without it, from judgements that know no fit, and judge it."""
    start = fit_training(rows, catalog)
    found = [time_case(row, catalog) for row in rows if row.quality != "suspect"]
    cases = [case for case in found if not isinstance(case, Skipped) and case.row.metric not in UNFITTED_METRICS]
    tables = training_table(cases), memory_table(rows, catalog)
    return [_left_out(family, rows, catalog, start, tables) for family in sorted({row.family for row in rows})]


def _left_out(
    family: str,
    rows: Sequence[TrainingRow],
    catalog: Catalog,
    start: TrainingFit,
    tables: tuple[TrainingTable, MemoryTable],
) -> LeftOut:
    timed, memory = tables
    fit = fit_cases(timed, use=_others(family, timed))
    used = _others(family, memory)
    if 0 < used.sum() < len(used):
        fit = with_memory(fit, memory, use=used)
    else:  # no memory row of this family: the fit to all has not seen it either
        known = {name: value for name, value in start.values.items() if name not in fit.values}
        fit = replace(fit, values=MappingProxyType({**fit.values, **known}))
    own = [row for row in rows if row.family == family]
    return LeftOut(family=family, fit=fit, results=tuple(judge_training(own, catalog, fit)))


def _others(family: str, table: TrainingTable | MemoryTable) -> Array:
    return np.array([float(case.row.family != family) for case in table.cases])


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Absolute relative errors of a set of judged rows."""

    rows: int
    median: float
    p90: float
    bias: float  # median of predicted / measured - 1


def errors_of(results: Sequence[Judged | Skipped], metrics: Sequence[str]) -> Errors | None:
    """Errors over the rows of good quality in `metrics`; None where there are none."""
    judged = [r for r in results if isinstance(r, Judged) and r.metric in metrics and not r.suspect and r.measured > 0]
    if not judged:
        return None
    ratio = np.array([r.predicted / r.measured for r in judged]) - 1.0
    return Errors(
        rows=len(judged),
        median=float(np.median(np.abs(ratio))),
        p90=float(np.quantile(np.abs(ratio), 0.9)),
        bias=float(np.median(ratio)),
    )
