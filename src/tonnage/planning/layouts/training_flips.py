"""When a training job does not fit: the smallest change that makes it fit, each one verified by sizing again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.layout_grid import grid_for
from tonnage.planning.reasons.changes import AnyChange, Both, CutSequences, MoreNodes, SetField
from tonnage.planning.whatif.changes import cut_at
from tonnage.sizing.devices import Machine, channel_share, generation_of, usable_bytes
from tonnage.sizing.fitting import fits, holds
from tonnage.sizing.training_prediction import peak_memory
from tonnage.workload.jobs import Constraints, TrainJob

NODES_TRIED = (2, 4, 8, 16, 32, 64)
SHORT_TOKENS = 256  # below this, cutting sequences saves next to nothing


def trials(job: TrainJob, max_nodes: int) -> list[AnyChange]:
    """What could be changed about `job`, from what costs least to what changes the result most, then in pairs."""
    mild, strong = _mild(job), _strong(job)
    more = [MoreNodes(max_nodes=nodes) for nodes in NODES_TRIED if nodes > max_nodes]
    pairs = [Both(first=leaner, second=nodes) for nodes in more for leaner in (*mild, *strong)]
    return [*mild, *more, *strong, *pairs]


def _mild(job: TrainJob) -> list[SetField | CutSequences]:
    """Changes of one key after which the job needs less memory and learns the same."""
    found: list[SetField | CutSequences] = []
    if job.optimizer == "adamw":
        found.append(SetField(key="optimizer", value="adamw-8bit"))
    if job.attention == "eager":
        found.append(SetField(key="attention", value="sdpa"))
    if job.recompute not in (None, "full"):
        found.append(SetField(key="recompute", value="full"))
    if job.micro_batch not in (None, 1):
        found.append(SetField(key="micro_batch", value=1))
    if job.precision in ("bf16", "fp32", "tf32"):
        found.append(SetField(key="precision", value="bf16-true"))
    return found


def _strong(job: TrainJob) -> list[SetField | CutSequences]:
    """Changes of one key after which the job needs less memory and learns something else."""
    found: list[SetField | CutSequences] = []
    transformer = job.model.architecture != "convolution"
    if job.method == "full" and transformer:
        found.append(SetField(key="method", value="lora"))
    if job.method != "qlora" and transformer and job.precision not in ("fp32", "tf32"):
        found.append(SetField(key="method", value="qlora"))
    if job.lengths.maximum > SHORT_TOKENS:
        found.append(CutSequences(maximum_tokens=ceil(job.lengths.maximum / 2)))
    return found


def _changed(job: TrainJob, max_nodes: int, change: AnyChange) -> tuple[TrainJob, int]:
    """The job, and the machines it may take, after a change."""
    match change:
        case Both(first=first, second=second):
            return _changed(*_changed(job, max_nodes, first), second)
        case MoreNodes(max_nodes=nodes):
            return job, nodes
        case CutSequences(maximum_tokens=most):
            return replace(job, lengths=cut_at(job.lengths, most)), max_nodes
        case SetField(key=key, value=value):
            fields: dict[str, Any] = {key: value}
            return replace(job, **fields), max_nodes
    raise AssertionError(change)


def cheapest_fit(
    job: TrainJob, machines: Sequence[Machine], calibrated: CalibratedModel, constraints: Constraints
) -> list[AnyChange | None]:
    """For each machine type the first trial after which some layout fits in memory, at the upper end of its interval
    where that is held; None where none of them does."""
    found: list[AnyChange | None] = [None] * len(machines)
    for trial in trials(job, constraints.max_nodes):
        open_rows = [index for index, done in enumerate(found) if done is None]
        if not open_rows:
            break
        asked = [machines[index] for index in open_rows]
        for index, fitting in zip(open_rows, _holds(trial, job, asked, calibrated, constraints), strict=True):
            if fitting:
                found[index] = trial
    return found


def _holds(
    trial: AnyChange, job: TrainJob, machines: Sequence[Machine], calibrated: CalibratedModel, constraints: Constraints
) -> list[bool]:
    changed, nodes = _changed(job, constraints.max_nodes, trial)
    grid = grid_for(changed, machines, max_nodes=nodes, max_gpus=None)
    if not len(grid.machine):
        return [False] * len(machines)
    assumed = calibrated.assumed
    channels = np.array([channel_share(machine) for machine in machines])[grid.machine]
    generation = np.array([generation_of(machine.accelerator) for machine in machines])[grid.machine]
    memory = peak_memory((changed,), grid.layouts, assumed, channels=channels, generation=generation)
    usable = np.array([usable_bytes(machine.accelerator) for machine in machines])[grid.machine]
    enough = fits(memory.needed_bytes, usable, assumed.memory_margin_fraction)
    if constraints.held("memory"):
        worst = [calibrated.training_memory(changed, machine.accelerator).spread.high_factor for machine in machines]
        enough &= holds(memory.needed_bytes, np.array(worst)[grid.machine], usable)
    fitting = set(grid.machine[enough].tolist())
    return [index in fitting for index in range(len(machines))]
