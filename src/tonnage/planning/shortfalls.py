"""Groups that were sized and priced but break a limit in every row: which limit, by how much, and what would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tonnage.catalog.market import InstanceType
from tonnage.planning.changes import constrained, job_with, raising_quota
from tonnage.planning.joined import Joined
from tonnage.planning.market import refuse
from tonnage.planning.plan import Refusal
from tonnage.planning.ranking import Limits
from tonnage.planning.sized import Miss
from tonnage.pricing.deals import Deal
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.quotas import Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The most machines of each deal, and the quota that says so."""

    most: np.ndarray
    of: Callable[[Deal], Quota | None]


def limit_misses(
    deals: Sequence[Deal],
    instances: Mapping[tuple[str, str], InstanceType],
    joined: Joined,
    group_of_deal: np.ndarray,
    allowed: np.ndarray,
    limits: Limits,
    quotas: Quotas,
    *,
    service: bool,
    startup_s: float,
) -> list[Refusal]:
    """One refusal per group without an allowed row, from the row that comes nearest to its limits."""
    groups = group_of_deal[joined.offer]
    lost = np.setdiff1d(np.unique(groups), np.unique(groups[allowed]))
    if not len(lost):
        return []
    with np.errstate(invalid="ignore"):  # an endless spot run against no deadline is inf / inf
        excess = np.fmax(joined.wall_s / limits.deadline_s, joined.cost_usd / limits.budget_usd)
        excess = np.fmax(excess, joined.nodes / np.maximum(quotas.most[joined.offer], 1e-9))
    order = np.lexsort((joined.cost_usd, excess, groups))
    _, first = np.unique(groups[order], return_index=True)
    nearest = {int(groups[row]): int(row) for row in order[first]}
    return [
        _refusal(deals, instances, joined, nearest[int(group)], limits, quotas, service=service, startup_s=startup_s)
        for group in lost
    ]


def _refusal(
    deals: Sequence[Deal],
    instances: Mapping[tuple[str, str], InstanceType],
    joined: Joined,
    row: int,
    limits: Limits,
    quotas: Quotas,
    *,
    service: bool,
    startup_s: float,
) -> Refusal:
    deal = deals[int(joined.offer[row])]
    offer = deal.offer
    miss = _quota_miss(joined, row, deal, instances[offer.provider, offer.instance_type], quotas)
    miss = miss or _miss(joined, row, limits, service=service, startup_s=startup_s)
    return refuse(
        instances[offer.provider, offer.instance_type],
        miss,
        region=offer.region,
        purchase=offer.purchase,
        count=int(joined.nodes[row]),
        platform=deal.platform,
    )


def _quota_miss(joined: Joined, row: int, deal: Deal, instance: InstanceType, quotas: Quotas) -> Miss | None:
    nodes = float(joined.nodes[row])
    if nodes <= quotas.most[int(joined.offer[row])] or (quota := quotas.of(deal)) is None:
        return None
    needs = nodes * (quota.size_of(instance) or 0.0)
    unit = "GPUs" if quota.unit == "gpus" else "vCPUs" if quota.unit == "vcpus" else "machines"
    return Miss(
        binding="quota",
        needs=f"{needs:g} {unit}",
        has=f"{quota.limit:g} under the quota {quota.name}",
        flips_when=f"the quota {quota.name} is {needs:g}",
        change=raising_quota(quota, needs),
        shortfall=needs / quota.limit if quota.limit else np.inf,
    )


def _miss(joined: Joined, row: int, limits: Limits, *, service: bool, startup_s: float) -> Miss:
    wall = float((joined.wall_high_s if limits.hold_deadline else joined.wall_s)[row])
    cost = float((joined.cost_high_usd if limits.hold_budget else joined.cost_usd)[row])
    if service and joined.spot[row]:
        return Miss(
            binding="interruptible",
            needs="a replica to spare while spot machines are replaced",
            has="serve.spare_replicas: 0",
            flips_when="serve.spare_replicas: 1",
            change=job_with(spare_replicas=1),
        )
    if not np.isfinite(wall):
        return Miss(
            binding="interruptible",
            needs="machines that stay longer: interrupted so often, the work is never done",
            has="spot",
            flips_when="buy.interruptions_per_hour or buy.checkpoint_interval is lower",
        )
    if wall > limits.deadline_s:
        return _deadline_miss(wall, limits.deadline_s, startup_s)
    return Miss(
        binding="budget",
        needs=f"${cost:,.2f}",
        has=f"${limits.budget_usd:,.2f}",
        flips_when=f"the budget is ${cost:,.2f}, or the price falls by {100 * (1 - limits.budget_usd / cost):.2g} %",
        shortfall=cost / limits.budget_usd,
        change=constrained(budget_usd=cost * 1.001),
    )


def _deadline_miss(wall_s: float, deadline_s: float, startup_s: float) -> Miss:
    """How much later, or how much faster: start-up takes its time however fast the work runs."""
    later = f"the deadline is {_duration(wall_s * 1.01)} away"
    faster = (wall_s - startup_s) / (deadline_s - startup_s) if deadline_s > startup_s else np.inf
    return Miss(
        binding="deadline",
        needs=_duration(wall_s),
        has=f"{_duration(deadline_s)} to the deadline",
        flips_when=later + (f", or the work runs {faster:.2f}x as fast" if np.isfinite(faster) else ""),
        shortfall=wall_s / deadline_s,
        change=constrained(deadline_s=wall_s * 1.01),
    )


def _duration(seconds: float) -> str:
    """Hours, or minutes below one hour."""
    return f"{seconds / 60:.1f} min" if seconds < SECONDS_PER_HOUR else f"{seconds / SECONDS_PER_HOUR:.2f} h"
