"""What a row leaves open, settled by what it states: a run that was published fitted on its device.

Of the choices the row does not state the least changed one that fits is taken, in the order in which people reach for
them. What was measured is not looked at; a row that states everything, or fits as it is, stays as it is. Whether a
run fits is judged by the assumptions handed in: where a family is left out, by those of a fit that never saw it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tonnage.calibration.training_case import TrainingCase
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import channel_share, generation_of, usable_bytes
from tonnage.sizing.layouts import RECOMPUTES, SHARDINGS
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.workload.jobs import TrainPrecision

TOLERANCE = 0.2  # over the device: nine peaks in ten are overstated by less
Change = Callable[[TrainingCase], TrainingCase]


def fitted_to_device(case: TrainingCase, assumed: Assumptions) -> TrainingCase:
    """The case with the fewest of its unstated choices changed so that it fits; as it is where nothing helps."""
    changes = tuple(_open_changes(case))
    if not changes or fits(case, assumed):
        return case
    changed = case
    for change in changes:
        changed = change(changed)
        if fits(changed, assumed):
            return changed
    return case


def fits(case: TrainingCase, assumed: Assumptions) -> bool:
    """Whether the peak stays within the device, give or take what predictions are off by."""
    outside = channel_share(case.machine), generation_of(case.machine.accelerator)
    parts = (estimate_training_memory(job, case.layouts, assumed, case.trainer, *outside) for job in case.jobs)
    needs = sum(float(part.needed_bytes[0]) for part in parts)
    return needs <= usable_bytes(case.machine.accelerator) * (1.0 + TOLERANCE)


def _open_changes(case: TrainingCase) -> Iterator[Change]:
    row = case.row
    if row.n_gpus is None or case.jobs[0].model.architecture == "convolution":
        return  # without the number of GPUs there is no share that must fit; images: none of these makes much of a peak
    if case.gpus > 1 and not re.search(r"zero|fsdp|optimizer", row.sharding):
        yield _sharded_optimizer
    program = case.program
    if program.kernels == "fused" and program.state is None:
        yield partial(_with_program, state="cast-model")  # 16-bit weights with 32-bit ones beside
    if not row.activation_checkpointing:
        yield _recomputed
        if not row.loss:
            yield _chunked
    if not row.optimizer:
        if row.precision == "bf16":
            yield _sixteen_bit  # «bf16» says what products run in, not how weights are held
        yield partial(_with_program, optimizer="adamw-8bit")
        yield partial(_with_program, offload=("optimizer",))
        yield partial(_with_program, optimizer_in_backward=True)


def _sharded_optimizer(case: TrainingCase) -> TrainingCase:
    cut = np.maximum(case.layouts.sharding, float(SHARDINGS.index("zero1")))
    return replace(case, layouts=replace(case.layouts, sharding=cut))


def _recomputed(case: TrainingCase) -> TrainingCase:
    full = np.array([float(RECOMPUTES.index("full"))])
    return replace(case, layouts=replace(case.layouts, recompute=full))


def _chunked(case: TrainingCase) -> TrainingCase:
    return case if case.program.loss == "fused" else _with_program(case, loss="chunked")


def _sixteen_bit(case: TrainingCase) -> TrainingCase:
    held: TrainPrecision = "bf16-true"
    return replace(case, jobs=tuple(replace(job, precision=held) for job in case.jobs))


def _with_program(case: TrainingCase, **changed: Any) -> TrainingCase:
    """The case with its program changed; the job's own optimizer goes with it."""
    program = replace(case.program, **changed)
    optimizer = program.optimizer or case.jobs[0].optimizer
    return replace(case, jobs=tuple(replace(job, program=program, optimizer=optimizer) for job in case.jobs))
