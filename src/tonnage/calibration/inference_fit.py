"""Measured rows -> the figures of each engine class, inside their ranges, and what is left over."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from tonnage.calibration.inference_classes import fit_class
from tonnage.calibration.inference_pooling import PASS_CLASSES, fit_together
from tonnage.calibration.inference_predict import lay_out
from tonnage.calibration.inference_reading import Case, read_case
from tonnage.calibration.memo import MEMO
from tonnage.calibration.prediction import Skipped
from tonnage.calibration.rows import InferenceRow
from tonnage.calibration.unseen import UnseenFactors, unseen
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.sizing.engines import FIGURES, PRIORS, Engine
from tonnage.values import dataclass

FIT_METRICS: Final = (
    "latency_ms_mean", "latency_ms_p50", "sequences_per_s", "samples_per_s", "output_tokens_per_s", "ttft_ms",
    "tpot_ms", "tpot_ms_p50", "requests_per_s",
)  # fmt: skip
TAILS: Final = ("_p90", "_p95", "_p99")

# Of the packaged calibration's rows; a fit states its own.
SEEN_GENERATIONS: Final = frozenset(
    {"encoder Volta", "encoder Turing", "encoder Ampere", "encoder Hopper", "vision Volta", "vision Turing",
     "vision Ampere", "decoder Volta", "decoder Ampere", "decoder Ada", "decoder Hopper"}
)  # fmt: skip
SEEN_FORMATS: Final = frozenset(
    {"encoder fp32", "encoder tf32", "encoder fp16", "encoder int8", "vision fp32", "vision tf32", "vision fp16",
     "vision int8", "decoder fp32", "decoder fp16", "decoder fp8"}
)  # fmt: skip


def generation_of(device: Accelerator) -> str:
    """The first word of the catalog's architecture: what devices of one design share."""
    return device.architecture.split(" ")[0]


def number_format(compute: str) -> str:
    """The rate that products run at; both 16-bit formats use the same units."""
    return "fp16" if compute == "bf16" else compute


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceFit:
    """Fitted engine classes, the rows behind each, and what is left: quantiles of |predicted/measured - 1| and bias.

    `residuals`: group -> (n, median error, 90th percentile, 10th and 90th percentile of measured over predicted).
    """

    engines: Mapping[str, Engine]
    rows: Mapping[str, int]
    ranges: Mapping[str, tuple[float, float, str]]
    residuals: Mapping[str, tuple[int, float, float, float, float]]

    generations: frozenset[str] = SEEN_GENERATIONS  # of devices, after the kind of work: "decoder Hopper"
    formats: frozenset[str] = SEEN_FORMATS  # that products ran at: "encoder int8"

    def unseen_factors(
        self, kind: str, device: Accelerator, compute: str, engine: str, *, devices: Container[str] | None = None
    ) -> UnseenFactors:
        """What of device, engine class, generation and number format no fitted row had; the last two of rows of that
        `kind` of work (encoder, vision, decoder). `devices`: those that rows name, where that is known; of a generation
        that no row of that work had, there was no device either."""
        generation = generation_of(device)
        seen_classes = {name for name, rows in self.rows.items() if rows}
        known = devices if f"{kind} {generation}" in self.generations else ()
        near = unseen((device.name, device.name, known), (f"engine {engine}", engine, seen_classes))
        foreign = unseen(
            (f"{generation} GPUs", f"{kind} {generation}", self.generations),
            (f"precision {compute}", f"{kind} {number_format(compute)}", self.formats),
        )
        return UnseenFactors(near=near, foreign=foreign)

    def apply(self) -> Mapping[str, Engine]:
        """The engines to hand to `InferenceBatch.predict` or, one by one, to the functions of `sizing`."""
        return self.engines


def fit_inference(
    rows: Sequence[InferenceRow], catalog: Catalog, *, start: Mapping[str, Engine] | None = None
) -> InferenceFit:
    """Fit every engine class that has rows; the others keep their starting figures. Same rows, same fit."""
    read = [read_case(row, catalog) for row in rows]
    cases = [case for case in read if not isinstance(case, Skipped) and not case.suspect]
    return fit_cases(cases, start=start)


def fit_cases(cases: Sequence[Case], *, start: Mapping[str, Engine] | None = None) -> InferenceFit:
    """`fit_inference` on rows already read."""
    engines = dict(start or PRIORS)
    grouped = {name: fit_rows([case for case in cases if case.engine == name]) for name in engines}
    passes = {name: tuple(grouped.get(name, ())) for name in PASS_CLASSES}
    priors = {name: engines[name] for name in PASS_CLASSES}
    key = ("engines together", *priors.values(), *passes.values())
    engines |= MEMO.recall(key, partial(fit_together, passes, priors))
    for name, mine in grouped.items():
        if mine and name not in PASS_CLASSES:
            engine = engines[name]
            engines[name] = MEMO.recall(("engine class", engine, *mine), partial(fit_class, engine, mine))
    return InferenceFit(
        engines=MappingProxyType(engines), rows=MappingProxyType({name: len(mine) for name, mine in grouped.items()}),
        ranges=MappingProxyType({one.name: (one.low, one.high, one.source) for one in FIGURES.values()}),
        residuals=MappingProxyType(_residuals(cases, engines)),
        generations=frozenset(f"{case.row.kind} {generation_of(case.machine.accelerator)}" for case in cases),
        formats=frozenset(f"{case.row.kind} {number_format(case.served.compute)}" for case in cases),
    )  # fmt: skip


def fit_rows(cases: Sequence[Case]) -> list[Case]:
    """Rows worth fitting to: means and rates, not tails, of stated lengths."""
    return [case for case in cases if case.row.metric in FIT_METRICS and not case.assumed_lengths]


def _residuals(
    cases: Sequence[Case], engines: Mapping[str, Engine]
) -> dict[str, tuple[int, float, float, float, float]]:
    laid = lay_out(cases, engines)
    ratios = laid.predict(engines) / np.array([case.row.value for case in cases])
    groups: dict[str, list[float]] = {}
    for case, ratio in zip(cases, ratios, strict=True):
        if np.isfinite(ratio):
            groups.setdefault(residual_group(case), []).append(float(ratio))
    out = {}
    for name, values in sorted(groups.items()):
        column = np.array(values)
        error = np.abs(column - 1.0)
        low, high = np.quantile(1.0 / column, (0.1, 0.9))
        out[name] = (len(column), float(np.median(error)), float(np.quantile(error, 0.9)), float(low), float(high))
    return out


def residual_group(case: Case) -> str:
    """Which interval a prediction takes: kind of work and of figure. What the slowest requests of a load see errs more
    than the mean and the median, so that the percentiles beyond have a group of their own."""
    if case.row.metric == "peak_mem_gib":
        return "inference memory"
    if case.row.kind != "decoder":
        return "vision time" if case.row.kind == "vision" else "encoder time"
    if case.row.metric.startswith(("ttft", "tpot")):
        return "decoder tail" if case.row.metric.endswith(TAILS) else "decoder " + case.row.metric[:4]
    return "decoder rate"
