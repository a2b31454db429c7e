"""When a training job does not fit: the smallest change that makes it fit, each one verified by sizing again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from tonnage.planning.changes import Change, both, constrained, job_with
from tonnage.planning.grounds import Grounds
from tonnage.planning.layout_grid import grid_for
from tonnage.sizing.devices import Machine, usable_bytes
from tonnage.sizing.fitting import fits, holds
from tonnage.sizing.training_prediction import peak_memory
from tonnage.workload.jobs import Constraints, Lengths, TrainJob

NODES_TRIED = (2, 4, 8, 16, 32, 64)
SHORT_TOKENS = 256  # below this, cutting sequences saves next to nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One change to the job (or two), mildest first in `trials`."""

    text: str
    fields: dict[str, Any]  # of the job
    max_nodes: int

    def change(self) -> Change:
        """The same for a whole workload."""
        return both(job_with(**self.fields), constrained(max_nodes=self.max_nodes))


def trials(job: TrainJob, max_nodes: int) -> list[Trial]:
    """What could be changed about `job`, from what costs least to what changes the result most, then in pairs."""
    leaner = [Trial(text=text, fields=fields, max_nodes=max_nodes) for text, fields in _leaner(job)]
    more = [Trial(text=f"{nodes} nodes", fields={}, max_nodes=nodes) for nodes in NODES_TRIED if nodes > max_nodes]
    mild = [trial for trial in leaner if not trial.text.startswith(("method", "sequences"))]
    strong = [trial for trial in leaner if trial not in mild]
    pairs = [
        Trial(text=f"{trial.text} and {other.text}", fields=trial.fields, max_nodes=other.max_nodes)
        for other in more
        for trial in leaner
    ]
    return [*mild, *more, *strong, *pairs]


def _leaner(job: TrainJob) -> list[tuple[str, dict[str, Any]]]:
    """Changes of one key after which the job needs less memory."""
    found: list[tuple[str, dict[str, Any]]] = []
    if job.optimizer == "adamw":
        found.append(("optimizer: adamw-8bit", {"optimizer": "adamw-8bit"}))
    if job.attention == "eager":
        found.append(("attention: sdpa", {"attention": "sdpa"}))
    if job.recompute not in (None, "full"):
        found.append(("recompute: full", {"recompute": None}))
    if job.micro_batch not in (None, 1):
        found.append(("micro_batch: 1", {"micro_batch": 1}))
    if job.precision in ("bf16", "fp32", "tf32"):
        found.append(("precision: bf16-true", {"precision": "bf16-true"}))
    transformer = job.model.architecture != "convolution"
    if job.method == "full" and transformer:
        found.append(("method: lora", {"method": "lora"}))
    if job.method != "qlora" and transformer and job.precision not in ("fp32", "tf32"):
        found.append(("method: qlora", {"method": "qlora"}))
    if job.lengths.maximum > SHORT_TOKENS:
        shorter = ceil(job.lengths.maximum / 2)
        lengths = Lengths(mean=min(job.lengths.mean, shorter), maximum=shorter)
        found.append((f"sequences cut at {shorter} tokens", {"lengths": lengths}))
    return found


def cheapest_fit(
    job: TrainJob, machines: Sequence[Machine], grounds: Grounds, constraints: Constraints
) -> list[Trial | None]:
    """For each machine type the first trial after which some layout fits in memory, at the upper end of its interval
    where that is held; None where none of them does."""
    found: list[Trial | None] = [None] * len(machines)
    for trial in trials(job, constraints.max_nodes):
        open_rows = [index for index, done in enumerate(found) if done is None]
        if not open_rows:
            break
        asked = [machines[index] for index in open_rows]
        for index, fitting in zip(open_rows, _holds(trial, job, asked, grounds, constraints), strict=True):
            if fitting:
                found[index] = trial
    return found


def _holds(
    trial: Trial, job: TrainJob, machines: Sequence[Machine], grounds: Grounds, constraints: Constraints
) -> list[bool]:
    changed = replace(job, **trial.fields)
    grid = grid_for(changed, machines, max_nodes=trial.max_nodes, max_gpus=None)
    if not len(grid.machine):
        return [False] * len(machines)
    assumed = grounds.assumed
    memory = peak_memory((changed,), grid.layouts, assumed)
    usable = np.array([usable_bytes(machine.accelerator) for machine in machines])[grid.machine]
    enough = fits(memory.needed_bytes, usable, assumed.memory_margin_fraction)
    if constraints.held("memory"):
        worst = [grounds.training_memory(changed, machine.accelerator).spread.high_factor for machine in machines]
        enough &= holds(memory.needed_bytes, np.array(worst)[grid.machine], usable)
    fitting = set(grid.machine[enough].tolist())
    return [index in fitting for index in range(len(machines))]
