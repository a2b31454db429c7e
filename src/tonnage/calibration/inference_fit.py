"""Measured rows -> the figures of each engine class, inside their ranges, and what is left over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from tonnage.calibration.inference_classes import fit_class
from tonnage.calibration.inference_fitted import InferenceFit, generation_of, number_format
from tonnage.calibration.inference_pooling import PASS_CLASSES, fit_together
from tonnage.calibration.inference_predict import lay_out
from tonnage.calibration.inference_reading import InferenceCase, read_case
from tonnage.calibration.memo import MEMO, Same
from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.rows import InferenceRow
from tonnage.calibration.unseen import structures_of
from tonnage.catalog.catalog import Catalog
from tonnage.sizing.engines import FIGURES, PRIORS, Engine, with_fronts
from tonnage.sizing.estimates import Array

FIT_METRICS: Final = (
    "latency_ms_mean", "latency_ms_p50", "sequences_per_s", "samples_per_s", "output_tokens_per_s", "ttft_ms",
    "tpot_ms", "tpot_ms_p50", "requests_per_s",
)  # fmt: skip
TAILS: Final = ("_p90", "_p95", "_p99")


def fit_inference(
    rows: Sequence[InferenceRow], catalog: Catalog, *, start: Mapping[str, Engine] | None = None
) -> InferenceFit:
    """Fit every engine class that has rows; the others keep their starting figures. Same rows, same fit."""
    read = [MEMO.recall(("inference case", Same(catalog), row), partial(read_case, row, catalog)) for row in rows]
    cases = [
        case for case in read if not isinstance(case, SkippedRow) and not case.suspect and not case.faster_than_memory
    ]
    return fit_cases(cases, start=start)


def fit_cases(cases: Sequence[InferenceCase], *, start: Mapping[str, Engine] | None = None) -> InferenceFit:
    """`fit_inference` on rows already read."""
    engines = dict(start or PRIORS)
    grouped = {name: fit_rows([case for case in cases if case.engine == name]) for name in engines}
    passes = {name: tuple(grouped.get(name, ())) for name in PASS_CLASSES}
    priors = {name: engines[name] for name in PASS_CLASSES}
    key = ("engines together", *priors.values(), *(tuple(map(Same, mine)) for mine in passes.values()))
    engines |= MEMO.recall(key, partial(fit_together, passes, priors))
    for name, mine in grouped.items():
        if mine and name not in PASS_CLASSES:
            engine = engines[name]
            engines[name] = MEMO.recall(("engine class", engine, *map(Same, mine)), partial(fit_class, engine, mine))
    return InferenceFit(
        engines=MappingProxyType(engines), rows=MappingProxyType({name: len(mine) for name, mine in grouped.items()}),
        ranges=MappingProxyType({one.name: (one.low, one.high, one.source) for one in FIGURES.values()}),
        residuals=MappingProxyType(_residuals(cases, with_fronts(engines))),
        generations=frozenset(f"{case.row.kind} {generation_of(case.machine.accelerator)}" for case in cases),
        formats=frozenset(f"{case.row.kind} {number_format(case.served.compute)}" for case in cases),
        structures=frozenset(name for case in cases for name in structures_of(case.shape)),
    )  # fmt: skip


def fit_rows(cases: Sequence[InferenceCase]) -> list[InferenceCase]:
    """Rows worth fitting to: means and rates, not tails, of stated lengths."""
    return [case for case in cases if case.row.metric in FIT_METRICS and not case.assumed_lengths]


def _residuals(
    cases: Sequence[InferenceCase], engines: Mapping[str, Engine]
) -> dict[str, tuple[int, float, float, float, float]]:
    by_class: dict[str, list[InferenceCase]] = {}
    for case in cases:
        by_class.setdefault(case.engine, []).append(case)
    pairs = [pair for name, mine in by_class.items() for pair in zip(mine, _ratios(engines[name], mine), strict=True)]
    groups: dict[str, list[float]] = {}
    for case, ratio in pairs:
        if np.isfinite(ratio):
            groups.setdefault(residual_group(case), []).append(float(ratio))
    out = {}
    for name, values in sorted(groups.items()):
        column = np.array(values)
        error = np.abs(column - 1.0)
        low, high = np.quantile(1.0 / column, (0.1, 0.9))
        out[name] = (len(column), float(np.median(error)), float(np.quantile(error, 0.9)), float(low), float(high))
    return out


def _ratios(engine: Engine, cases: Sequence[InferenceCase]) -> Array:
    """Predicted over measured of cases of one class, remembered: most rounds change few classes and rows. What is laid
    out does not depend on the figures that are fitted."""
    key = tuple(map(Same, cases))

    def ratios() -> Array:
        table = MEMO.recall(("laid out", PRIORS[engine.name], key), lambda: lay_out(cases, {cases[0].engine: engine}))
        return np.asarray(table.predict({cases[0].engine: engine}) / np.array([case.row.value for case in cases]))

    return MEMO.recall(("ratios", engine, key), ratios)


def residual_group(case: InferenceCase) -> str:
    """Which interval a prediction takes: kind of work and of figure. What the slowest requests of a load see errs more
    than the mean and the median, so that the percentiles beyond have a group of their own."""
    if case.row.metric == "peak_mem_gib":
        return "inference memory"
    if case.row.kind != "decoder":
        return "vision time" if case.row.kind == "vision" else "encoder time"
    if case.row.metric.startswith(("ttft", "tpot")):
        return "decoder tail" if case.row.metric.endswith(TAILS) else "decoder " + case.row.metric[:4]
    return "decoder rate"
