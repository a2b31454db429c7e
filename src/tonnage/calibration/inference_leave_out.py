"""How well engine figures carry to what they were not fitted to: one family, device or engine left out at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from tonnage.calibration.inference_fit import INITIAL, fit_class, fit_rows, residual_group
from tonnage.calibration.inference_predict import lay_out
from tonnage.calibration.inference_reading import Case, is_suspect
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array

HELD: Final[Mapping[str, Callable[[Case], str]]] = MappingProxyType({
    "family": lambda case: case.family,
    "gpu": lambda case: case.row.gpu,
    "engine": lambda case: case.row.engine,
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Errors on what was left out: `held` is its name, `group` the kind of figure."""

    by: str
    held: str
    group: str
    n: int
    median_abs: float
    p90_abs: float
    bias: float


def leave_out(cases: Sequence[Case], by: str, fitted: Mapping[str, Engine], *, only: Sequence[str] = ()) -> Array:
    """Predictions of every case by a fit that has not seen its family, gpu or engine (`by`); NaN outside `only`.

    Classes that lose no row keep `fitted`; the others start afresh. A class left without rows keeps plain figures.
    """
    name_of = HELD[by]
    out = np.full(len(cases), np.nan)
    for held in sorted({name_of(case) for case in cases}):
        if only and held not in only:
            continue
        inside = [place for place, case in enumerate(cases) if name_of(case) == held]
        touched = {cases[place].engine for place in inside}
        rest = [case for case in cases if name_of(case) != held and not is_suspect(case.row)]
        engines = dict(fitted)
        for engine in touched:
            mine = fit_rows([case for case in rest if case.engine == engine])
            engines[engine] = fit_class(INITIAL[engine], mine) if mine else INITIAL[engine]
        held_cases = [cases[place] for place in inside]
        out[inside] = lay_out(held_cases, engines).predict(engines)
    return out


def error_table(cases: Sequence[Case], predicted: Array, by: str) -> list[LeftOut]:
    """Median and 90th percentile of |predicted/measured - 1|, by what was held out and by kind of figure."""
    found: dict[tuple[str, str], list[float]] = {}
    for case, value in zip(cases, predicted, strict=True):
        if np.isfinite(value) and not is_suspect(case.row):
            ratio = float(value) / case.row.value
            found.setdefault((HELD[by](case), residual_group(case)), []).append(ratio)
            found.setdefault(("all", residual_group(case)), []).append(ratio)
    return [_line(by, held, group, np.array(ratios)) for (held, group), ratios in sorted(found.items())]


def _line(by: str, held: str, group: str, ratios: Array) -> LeftOut:
    error = np.abs(ratios - 1.0)
    return LeftOut(by=by, held=held, group=group, n=len(ratios), median_abs=float(np.median(error)),
                   p90_abs=float(np.quantile(error, 0.9)), bias=float(np.median(ratios)) - 1.0)  # fmt: skip
