"""Many training rows as one table of work, so that one evaluation of the formulas predicts them all.

The operators of all rows stand in one column per kind, each entry with the row it belongs to; a fit builds the table
once and evaluates it hundreds of times in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tonnage.calibration.training_case import Case
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices, stack
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.operators import Kind, Operator
from tonnage.sizing.precision import TRAINING
from tonnage.sizing.training_prediction import work_of
from tonnage.sizing.training_time import TrainingStep, step_seconds
from tonnage.sizing.training_work import StepWork, Work, column_names
from tonnage.values import dataclass

KINDS: tuple[Kind, ...] = ("gemm", "attention", "elementwise", "convolution")
FIGURES = ("count", "flop", "moved_bytes", "rows", "columns", "kernels", "query_length", "peak_share")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTable:
    """Cases, their work and their devices, one row each."""

    cases: tuple[Case, ...]
    work: StepWork
    devices: Devices

    def steps(self, assumed: Assumptions) -> TrainingStep:
        """Parts of each row's step, seconds."""
        return step_seconds(self.work, self.devices, assumed)


def training_table(cases: Sequence[Case], assumed: Assumptions | None = None) -> TrainingTable:
    """The table of `cases` (at least one)."""
    assumed = assumed or Assumptions()
    works = [_work_once(case) for case in cases]
    columns = {name: np.concatenate([getattr(work, name) for work in works]) for name in column_names()}
    stacked = [case_devices(case, assumed) for case in cases]
    return TrainingTable(
        cases=tuple(cases),
        work=StepWork(works=_flattened(works), **columns),
        devices=_joined(stacked),
    )


_WORKS: dict[int, tuple[Case, StepWork]] = {}


def _work_once(case: Case) -> StepWork:
    """The work of a case, remembered with it (held, so that no other takes its place)."""
    if id(case) not in _WORKS:
        _WORKS[id(case)] = (case, work_of(case.jobs, case.layouts, case.practice))
    return _WORKS[id(case)][1]


def case_devices(case: Case, assumed: Assumptions) -> Devices:
    """The machine of a case at the precision it computes in."""
    return stack([case.machine], TRAINING[case.jobs[0].precision].compute, assumed)


def _flattened(works: Sequence[StepWork]) -> tuple[Work, ...]:
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
            Work(
                operator=Operator(name=kind, kind=kind, **figures),
                times=_column([part.times for part in entries]),
                backward=_column([part.backward for part in entries]),
                again=_column([part.again for part in entries]),
                fused=_column([part.fused for part in entries]),
                owner=np.array([row for row, _ in parts], dtype=np.intp),
            )
        )
    return tuple(found)


def _summed(parts: Sequence[tuple[int, Work]]) -> Work:
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
    return Work(
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
    """All devices in one; a column that none of them tells stays untold."""
    columns = {name: [getattr(device, name) for device in devices] for name in Devices.__dataclass_fields__}
    told = {name: values for name, values in columns.items() if values[0] is not None}
    return Devices(**{name: np.concatenate(values) for name, values in told.items()})
