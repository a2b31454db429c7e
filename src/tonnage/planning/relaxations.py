"""When nothing fits: which single constraint, taken away, would give an option, and which one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tonnage.planning.changes import accepting
from tonnage.planning.plan import Option, Plan
from tonnage.workload.jobs import Constraints, Workload

FREE = Constraints()


def relaxed_workloads(workload: Workload) -> list[tuple[str, Workload]]:
    """The workload without each constraint it states, one at a time, as (what was taken away, workload)."""
    stated = workload.constraints
    out: list[tuple[str, Workload]] = []
    for name in ("gpus", "providers", "regions", "residency", "platforms", "deadline_s", "budget_usd", "max_gpus"):
        if getattr(stated, name) != getattr(FREE, name):
            key = name.removesuffix("_s")
            without = replace(stated, **{name: getattr(FREE, name)})
            out.append((f"without constraints.{key}", replace(workload, constraints=without)))
    for one in stated.exclude:
        kept = replace(stated, exclude=tuple(other for other in stated.exclude if other != one))
        out.append((f"without «{one.text}» in constraints.exclude", replace(workload, constraints=kept)))
    if len(stated.exclude) > 1:
        out.append(("without constraints.exclude", replace(workload, constraints=replace(stated, exclude=()))))
    if stated.quotas:
        out.append(("with higher quotas", replace(workload, constraints=replace(stated, quotas=()))))
    if stated.held("memory"):
        out.append(("with --accept-risk memory", accepting("memory")(workload)))
    if not stated.interruptible or "spot" not in workload.buy.purchases:
        buy = replace(workload.buy, purchases=tuple(dict.fromkeys((*workload.buy.purchases, "spot"))))
        interruptible = replace(stated, interruptible=True)
        out.append(("with spot allowed", replace(workload, constraints=interruptible, buy=buy)))
    return out


def relaxations(workload: Workload, plan: Callable[[Workload], Plan]) -> list[tuple[str, Plan]]:
    """Single constraints whose removal gives an option, each with the plan then; empty when no one helps."""
    tried = [(text, plan(relaxed)) for text, relaxed in relaxed_workloads(workload)]
    return [(text, freed) for text, freed in tried if freed.best is not None]


def describe_relaxation(text: str, best: Option) -> str:
    """«without constraints.gpus: aws p5.48xlarge x 2 on-demand, $69.16»."""
    bought = best.purchase.replace("_", "-")
    return f"{text}: {best.provider} {best.instance_type} x {best.count} {bought}, ${best.cost_usd.value:,.2f}"


def best_of_each_gpu(options: Sequence[Option], count: int) -> list[Option]:
    """The first `count` options that run on different GPUs, in rank order."""
    firsts: dict[str | None, Option] = {}
    for option in options:
        firsts.setdefault(option.gpu, option)
    return list(firsts.values())[:count]
