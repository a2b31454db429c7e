"""When a training job does not fit: the smallest change that makes it fit, each one verified by sizing again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from tonnage.planning.layout_grid import grid_for
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine, usable_bytes
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.workload.jobs import Lengths, TrainJob

NODES_TRIED = (2, 4, 8, 16, 32, 64)
SHORT_TOKENS = 256  # below this, cutting sequences saves next to nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change to the job (or two), mildest first in `changes`."""

    text: str
    job: TrainJob
    max_nodes: int


def changes(job: TrainJob, max_nodes: int) -> list[Change]:
    """What could be changed about `job`, from what costs least to what changes the result most, then in pairs."""
    leaner = [Change(text=text, job=changed, max_nodes=max_nodes) for text, changed in _leaner_jobs(job)]
    more = [Change(text=f"{nodes} nodes", job=job, max_nodes=nodes) for nodes in NODES_TRIED if nodes > max_nodes]
    mild = [change for change in leaner if not change.text.startswith(("method", "sequences"))]
    strong = [change for change in leaner if change not in mild]
    pairs = [
        Change(text=f"{change.text} and {other.text}", job=change.job, max_nodes=other.max_nodes)
        for other in more
        for change in leaner
    ]
    return [*mild, *more, *strong, *pairs]


def _leaner_jobs(job: TrainJob) -> list[tuple[str, TrainJob]]:
    """Jobs that need less memory, by the one key that differs."""
    found = []
    if job.optimizer == "adamw":
        found.append(("optimizer: adamw-8bit", replace(job, optimizer="adamw-8bit")))
    if job.attention == "eager":
        found.append(("attention: sdpa", replace(job, attention="sdpa")))
    if job.recompute not in (None, "full"):
        found.append(("recompute: full", replace(job, recompute=None)))
    if job.micro_batch not in (None, 1):
        found.append(("micro_batch: 1", replace(job, micro_batch=1)))
    if job.precision in ("bf16", "fp32", "tf32"):
        found.append(("precision: bf16-true", replace(job, precision="bf16-true")))
    transformer = job.model.architecture != "convolution"
    if job.method == "full" and transformer:
        found.append(("method: lora", replace(job, method="lora")))
    if job.method != "qlora" and transformer and job.precision not in ("fp32", "tf32"):
        found.append(("method: qlora", replace(job, method="qlora")))
    if job.lengths.maximum > SHORT_TOKENS:
        shorter = ceil(job.lengths.maximum / 2)
        lengths = Lengths(mean=min(job.lengths.mean, shorter), maximum=shorter)
        found.append((f"sequences cut at {shorter} tokens", replace(job, lengths=lengths)))
    return found


def cheapest_fit(
    job: TrainJob, machines: Sequence[Machine], assumed: Assumptions, *, max_nodes: int
) -> list[str | None]:
    """For each machine type the first change after which some layout fits; None where none of them does."""
    found: list[str | None] = [None] * len(machines)
    for change in changes(job, max_nodes):
        open_rows = [index for index, text in enumerate(found) if text is None]
        if not open_rows:
            break
        asked = [machines[index] for index in open_rows]
        for index, fits in zip(open_rows, _fits(change, asked, assumed), strict=True):
            if fits:
                found[index] = change.text
    return found


def _fits(change: Change, machines: Sequence[Machine], assumed: Assumptions) -> list[bool]:
    grid = grid_for(change.job, machines, max_nodes=change.max_nodes, max_gpus=None)
    if not len(grid.machine):
        return [False] * len(machines)
    memory = estimate_training_memory(change.job, grid.layouts, assumed)
    usable = np.array([usable_bytes(machine.accelerator) for machine in machines])
    limit = usable[grid.machine] * (1.0 - assumed.memory_margin_fraction)
    fitting = set(grid.machine[memory.total_bytes <= limit].tolist())
    return [index in fitting for index in range(len(machines))]
