"""When nothing fits: which single constraint, taken away, gives an option, and which refusals nearly fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Final

from tonnage.catalog import Catalog
from tonnage.planning.plan import NearMiss, Option, Plan, Refusal
from tonnage.planning.reasons.changes import (
    AcceptRisk,
    AllowSpot,
    DropExclusion,
    FreeKey,
    LeaveOut,
    RelaxingChange,
)
from tonnage.planning.whatif.changes import edit_of
from tonnage.planning.whatif.flips import Planner, chain_that_fits
from tonnage.planning.whatif.scenario import Scenario
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


MOST_TRIED = 16  # refusals
SHOWN = 3


def nearest_misses(
    workload: Workload, catalog: Catalog, refused: Iterable[Refusal], relaxed: Iterable[Option], plan: Planner
) -> tuple[NearMiss, ...]:
    """Up to three refusals of different GPUs that a short chain of changes lets in, the smallest shortfall first.

    Those that lack a figure by a known factor go first; then what single relaxed constraints would have chosen.
    The flip of a result is the whole chain and what the option then costs.
    """
    listed = list(refused)
    measured = sorted((one for one in listed if isfinite(one.shortfall)), key=lambda one: one.shortfall)
    by_identity = {(one.provider, one.instance_type, one.purchase, one.platform): one for one in listed}
    chosen = [by_identity.get((one.provider, one.instance_type, one.purchase, one.platform)) for one in relaxed]
    found: list[NearMiss] = []
    tried: set[tuple[str | None, float]] = set()
    for miss in [*measured, *(one for one in chosen if one is not None)]:
        kind = (miss.gpu, miss.gpu_count)
        if kind in tried or len(found) == SHOWN or len(tried) == MOST_TRIED:
            continue
        tried.add(kind)
        chain = chain_that_fits(miss, Scenario(workload=workload, catalog=catalog), plan)
        if chain is not None:
            found.append(NearMiss(refusal=miss, flip=chain))
    return tuple(found)
