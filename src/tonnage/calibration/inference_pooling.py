"""Engine classes of whole passes (encoders, vision), fitted together: a class is drawn to what all have in common.

Each figure of a class starts from what the class's structure says (`PRIORS`); how far all classes with rows lie from
there, on average, moves every class, one without any row too (partial pooling; Gelman and Hill 2006, chapter 12).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tonnage.calibration.inference_reading import Case
from tonnage.calibration.pass_rows import PassRows, pass_rows
from tonnage.sizing.engines import PRIORS, Engine
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

Ranges = Mapping[str, tuple[float, float, str]]

# How far (standard deviation of the logarithm) a class's figure lies from the common one. Ramp and floor of a kernel
# are measured on their own (facts on kernels: half rate at 8 to 15 tiles of A100, 4 us), so that classes differ little.
SPREADS: Final[Mapping[str, float]] = MappingProxyType({
    "gemm_fraction": 0.15, "tiles_to_half": 0.15, "kernel_floor_us": 0.2, "elementwise_left": 0.5,
    "attention_fraction": 0.5, "call_us": 0.7, "convolution_fraction": 0.25, "convolution_elementwise_left": 0.5,
    "host_us_per_kernel": 0.5, "low_bit_fraction": 0.15, "memory_fraction": 0.1,
})  # fmt: skip
FIGURES: Final = tuple(SPREADS)
PULL: Final = 0.5  # of a squared deviation beside the sum of absolute errors
PRIOR_WEIGHT: Final = 8.0  # what stands against all classes together when the common deviation is taken
ROUNDS: Final = 3
STEPS: Final = (0.4, 0.2, 0.1, 0.05)
SWEEPS: Final = 5
CLIPPED: Final = 0.7

PASS_CLASSES: Final = ("eager", "captured", "graph", "traced", "compiled", "optimised", "converted", "library", "fused")
PRIOR: Final[Mapping[str, Engine]] = MappingProxyType({name: PRIORS[name] for name in PASS_CLASSES})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Class:
    """One class's rows with their weights, and the figures they can tell anything about."""

    prior: Engine
    rows: PassRows
    weights: Array
    informed: tuple[str, ...]

    def misfit(self, engine: Engine) -> float:
        error = np.abs(np.nan_to_num(self.rows.log_errors(engine), nan=CLIPPED))
        return float(np.sum(self.weights * np.minimum(error, CLIPPED)))


def fit_together(
    cases: Mapping[str, Sequence[Case]],
    weigh: Callable[[Sequence[Case]], Array],
    ranges: Ranges,
    prior: Mapping[str, Engine] = PRIOR,
) -> dict[str, Engine]:
    """Figures of every class of `prior`, from the rows of those that have some. Same rows, same figures."""
    classes = [_class(prior[name], rows, weigh(rows)) for name, rows in cases.items() if rows]
    common = dict.fromkeys(FIGURES, 0.0)
    fitted: list[Engine] = []
    for turn in range(ROUNDS):
        fitted = [_fit(one, common, ranges) for one in classes]
        if turn < ROUNDS - 1:
            common = _common(classes, fitted)
    return {name: moved(engine, common, ranges) for name, engine in prior.items()} | {one.name: one for one in fitted}


def _class(prior: Engine, cases: Sequence[Case], weights: Array) -> _Class:
    return _Class(prior=prior, rows=pass_rows(cases, prior), weights=weights, informed=_informed(prior, cases))


def _informed(engine: Engine, cases: Sequence[Case]) -> tuple[str, ...]:
    """The figures of a class that these rows can tell anything about."""
    convolved = [case.shape.architecture == "convolution" for case in cases]
    silent: set[str] = set()
    if not any(convolved):
        silent.update(("convolution_fraction", "convolution_elementwise_left"))
    if all(convolved):
        silent.update(("gemm_fraction", "elementwise_left", "attention_fraction"))
    if not any(case.served.low_bit for case in cases):
        silent.add("low_bit_fraction")
    return tuple(name for name in FIGURES if name not in silent and getattr(engine, name) > 0)


def moved(engine: Engine, by: Mapping[str, float], ranges: Ranges) -> Engine:
    """`engine` with figures moved in the logarithm, inside their ranges; a figure of 0 is a structure and stays."""
    changed: dict[str, Any] = {
        name: _inside(getattr(engine, name) * math.exp(shift), ranges[name])
        for name, shift in by.items()
        if getattr(engine, name) > 0
    }
    return replace(engine, **changed)


def _inside(value: float, allowed: tuple[float, float, str]) -> float:
    return min(max(value, allowed[0]), allowed[1])


def _common(classes: Sequence[_Class], fitted: Sequence[Engine]) -> dict[str, float]:
    """Mean deviation of each figure over the classes that tell of it, shrunk towards none."""
    sums, weights = dict.fromkeys(FIGURES, 0.0), dict.fromkeys(FIGURES, PRIOR_WEIGHT)
    for one, engine in zip(classes, fitted, strict=True):
        told = math.sqrt(float(np.sum(one.weights)))
        for name in one.informed:
            sums[name] += told * math.log(getattr(engine, name) / getattr(one.prior, name))
            weights[name] += told
    return {name: sums[name] / weights[name] for name in FIGURES}


def _fit(one: _Class, common: Mapping[str, float], ranges: Ranges) -> Engine:
    """Shrinking steps along each figure's logarithm from the common one."""
    start = moved(one.prior, common, ranges)
    centres = {name: math.log(getattr(one.prior, name)) + common[name] for name in one.informed}

    def loss(engine: Engine) -> float:
        off = [(math.log(getattr(engine, name)) - centre) / SPREADS[name] for name, centre in centres.items()]
        return one.misfit(engine) + PULL / 2.0 * sum(value * value for value in off)

    engine, best = start, loss(start)
    for step in STEPS:
        for _ in range(SWEEPS):
            before = best
            for name in one.informed:
                for direction in (step, -step):
                    candidate = moved(engine, {name: direction}, ranges)
                    score = loss(candidate)
                    if score < best:
                        best, engine = score, candidate
                        break
            if before - best < 1e-4:
                break
    return engine
