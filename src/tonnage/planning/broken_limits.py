"""Groups that were sized and priced but break a limit in every row: which limit, by how much, and what would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log10

import numpy as np

from tonnage.catalog.market import InstanceType
from tonnage.planning.offers.market import refuse
from tonnage.planning.plan import Refusal
from tonnage.planning.priced_runs import PricedRuns
from tonnage.planning.ranking import OptionLimits
from tonnage.planning.reasons.changes import (
    FasterWork,
    LowerPrice,
    MoveBudget,
    MoveDeadline,
    RaiseQuota,
    RarerInterruptions,
    SetField,
)
from tonnage.planning.reasons.misses import AccountQuotaMiss, BudgetMiss, DeadlineMiss, Miss, NeverDoneMiss, NoSpareMiss
from tonnage.pricing.deals import Deal
from tonnage.sizing.estimates import distinct
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.quotas import Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The most machines of each deal, and the quota that says so."""

    most: np.ndarray
    of: Callable[[Deal], Quota | None]


def limit_misses(
    deals: Sequence[Deal],
    instances: Mapping[tuple[str, str], InstanceType],
    priced: PricedRuns,
    group_of_deal: np.ndarray,
    allowed: np.ndarray,
    limits: OptionLimits,
    quotas: Quotas,
    *,
    service: bool,
    startup_s: float,
) -> list[Refusal]:
    """One refusal per group without an allowed row, from the row that comes nearest to its limits."""
    groups = group_of_deal[priced.offer]
    every = distinct(groups)
    lost = every[~np.isin(every, groups[allowed])]
    if not len(lost):
        return []
    with np.errstate(invalid="ignore"):  # an endless spot run against no deadline is inf / inf
        excess = np.fmax(priced.wall_s / limits.deadline_s, priced.cost_usd / limits.budget_usd)
        excess = np.fmax(excess, priced.nodes / np.maximum(quotas.most[priced.offer], 1e-9))
    order = np.lexsort((priced.cost_usd, excess, groups))
    _, first = np.unique(groups[order], return_index=True)
    nearest = {int(groups[row]): int(row) for row in order[first]}
    return [
        _refusal(deals, instances, priced, nearest[int(group)], limits, quotas, service=service, startup_s=startup_s)
        for group in lost
    ]


def _refusal(
    deals: Sequence[Deal],
    instances: Mapping[tuple[str, str], InstanceType],
    priced: PricedRuns,
    row: int,
    limits: OptionLimits,
    quotas: Quotas,
    *,
    service: bool,
    startup_s: float,
) -> Refusal:
    deal = deals[int(priced.offer[row])]
    offer = deal.offer
    miss = _quota_miss(priced, row, deal, instances[offer.provider, offer.instance_type], quotas)
    miss = miss or _miss(priced, row, limits, service=service, startup_s=startup_s)
    return refuse(
        instances[offer.provider, offer.instance_type],
        miss,
        region=offer.region,
        purchase=offer.purchase,
        count=int(priced.nodes[row]),
        platform=deal.platform,
    )


def _quota_miss(priced: PricedRuns, row: int, deal: Deal, instance: InstanceType, quotas: Quotas) -> Miss | None:
    nodes = float(priced.nodes[row])
    if nodes <= quotas.most[int(priced.offer[row])] or (quota := quotas.of(deal)) is None:
        return None
    needed = nodes * (quota.size_of(instance) or 0.0)
    raised = RaiseQuota(
        provider=quota.provider, name=quota.name, unit=quota.unit, before=quota.limit, limit=needed
    )  # fmt: skip
    return AccountQuotaMiss(
        needed=needed, limit=quota.limit, unit=quota.unit, name=quota.name, lifted_by=(raised,)
    )  # fmt: skip


def _miss(priced: PricedRuns, row: int, limits: OptionLimits, *, service: bool, startup_s: float) -> Miss:
    wall = float((priced.wall_high_s if limits.hold_deadline else priced.wall_s)[row])
    cost = float((priced.cost_high_usd if limits.hold_budget else priced.cost_usd)[row])
    if service and priced.spot[row]:
        return NoSpareMiss(lifted_by=(SetField(key="spare_replicas", value=1),))
    if not np.isfinite(wall):
        return NeverDoneMiss(lifted_by=(RarerInterruptions(),))
    if wall > limits.deadline_s:
        return _deadline_miss(wall, limits.deadline_s, startup_s)
    cheaper = LowerPrice(fall_fraction=1 - limits.budget_usd / cost)
    return BudgetMiss(needed_usd=cost, budget_usd=limits.budget_usd, lifted_by=(budget_of(cost), cheaper))


def _deadline_miss(wall_s: float, deadline_s: float, startup_s: float) -> Miss:
    """How much later, or how much faster: start-up takes its time however fast the work runs."""
    later = deadline_of(wall_s)
    faster: tuple[FasterWork, ...] = ()
    if deadline_s > startup_s:
        faster = (FasterWork(times=(wall_s - startup_s) / (deadline_s - startup_s)),)
    return DeadlineMiss(needed_s=wall_s, deadline_s=deadline_s, lifted_by=(later, *faster))


def deadline_of(wall_s: float) -> MoveDeadline:
    """The deadline that leaves `wall_s` its time: four digits of hours above it, or of minutes below one hour.

    >>> deadline_of(1234.5).deadline_s / 60, deadline_of(90100.0).deadline_s / 3600
    (20.58, 25.03)
    """
    unit_s = 60.0 if wall_s < SECONDS_PER_HOUR else SECONDS_PER_HOUR
    digits = 10.0 ** (3 - floor(log10(wall_s / unit_s)))
    return MoveDeadline(deadline_s=max(ceil(wall_s / unit_s * digits) / digits * unit_s, wall_s))


def budget_of(usd: float) -> MoveBudget:
    """The budget that pays `usd`: whole cents above it."""
    return MoveBudget(budget_usd=ceil(usd * 100) / 100)
