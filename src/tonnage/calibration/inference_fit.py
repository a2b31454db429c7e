"""Measured rows -> the figures of each engine class. A coordinate search in the logarithm, inside physical ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from tonnage.calibration.inference_pooling import PASS_CLASSES, fit_together
from tonnage.calibration.inference_predict import Laid, lay_out
from tonnage.calibration.inference_reading import Case, is_suspect, read_case
from tonnage.calibration.judgement import Skipped
from tonnage.calibration.rows import InferenceRow
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.sizing.engines import PRIORS, Engine
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

# How far each figure may go, and why.
RANGES: Final[Mapping[str, tuple[float, float, str]]] = MappingProxyType({
    "gemm_fraction": (0.55, 1.0, "of the rate the best large product reached"),
    "tiles_to_half": (0.2, 30.0, "measured products of 108 multiprocessors: 8 to 15"),
    "memory_fraction": (0.55, 0.95, "measured products at 1 to 64 tokens: 0.74 to 0.92"),
    "kernel_floor_us": (1.0, 12.0, "at 1.41 GHz: 1.5 us the launch gap in a captured graph, 4 to 10 us measured alone"),
    "elementwise_left": (0.1, 6.0, "0: all fused into products; over 1: casts and copies that the operator list lacks"),
    "attention_fraction": (0.05, 0.8, "FlashAttention-2 reaches 0.5 to 0.73 of peak; short sequences far less"),
    "host_us_per_kernel": (1.0, 40.0, "Python dispatch 5 to 15 us an operation, more on slow hosts"),
    "call_us": (5.0, 6000.0, "scheduler, sampler and input preparation: 0.3 to 2.5 ms measured for Python engines"),
    "sequence_us": (0.5, 200.0, "sampling, detokenising and bookkeeping of one sequence"),
    "request_us": (200.0, 20000.0, "HTTP front end, tokeniser and the way to the scheduler, one after another"),
    "reply_us": (500.0, 60000.0, "connection, hand-over between processes and the first token's way out"),
    "low_bit_fraction": (0.4, 1.2, "quantising, dequantising and scaling around 8-bit products"),
    "convolution_fraction": (0.1, 1.0, "implicit products; first layer and small channels reach little"),
    "convolution_elementwise_left": (0.02, 3.0, "norm and activation fold into the convolution, or stay kernels"),
    "exchange_us": (5.0, 90.0, "30 to 60 us measured with NCCL below 1 MB; custom kernels less"),
})  # fmt: skip
FITTED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({
    "static-llm": ("gemm_fraction", "kernel_floor_us", "attention_fraction", "memory_fraction", "call_us",
                   "sequence_us", "exchange_us"),
    "hosted-llm": ("gemm_fraction", "kernel_floor_us", "host_us_per_kernel", "call_us", "memory_fraction",
                   "exchange_us"),
    "llm": ("gemm_fraction", "tiles_to_half", "kernel_floor_us", "attention_fraction", "memory_fraction", "call_us",
            "sequence_us", "exchange_us", "low_bit_fraction", "request_us", "reply_us"),
    "llm-python": ("gemm_fraction", "attention_fraction", "kernel_floor_us", "memory_fraction", "call_us",
                   "sequence_us", "low_bit_fraction", "request_us", "reply_us"),
})  # fmt: skip
SCHEDULER: Final = ("call_us", "sequence_us", "request_us", "reply_us")
STEPS: Final = (0.4, 0.2, 0.1, 0.05)
SIMULATED_STEPS: Final = (0.3, 0.1)  # where each try is a simulation of every served row
ROUNDS: Final = 5
ENOUGH: Final = 1e-4  # what a round must win of the loss to be followed by another
DEPARTURE: Final = 0.02  # of a cell's loss, for a figure a factor of e from where it starts
CLIPPED: Final = 0.7  # log error past which a row pulls no harder
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

    def not_seen(self, kind: str, generation: str, compute: str) -> tuple[str, ...]:
        """What no row of that kind of work (encoder, vision, decoder) had: device generation, number format."""
        device = () if f"{kind} {generation}" in self.generations else (f"{generation} GPUs",)
        return (*device, *(() if f"{kind} {number_format(compute)}" in self.formats else (f"precision {compute}",)))

    def apply(self) -> Mapping[str, Engine]:
        """The engines to hand to `Laid.predict` or, one by one, to the functions of `sizing`."""
        return self.engines


def fit_inference(
    rows: Sequence[InferenceRow], catalog: Catalog, *, start: Mapping[str, Engine] | None = None
) -> InferenceFit:
    """Fit every engine class that has rows; the others keep their starting figures. Same rows, same fit."""
    read = [read_case(row, catalog) for row in rows]
    cases = [case for case in read if not isinstance(case, Skipped) and not is_suspect(case.row)]
    return fit_cases(cases, start=start)


def fit_cases(cases: Sequence[Case], *, start: Mapping[str, Engine] | None = None) -> InferenceFit:
    """`fit_inference` on rows already read."""
    engines = dict(start or PRIORS)
    grouped = {name: fit_rows([case for case in cases if case.engine == name]) for name in engines}
    counts = {name: len(mine) for name, mine in grouped.items()}
    passes = {name: grouped.get(name, []) for name in PASS_CLASSES}
    engines |= _together_once(passes, {name: engines[name] for name in PASS_CLASSES})
    for name, mine in grouped.items():
        if mine and name not in PASS_CLASSES:
            engines[name] = _fit_class_once(engines[name], mine)
    return InferenceFit(
        engines=MappingProxyType(engines), rows=MappingProxyType(counts), ranges=RANGES,
        residuals=MappingProxyType(_residuals(cases, engines)),
        generations=frozenset(f"{case.row.kind} {generation_of(case.machine.accelerator)}" for case in cases),
        formats=frozenset(f"{case.row.kind} {number_format(case.served.compute)}" for case in cases),
    )  # fmt: skip


_TOGETHER: dict[tuple[object, ...], dict[str, Engine]] = {}


def _together_once(cases: Mapping[str, Sequence[Case]], prior: Mapping[str, Engine]) -> dict[str, Engine]:
    """`fit_together`, remembered like `_fit_class_once`: most families left out are decoders. A case holds its row and
    its device, so that another value or another catalog is another key."""
    key = (*prior.values(), *(case for mine in cases.values() for case in mine))
    if key not in _TOGETHER:
        _TOGETHER[key] = fit_together(cases, cell_weights, RANGES, prior)
    return _TOGETHER[key]


_CLASSES: dict[tuple[object, ...], Engine] = {}


def _fit_class_once(engine: Engine, cases: Sequence[Case]) -> Engine:
    """`fit_class`, remembered by start and rows: leaving a family out changes few classes of a cross-validation."""
    key = (engine, *cases)
    if key not in _CLASSES:
        _CLASSES[key] = fit_class(engine, cases)
    return _CLASSES[key]


def fit_rows(cases: Sequence[Case]) -> list[Case]:
    """Rows worth fitting to: means and rates, not tails, of stated lengths."""
    return [case for case in cases if case.row.metric in FIT_METRICS and not case.assumed_lengths]


def cell_weights(cases: Sequence[Case]) -> Array:
    """Each family x device x engine x precision counts as the square root of its rows, lest one table drown others.

    A cell's rows sum to that; `fit_class` takes the mean over all, which does not change what is nearest.
    """
    keys = [cell(case) for case in cases]
    counts = {key: keys.count(key) for key in set(keys)}
    return np.array([1.0 / math.sqrt(counts[key]) for key in keys])


def cell(case: Case) -> tuple[object, ...]:
    """What rows of one table share."""
    return (case.family, case.row.gpu, case.row.engine, case.served)


def fit_class(engine: Engine, cases: Sequence[Case]) -> Engine:
    """All figures on rows that need no simulation, then the scheduler's on all rows."""
    start, plain = engine, [case for case in cases if case.load != "served"]
    if plain:
        engine = _searched(engine, plain, _informed(engine.name, plain), STEPS)
    if len(plain) < len(cases):
        few = len(plain) < len(cases) / 4
        engine = _searched(engine, cases, FITTED[engine.name] if few else SCHEDULER, SIMULATED_STEPS, start)
    return engine


def _searched(
    engine: Engine,
    cases: Sequence[Case],
    figures: Sequence[str],
    steps: Sequence[float],
    start: Engine | None = None,
) -> Engine:
    laid = lay_out(cases, {engine.name: engine})
    measured = np.log([case.row.value for case in cases])
    weights = cell_weights(cases)
    weights = weights / weights.sum()
    start = engine if start is None else start
    from_where = [name for name in figures if getattr(start, name) > 0]
    prior = DEPARTURE / len({cell(case) for case in cases})

    def loss(candidate: Engine) -> float:
        error = np.abs(np.log(laid.predict({candidate.name: candidate})) - measured)
        moved = sum(math.log(getattr(candidate, name) / getattr(start, name)) ** 2 for name in from_where)
        return float(np.sum(weights * np.minimum(np.nan_to_num(error, nan=CLIPPED), CLIPPED))) + prior * moved

    return search(engine, figures, loss, steps)


def _informed(name: str, cases: Sequence[Case]) -> tuple[str, ...]:
    """The figures of a class that these rows can tell anything about."""
    silent: set[str] = set()
    if not any(case.served.low_bit for case in cases):
        silent.add("low_bit_fraction")
    if all(case.tensor_parallel == 1 for case in cases):
        silent.add("exchange_us")
    return tuple(figure for figure in FITTED[name] if figure not in silent)


def search(
    engine: Engine, figures: Sequence[str], loss: Callable[[Engine], float], steps: Sequence[float] = STEPS
) -> Engine:
    """Shrinking steps along each figure's logarithm, inside `RANGES`."""
    best = loss(engine)
    for step in steps:
        for _ in range(ROUNDS):
            before = best
            for figure in figures:
                for factor in (math.exp(step), math.exp(-step)):
                    low, high, _why = RANGES[figure]
                    value = min(max(getattr(engine, figure) * factor, low), high)
                    candidate = replace(engine, **{figure: value})
                    score = loss(candidate)
                    if score < best:
                        best, engine = score, candidate
                        break
            if before - best < ENOUGH:
                break
    return engine


def _residuals(
    cases: Sequence[Case], engines: Mapping[str, Engine]
) -> dict[str, tuple[int, float, float, float, float]]:
    laid: Laid = lay_out(cases, engines)
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
