"""Engine classes of whole passes (encoders, vision), fitted together: a class is drawn to what all have in common.

Each figure of a class starts from what the class's structure says (`PRIORS`); how far all classes with rows lie from
there, on average, moves every class, one without any row too (partial pooling; Gelman and Hill 2006, chapter 12).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from tonnage.calibration.inference_classes import SCHEDULE, cell
from tonnage.calibration.inference_reading import InferenceCase
from tonnage.calibration.memo import MEMO, Same
from tonnage.calibration.pass_rows import PassBatch, pass_rows
from tonnage.calibration.search import Values, fit_values, shared_weights
from tonnage.sizing.engines import FIGURES, Engine
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

# How far (standard deviation of the logarithm) a class's figure lies from the common one. Ramp and floor of a kernel
# are measured on their own (facts on kernels: half rate at 8 to 15 tiles of A100, 4 us), so that classes differ little;
# the ramp of convolutions follows from their smallest tile, which libraries choose with more freedom.
SPREADS: Final[Mapping[str, float]] = MappingProxyType({
    "gemm_fraction": 0.15, "tiles_to_half": 0.15, "convolution_tiles_to_half": 0.3, "kernel_floor_us": 0.2,
    "elementwise_left": 0.5, "attention_fraction": 0.5, "call_us": 0.7, "convolution_fraction": 0.25,
    "convolution_elementwise_left": 0.5, "host_us_per_kernel": 0.5, "low_bit_fraction": 0.15, "memory_fraction": 0.1,
})  # fmt: skip
PULL: Final = 0.5  # of a squared deviation beside the sum of absolute errors
PRIOR_WEIGHT: Final = 8.0  # what weighs against all classes together when the common deviation is taken
ROUNDS: Final = 3

PASS_CLASSES: Final = (
    "eager", "captured", "graph", "traced", "compiled", "inductor", "optimised", "converted", "library", "fused",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Class:
    """One class's rows with their weights, and the figures they can tell anything about."""

    prior: Engine
    batch: PassBatch
    weights: Array
    informed: tuple[str, ...]


def fit_together(cases: Mapping[str, Sequence[InferenceCase]], priors: Mapping[str, Engine]) -> dict[str, Engine]:
    """Figures of every class of `priors`, from the rows of those that have some. Same rows, same figures."""
    classes = [
        MEMO.recall(("class of passes", priors[name], *map(Same, rows)), partial(_class, priors[name], rows))
        for name, rows in cases.items()
        if rows
    ]
    common = dict.fromkeys(SPREADS, 0.0)
    fitted: list[Engine] = []
    for turn in range(ROUNDS):
        fitted = [  # a class whose rows are all there is fitted again only where others have moved what all share
            MEMO.recall(("fit of a class", Same(one), *common.values()), partial(_fit, one, common)) for one in classes
        ]
        if turn < ROUNDS - 1:
            common = _common(classes, fitted)
    return {name: moved(engine, common) for name, engine in priors.items()} | {one.name: one for one in fitted}


def _class(prior: Engine, cases: Sequence[InferenceCase]) -> _Class:
    weights = shared_weights([cell(case) for case in cases])
    return _Class(prior=prior, batch=pass_rows(cases, prior), weights=weights, informed=_informed(prior, cases))


def _informed(engine: Engine, cases: Sequence[InferenceCase]) -> tuple[str, ...]:
    """The figures of a class that these rows can tell anything about."""
    convolved = [case.shape.architecture == "convolution" for case in cases]
    silent: set[str] = set()
    if not any(convolved):
        silent.update(("convolution_fraction", "convolution_tiles_to_half", "convolution_elementwise_left"))
    if all(convolved):
        silent.update(("gemm_fraction", "tiles_to_half", "elementwise_left", "attention_fraction"))
    if not any(case.served.low_bit for case in cases):
        silent.add("low_bit_fraction")
    return tuple(name for name in SPREADS if name not in silent and getattr(engine, name) > 0)


def moved(engine: Engine, by: Mapping[str, float]) -> Engine:
    """`engine` with figures moved in the logarithm, inside their ranges; a figure of 0 is a structure and stays."""
    shifted = {
        name: FIGURES[name].inside(getattr(engine, name) * math.exp(shift))
        for name, shift in by.items()
        if getattr(engine, name) > 0
    }
    return engine.with_figures(shifted)


def _common(classes: Sequence[_Class], fitted: Sequence[Engine]) -> dict[str, float]:
    """Mean deviation of each figure over the classes that tell of it, shrunk towards none."""
    sums, weights = dict.fromkeys(SPREADS, 0.0), dict.fromkeys(SPREADS, PRIOR_WEIGHT)
    for one, engine in zip(classes, fitted, strict=True):
        weight = math.sqrt(float(np.sum(one.weights)))
        for name in one.informed:
            sums[name] += weight * math.log(getattr(engine, name) / getattr(one.prior, name))
            weights[name] += weight
    return {name: sums[name] / weights[name] for name in SPREADS}


def _fit(one: _Class, common: Mapping[str, float]) -> Engine:
    """The figures of a class, drawn to the common ones."""
    start = moved(one.prior, common)
    centres = {name: math.log(getattr(one.prior, name)) + common[name] for name in one.informed}

    def pull(values: Values) -> float:
        off = [(math.log(values[name]) - centre) / SPREADS[name] for name, centre in centres.items()]
        return PULL / 2.0 * sum(value * value for value in off)

    values = fit_values(
        replace(one.batch, engine=start), [FIGURES[name] for name in one.informed],
        {name: getattr(start, name) for name in one.informed}, weights=one.weights, schedule=SCHEDULE, penalty=pull,
    )  # fmt: skip
    return start.with_figures(values)
