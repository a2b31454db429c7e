"""Many training rows as one table of work, so that one evaluation of the formulas predicts them all.

The operators of all rows are in one column per kind, each entry with the row it belongs to; a fit builds the table
once and evaluates it hundreds of times in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log
from typing import Any

import numpy as np

from tonnage.calibration.memo import MEMO, Same
from tonnage.calibration.part_memo import PartMemo
from tonnage.calibration.search import Values
from tonnage.calibration.training_case import TrainingCase
from tonnage.calibration.training_judge import case_devices, case_ratio
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.operators import Kind, Operator
from tonnage.sizing.training_parts import TimedPart
from tonnage.sizing.training_prediction import work_of
from tonnage.sizing.training_time import TrainingStep, step_seconds
from tonnage.sizing.training_work import OperatorWork, StepWork, column_names
from tonnage.values import dataclass

KINDS: tuple[Kind, ...] = ("gemm", "attention", "elementwise", "convolution")
FIGURES = ("count", "flop", "moved_bytes", "rows", "columns", "kernels", "query_length", "peak_share", "row_alignment")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """Cases, their work and their devices, one row each."""

    cases: tuple[TrainingCase, ...]
    work: StepWork
    devices: Devices
    at_one_second: Array  # log(predicted / measured) of each case if its step took a second: all metrics go with it
    memo: TimedPart  # of this work on these devices

    def log_errors(self, values: Values) -> Array:
        """log(predicted / measured) of each case as a rate, under these parameters; NaN where nothing is predicted."""
        seconds = self.steps(replace(Assumptions(), **values)).total_s
        known = np.isfinite(seconds) & (seconds > 0)
        return np.where(known, self.at_one_second - np.log(np.where(known, seconds, 1.0)), np.nan)

    def steps(self, assumed: Assumptions) -> TrainingStep:
        """Parts of each row's step, seconds."""
        return step_seconds(self.work, self.devices, assumed, self.memo)


def training_batch(cases: Sequence[TrainingCase], assumed: Assumptions | None = None) -> TrainingBatch:
    """`cases` (at least one) as one table."""
    assumed = assumed or Assumptions()
    works = [_work_once(case) for case in cases]
    columns = {name: np.concatenate([getattr(work, name) for work in works]) for name in column_names()}
    stacked = [case_devices(case, assumed) for case in cases]
    return TrainingBatch(
        cases=tuple(cases),
        work=StepWork(works=_flattened(works), **columns),
        devices=_joined(stacked),
        at_one_second=np.array([log(case_ratio(case, 1.0)) for case in cases]),
        memo=PartMemo(),
    )


def _work_once(case: TrainingCase) -> StepWork:
    return MEMO.recall(("training work", Same(case)), lambda: work_of(case.jobs, case.layouts, case.trainer))


def _flattened(works: Sequence[StepWork]) -> tuple[OperatorWork, ...]:
    found = []
    for kind in KINDS:
        parts = [(row, part) for row, work in enumerate(works) for part in work.works if part.operator.kind == kind]
        if not parts:
            continue
        if kind == "elementwise":
            found.append(_summed(parts))
            continue
        entries = [part for _, part in parts]
        figures: dict[str, Any] = {
            name: _column([getattr(part.operator, name) for part in entries]) for name in FIGURES
        }
        found.append(
            OperatorWork(
                operator=Operator(name=kind, kind=kind, **figures),
                times=_column([part.times for part in entries]),
                backward=_column([part.backward for part in entries]),
                again=_column([part.again for part in entries]),
                fused=_column([part.fused for part in entries]),
                owner=np.array([row for row, _ in parts], dtype=np.intp),
            )
        )
    return tuple(found)


def _summed(parts: Sequence[tuple[int, OperatorWork]]) -> OperatorWork:
    """Element-wise work, whose time is linear in bytes and kernels: one entry for all of a row that is alike."""
    sums: dict[tuple[int, float, float, float], list[float]] = {}
    for row, part in parts:
        backward, again, fused = (_number(value) for value in (part.backward, part.again, part.fused))
        often = _number(part.times) * _number(part.operator.count)
        entry = sums.setdefault((row, backward, again, fused), [0.0, 0.0, 0.0])
        entry[0] += often * _number(part.operator.moved_bytes)
        entry[1] += often * _number(part.operator.kernels)
        entry[2] += often * _number(part.operator.strided_elements)
    keys, totals = np.array(list(sums)), np.array(list(sums.values()))
    ones = np.ones(len(keys))
    return OperatorWork(
        operator=Operator(
            name="elementwise", kind="elementwise", moved_bytes=totals[:, 0], kernels=totals[:, 1],
            strided_elements=totals[:, 2],
        ),
        times=ones, backward=keys[:, 1], again=keys[:, 2], fused=keys[:, 3], owner=keys[:, 0].astype(np.intp),
    )  # fmt: skip


def _number(value: Num) -> float:
    return float(value) if isinstance(value, float | int) else float(np.asarray(value).reshape(-1)[0])


def _column(values: Sequence[Num]) -> Array:
    return np.array([_number(value) for value in values])


def _joined(devices: Sequence[Devices]) -> Devices:
    """All devices in one; a column that none of them has stays empty."""
    columns = {name: [getattr(device, name) for device in devices] for name in Devices.__dataclass_fields__}
    known = {name: values for name, values in columns.items() if values[0] is not None}
    return Devices(**{name: np.concatenate(values) for name, values in known.items()})
