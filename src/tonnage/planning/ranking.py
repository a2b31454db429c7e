"""From priced columns to ranked options: the best node count of each offer, the best offer of each group, the order."""

from __future__ import annotations

import numpy as np

from tonnage.planning.plan import Objective
from tonnage.planning.priced_runs import PricedRuns
from tonnage.planning.sized import IntArray, best_per_group
from tonnage.sizing.estimates import Array, distinct
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionLimits:
    """What an option may take; infinity where the workload says nothing. `max_gpus` is held by sizing."""

    deadline_s: float
    budget_usd: float
    hold_deadline: bool = False  # at the far end of the interval
    hold_budget: bool = False


def within(priced: PricedRuns, limits: OptionLimits) -> np.ndarray:
    """Rows that meet the deadline and the budget on their expected figures, or at their intervals' far end."""
    wall = priced.wall_high_s if limits.hold_deadline else priced.wall_s
    cost = priced.cost_high_usd if limits.hold_budget else priced.cost_usd
    return (wall <= limits.deadline_s) & (cost <= limits.budget_usd) & np.isfinite(priced.wall_s)


def score(priced: PricedRuns, objective: Objective, *, service: bool) -> Array:
    """What is minimised: dollars, or seconds (dollars for a service, which has no end). Ties fall to the other."""
    if objective == "time" and not service:
        return priced.wall_s * (1 + 1e-12 * priced.cost_usd)
    return priced.cost_usd * (1 + 1e-12 * priced.wall_s)


def pareto_rows(cost: Array, wall: Array) -> np.ndarray:
    """Rows that no other row beats in both cost and time, as a mask.

    >>> pareto_rows(np.array([1.0, 2.0, 3.0]), np.array([9.0, 5.0, 6.0])).tolist()
    [True, True, False]
    """
    order = np.lexsort((wall, cost))
    best_before = np.minimum.accumulate(np.r_[np.inf, wall[order][:-1]])
    mask = np.zeros(len(cost), dtype=bool)
    mask[order] = wall[order] < best_before
    return mask


def choose(priced: PricedRuns, rows: IntArray, group_of_deal: IntArray, value: Array, front: np.ndarray) -> IntArray:
    """The best row of each group, and every row of the Pareto front; best value first."""
    groups = group_of_deal[priced.offer[rows]].astype(np.int64)
    best = rows[best_per_group(groups, value[rows])]
    chosen = distinct(np.concatenate((best, np.flatnonzero(front)))).astype(np.intp)
    return chosen[np.argsort(value[chosen], kind="stable")]
