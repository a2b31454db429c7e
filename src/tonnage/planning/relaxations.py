"""When nothing fits: which single constraint, taken away, would give an option, and which one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tonnage.planning.plan import Plan
from tonnage.workload.jobs import Constraints, Workload

FREE = Constraints()


def relaxed_workloads(workload: Workload) -> list[tuple[str, Workload]]:
    """The workload without each constraint it states, one at a time, as (what was taken away, workload)."""
    stated = workload.constraints
    out: list[tuple[str, Workload]] = []
    for name in ("gpus", "providers", "regions", "residency", "deadline_s", "budget_usd", "max_gpus"):
        if getattr(stated, name) != getattr(FREE, name):
            key = name.removesuffix("_s")
            without = replace(stated, **{name: getattr(FREE, name)})
            out.append((f"without constraints.{key}", replace(workload, constraints=without)))
    if not stated.interruptible or "spot" not in workload.buy.purchases:
        buy = replace(workload.buy, purchases=tuple(dict.fromkeys((*workload.buy.purchases, "spot"))))
        interruptible = replace(stated, interruptible=True)
        out.append(("with spot allowed", replace(workload, constraints=interruptible, buy=buy)))
    return out


def relaxations(workload: Workload, plan: Callable[[Workload], Plan]) -> tuple[str, ...]:
    """Texts such as «without constraints.gpus: aws p5.48xlarge x 2, $69.16»; empty when no single one helps."""
    found = []
    for text, relaxed in relaxed_workloads(workload):
        best = plan(relaxed).best
        if best is not None:
            found.append(
                f"{text}: {best.provider} {best.instance_type} x {best.count} "
                f"{best.purchase.replace('_', '-')}, ${best.cost_usd.value:,.2f}"
            )
    return tuple(found)
