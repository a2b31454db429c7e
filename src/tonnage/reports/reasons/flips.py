"""Words for what was tried: flips, near misses, single constraints that would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from tonnage.planning.plan import NearMiss, Plan, Relaxation
from tonnage.planning.reasons.changes import AcceptRisk, AllowSpot, DropExclusion, LeaveOut, RelaxingChange
from tonnage.reports.plain import plain_usd
from tonnage.reports.reasons.changes import change_document, changes_words
from tonnage.reports.reasons.document import reason_document

if TYPE_CHECKING:  # a plan of one workload needs no portfolio planner
    from tonnage.portfolios.answer import Unplaced


def relaxation_words(one: Relaxation) -> str:
    """«without constraints.gpus: aws p5.48xlarge x 2 on-demand, $69.16»."""
    best, what = one.best, _without(one.change)
    bought = best.purchase.replace("_", "-")
    return f"{what}: {best.provider} {best.instance_type} x {best.count} {bought}, ${best.cost_usd.value:,.2f}"


def _without(change: RelaxingChange) -> str:
    match change:
        case LeaveOut(key="quotas"):
            return "with higher quotas"
        case LeaveOut(key=key):
            return f"without constraints.{key}"
        case DropExclusion(exclusion=exclusion):
            return f"without «{exclusion}» in constraints.exclude"
        case AcceptRisk(limit=limit):
            return f"with --accept-risk {limit}"
        case AllowSpot():
            return "with spot allowed"
        case _:
            assert_never(change)


def relaxation_document(one: Relaxation) -> dict[str, Any]:
    """The change, and the best option then."""
    best = one.best
    return {
        **reason_document(one.change, relaxation_words(one)),
        "provider": best.provider,
        "instance_type": best.instance_type,
        "region": best.region,
        "purchase": best.purchase,
        "platform": best.platform,
        "count": best.count,
        "cost_usd": plain_usd(best.cost_usd.value),
    }


def near_miss_lifts(one: NearMiss) -> str:
    """The whole chain of changes, and what the option costs then: with its machines where their number is another."""
    count, refusal = one.flip.count, one.refusal
    other = f"{count} x {refusal.instance_type} at " if count is not None and count != refusal.count else ""
    return f"{changes_words(one.flip.changes)} (then {other}${one.flip.cost_usd:,.2f})"


def nothing_fits_hint(plan: Plan) -> str | None:
    """The change nearest at hand where a plan has no option."""
    if plan.relaxations:
        return relaxation_words(plan.relaxations[0])
    if not plan.nearest_misses:
        return None
    near = plan.nearest_misses[0]
    return f"{near.refusal.provider} {near.refusal.instance_type} would fit with: {near_miss_lifts(near)}"


def changes_document(one: NearMiss) -> list[dict[str, Any]]:
    """The chain, one entry a change."""
    return [change_document(change) for change in one.flip.changes]


def unplaced_hint(one: Unplaced) -> str | None:
    """What would place a workload of a portfolio."""
    if one.sellers:
        return f"it may run at {', '.join(one.sellers)}, which have no share"
    return nothing_fits_hint(one.plan)
