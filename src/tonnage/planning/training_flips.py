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

MAX_NODES_TRIED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change to the job, mildest first in `changes`."""

    text: str
    job: TrainJob
    max_nodes: int = 1


def changes(job: TrainJob) -> list[Change]:
    """What could be changed about `job`, from what costs least to what changes the result most."""
    found = []
    if job.optimizer == "adamw":
        found.append(Change(text="optimizer: adamw-8bit", job=replace(job, optimizer="adamw-8bit")))
    if job.attention == "eager":
        found.append(Change(text="attention: sdpa", job=replace(job, attention="sdpa")))
    if job.recompute not in (None, "full"):
        found.append(Change(text="recompute: full", job=replace(job, recompute=None)))
    if job.micro_batch not in (None, 1):
        found.append(Change(text="micro_batch: 1", job=replace(job, micro_batch=1)))
    for nodes in (2, 4, 8, 16, 32, MAX_NODES_TRIED):
        found.append(Change(text=f"{nodes} nodes", job=job, max_nodes=nodes))
    if job.precision in ("bf16", "fp32", "tf32"):
        found.append(Change(text="precision: bf16-true", job=replace(job, precision="bf16-true")))
    if job.method == "full" and job.model.architecture != "convolution":
        found.append(Change(text="method: lora", job=replace(job, method="lora")))
    if job.method != "qlora" and job.model.architecture != "convolution":
        found.append(Change(text="method: qlora", job=replace(job, method="qlora")))
    longest = job.lengths.maximum
    if longest > 256:
        shorter = ceil(longest / 2)
        lengths = Lengths(mean=min(job.lengths.mean, shorter), maximum=shorter)
        found.append(Change(text=f"sequences cut at {shorter} tokens", job=replace(job, lengths=lengths)))
    return found


def cheapest_fit(job: TrainJob, machines: Sequence[Machine], assumed: Assumptions) -> list[str]:
    """For each machine type the first change after which some layout fits, or that none of them does."""
    found: list[str | None] = [None] * len(machines)
    for change in changes(job):
        open_rows = [index for index, text in enumerate(found) if text is None]
        if not open_rows:
            break
        asked = [machines[index] for index in open_rows]
        for index, fits in zip(open_rows, _fits(change, asked, assumed), strict=True):
            if fits:
                found[index] = change.text
    return [text or "none of the changes tried (fewer bytes per state, adapters, 64 nodes) fits" for text in found]


def _fits(change: Change, machines: Sequence[Machine], assumed: Assumptions) -> list[bool]:
    grid = grid_for(change.job, machines, max_nodes=change.max_nodes, max_gpus=None)
    if not len(grid.machine):
        return [False] * len(machines)
    memory = estimate_training_memory(change.job, grid.layouts, assumed)
    usable = np.array([usable_bytes(machine.accelerator) for machine in machines])
    limit = usable[grid.machine] * (1.0 - assumed.memory_margin_fraction)
    fitting = set(grid.machine[memory.total_bytes <= limit].tolist())
    return [index in fitting for index in range(len(machines))]
