"""Figures of one engine class from its rows. What each class's rows can tell, in the order a search takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tonnage.calibration.inference_predict import engine_batch
from tonnage.calibration.inference_reading import InferenceCase
from tonnage.calibration.search import SearchSchedule, Values, fit_values, log_factors, shared_weights
from tonnage.sizing.assumption_table import Assumption
from tonnage.sizing.engines import FIGURES, Engine

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
# Of engines that replay captured kernels: no more than a kernel takes that is launched alone (6.0, the same fit as
# `Assumptions.kernel_floor_us`). What a longer floor stood for is in the exchanges between ranks.
CAPTURED: Final = ("llm", "llm-python")
CAPTURED_FLOOR_US: Final = 6.0
SCHEDULER: Final = ("call_us", "sequence_us", "request_us", "reply_us")
ROUNDS: Final = 5
ENOUGH: Final = 1e-4  # what a round must win of the loss to be followed by another
SCHEDULE: Final = SearchSchedule(factors=log_factors(0.4, 0.2, 0.1, 0.05), rounds=ROUNDS, least_round_gain=ENOUGH)
# Where each try is a simulation of every served row.
SIMULATED_SCHEDULE: Final = replace(SCHEDULE, factors=log_factors(0.3, 0.1))
DEPARTURE: Final = 0.02  # of a cell's loss, for a figure a factor of e from where it starts


def fit_class(engine: Engine, cases: Sequence[InferenceCase]) -> Engine:
    """All figures on rows that need no simulation, then the scheduler's on all rows."""
    start, plain = engine, [case for case in cases if case.load != "served"]
    if plain:
        engine = _fitted(engine, plain, _informed(engine.name, plain), SCHEDULE, start)
    if len(plain) < len(cases):
        few = len(plain) < len(cases) / 4
        figures = FITTED[engine.name] if few else SCHEDULER
        engine = _fitted(engine, cases, figures, SIMULATED_SCHEDULE, start)
    return engine


def _fitted(
    engine: Engine, cases: Sequence[InferenceCase], figures: Sequence[str], schedule: SearchSchedule, start: Engine
) -> Engine:
    """`engine` with `figures` fitted to the cases, drawn to what they are in `start`."""
    cells = [cell(case) for case in cases]
    weights = shared_weights(cells)
    drawn = [(name, getattr(start, name)) for name in figures if getattr(start, name) > 0]
    prior = DEPARTURE / len(set(cells))

    def departure(values: Values) -> float:
        return prior * sum(math.log(values[name] / first) ** 2 for name, first in drawn)

    values = fit_values(
        engine_batch(cases, engine), [_range(engine.name, name) for name in figures],
        {name: getattr(engine, name) for name in figures}, weights=weights / weights.sum(), schedule=schedule,
        penalty=departure,
    )  # fmt: skip
    return engine.with_figures(values)


def _range(kind: str, figure: str) -> Assumption:
    """How far a fit may move a figure of a class."""
    known = FIGURES[figure]
    if figure == "kernel_floor_us" and kind in CAPTURED:
        return replace(known, high=min(known.high, CAPTURED_FLOOR_US))
    return known


def _informed(name: str, cases: Sequence[InferenceCase]) -> tuple[str, ...]:
    """The figures of a class that these rows can tell anything about."""
    silent: set[str] = set()
    if not any(case.served.low_bit for case in cases):
        silent.add("low_bit_fraction")
    if all(case.tensor_parallel == 1 for case in cases):
        silent.add("exchange_us")
    return tuple(figure for figure in FITTED[name] if figure not in silent)


def cell(case: InferenceCase) -> tuple[object, ...]:
    """What rows of one table share: family, device, engine, number format. They weigh together (`shared_weights`)."""
    return (case.family, case.row.gpu, case.row.engine, case.served)
