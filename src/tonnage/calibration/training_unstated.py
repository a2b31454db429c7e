"""What a row leaves open, settled by what it states: a run that was published fitted on its device.

Of the choices the row does not state the least changed one that fits is taken, in the order in which people reach for
them. What was measured is not looked at; a row that states everything, or fits as it stands, stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tonnage.calibration.training_case import Case
from tonnage.calibration.training_engine import CHUNKED_LOSS_BYTES
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import usable_bytes
from tonnage.sizing.layouts import RECOMPUTES, SHARDINGS
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.workload.jobs import Optimizer, TrainPrecision

TOLERANCE = 0.2  # over the device: nine peaks in ten are overstated by less
Change = Callable[[Case], Case]


def fitted_to_device(case: Case) -> Case:
    """The case with the fewest of its unstated choices changed so that it fits; as it is where nothing helps."""
    changes = tuple(_open_changes(case))
    if not changes or fits(case):
        return case
    changed = case
    for change in changes:
        changed = change(changed)
        if fits(changed):
            return changed
    return case


def fits(case: Case) -> bool:
    """Whether the peak stays within the device, by the shipped judgements, give or take what these are off by."""
    parts = (estimate_training_memory(job, case.layouts, Assumptions(), case.practice) for job in case.jobs)
    needs = sum(float(part.needed_bytes[0]) for part in parts)
    return needs <= usable_bytes(case.machine.accelerator) * (1.0 + TOLERANCE)


def _open_changes(case: Case) -> Iterator[Change]:
    row = case.row
    if row.n_gpus is None or case.jobs[0].model.architecture == "convolution":
        return  # without the number of GPUs there is no share that must fit; images: none of these makes much of a peak
    if case.gpus > 1 and not re.search(r"zero|fsdp|optimizer", row.sharding):
        yield _sharded_optimizer
    if case.practice.fused and case.practice.state == "autocast":
        yield _main_weights
    if not row.activation_checkpointing:
        yield _recomputed
        if "cross" not in row.note.lower():
            yield _chunked
    if not row.optimizer:
        if row.precision == "bf16":
            yield _sixteen_bit  # «bf16» says what products run in, not how weights are held
        yield _eight_bit
        yield _paged
        yield _in_backward


def _sharded_optimizer(case: Case) -> Case:
    cut = np.maximum(case.layouts.sharding, float(SHARDINGS.index("zero1")))
    return replace(case, layouts=replace(case.layouts, sharding=cut))


def _main_weights(case: Case) -> Case:
    """16-bit weights with 32-bit ones beside, as programs with hand-written kernels keep them."""
    return _with_practice(case, state="cast-model", reduce_bytes=2.0)


def _recomputed(case: Case) -> Case:
    full = np.array([float(RECOMPUTES.index("full"))])
    return replace(case, layouts=replace(case.layouts, recompute=full))


def _chunked(case: Case) -> Case:
    stated = case.practice.loss_bytes
    return _with_practice(case, loss_bytes=min(stated, CHUNKED_LOSS_BYTES) if stated else CHUNKED_LOSS_BYTES)


def _sixteen_bit(case: Case) -> Case:
    held: TrainPrecision = "bf16-true"
    jobs = tuple(replace(job, precision=held) for job in case.jobs)
    return replace(case, jobs=jobs, engine=replace(case.engine, precision=held))


def _eight_bit(case: Case) -> Case:
    small: Optimizer = "adamw-8bit"
    return replace(case, jobs=tuple(replace(job, optimizer=small) for job in case.jobs))


def _paged(case: Case) -> Case:
    return _with_practice(case, offloaded_optimizer=True)


def _in_backward(case: Case) -> Case:
    return _with_practice(case, gradients_in_backward=True)


def _with_practice(case: Case, **changed: float | bool | str) -> Case:
    practice = replace(case.practice, **changed)  # type: ignore[arg-type]
    return replace(case, engine=replace(case.engine, practice=practice))
