"""When nothing fits: which single constraint, taken away, would give an option, and which one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tonnage.planning.changes import edit_of
from tonnage.planning.plan import Option, Plan
from tonnage.planning.reasons.changes import (
    AcceptRisk,
    AllowSpot,
    DropExclusion,
    FreeKey,
    LeaveOut,
    RelaxingChange,
)
from tonnage.workload.jobs import Workload

KEYS: Final[tuple[FreeKey, ...]] = (
    "gpus", "providers", "regions", "residency", "platforms", "deadline", "budget_usd", "max_gpus",
)  # fmt: skip


def relaxed_workloads(workload: Workload) -> list[tuple[RelaxingChange, Workload]]:
    """The workload without each constraint it states, one at a time, as (what was taken away, workload)."""
    stated = workload.constraints
    changes: list[RelaxingChange] = [DropExclusion(exclusion=one.text) for one in stated.exclude]
    if len(stated.exclude) > 1:
        changes.append(LeaveOut(key="exclude"))
    changes += [LeaveOut(key=key) for key in KEYS]
    changes.append(LeaveOut(key="quotas"))
    if stated.held("memory"):
        changes.append(AcceptRisk(limit="memory"))
    if not stated.interruptible or "spot" not in workload.buy.purchases:
        changes.append(AllowSpot())
    tried = ((change, edit_of(change)) for change in changes)
    relaxed = [(change, edit(workload)) for change, edit in tried if edit is not None]
    return [(change, free) for change, free in relaxed if free != workload]


def relaxations(workload: Workload, plan: Callable[[Workload], Plan]) -> list[tuple[RelaxingChange, Plan]]:
    """Single constraints whose removal gives an option, each with the plan then; empty when no one helps."""
    tried = [(change, plan(relaxed)) for change, relaxed in relaxed_workloads(workload)]
    return [(change, freed) for change, freed in tried if freed.best is not None]


def best_of_each_gpu(options: Sequence[Option], count: int) -> list[Option]:
    """The first `count` options that run on different GPUs, in rank order."""
    firsts: dict[str | None, Option] = {}
    for option in options:
        firsts.setdefault(option.gpu, option)
    return list(firsts.values())[:count]
