"""From which volume one alternative costs less than another: closed form for lines, else on the stairs of planned
fleets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Literal

import numpy as np

from tonnage.comparison.computed import ZERO, Total, WorkRow
from tonnage.service.crossings import find_crossings
from tonnage.values import dataclass

End = Literal["value", "low", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostCrossing:
    """Volumes, as factors of the stated one, where the cheaper of two alternatives changes. None: not at all.

    `low` and `high`: the crossings with one side's cost at its low end and the other's at its high end, so as wide as
    it gets; None: there is no crossing at that end.
    """

    first: str
    second: str
    factor: float | None
    low: float | None
    high: float | None
    cheaper_above: str
    method: Literal["closed form", "planned anew"]
    work: str = ""  # one workload by itself, people not counted; "": all the work, people included


def break_evens(totals: Sequence[Total]) -> tuple[CostCrossing, ...]:
    """Every pair of alternatives that can do all the work; then, where there are several workloads, each by itself."""
    out = [_pair(first, second) for first, second in combinations([one for one in totals if one.can_do], 2)]
    works = [row.work for row in totals[0].rows]
    for place, work in enumerate(works if len(works) > 1 else ()):
        alone = [of_work(one, place) for one in totals if one.rows[place].option is not None]
        out += [replace(_pair(first, second), work=work) for first, second in combinations(alone, 2)]
    return tuple(out)


def of_work(total: Total, place: int) -> Total:
    """One workload of an alternative by itself, people not counted."""
    row = total.rows[place]
    return replace(total, rows=(row,), run_usd_per_month=row.usd_per_month, people_usd_per_month=None)


def _pair(first: Total, second: Total) -> CostCrossing:
    linear = not any(row.is_service for row in first.rows)
    find = _linear_crossing if linear else _planned_crossing
    factor = find(first, second, "value", "value")
    ends = [find(first, second, "low", "high"), find(first, second, "high", "low")]
    known = [end for end in (*ends, factor) if end is not None]
    large = 1e6 if linear else max(one.factor for one in first.rows[0].at_volumes)
    return CostCrossing(
        first=first.alternative,
        second=second.alternative,
        factor=factor,
        low=min(known) if factor is not None and None not in ends else None,
        high=max(known) if factor is not None and None not in ends else None,
        cheaper_above=first.alternative if cost_at(first, large) <= cost_at(second, large) else second.alternative,
        method="closed form" if linear else "planned anew",
    )


def cost_at(total: Total, factor: float, end: End = "value") -> float:
    """Run cost a month at a volume, people included; between planned volumes planned again where that can matter.

    Infinite where nothing can do that volume.
    """
    people = getattr(total.people_usd_per_month or ZERO, end)
    return float(people) + sum(_row_cost(row, factor, end) for row in total.rows)


def _row_cost(row: WorkRow, factor: float, end: End) -> float:
    if not row.is_service:
        figure = row.usd_per_month
        return float(getattr(figure, end)) * factor if figure else math.inf
    points = [(one.factor, one.usd_per_month) for one in row.at_volumes]
    below = max((point for point in points if point[0] <= factor * (1 + 1e-12)), default=None, key=lambda one: one[0])
    above = min((point for point in points if point[0] >= factor * (1 - 1e-12)), default=None, key=lambda one: one[0])
    if below is None or above is None or (below[1] is None and above[1] is None):
        return math.inf
    if below[1] is None or above[1] is None:  # what can be carried ends somewhere between
        return _planned(row, factor, end)
    at_left, at_right = float(getattr(below[1], end)), float(getattr(above[1], end))
    if at_left == at_right:
        return at_left  # a fleet does not shrink as its load grows: no stair in between
    if math.isclose(at_left * above[0], at_right * below[0], rel_tol=1e-6):
        return at_left * factor / below[0]  # tokens: so much each
    return _planned(row, factor, end)


def _planned(row: WorkRow, factor: float, end: End) -> float:
    """What the service costs at so many times its volume, planned there; infinite where nothing carries it."""
    found = row.replan(factor) if row.replan is not None else None
    return float(getattr(found, end)) if found is not None else math.inf


def _linear_crossing(first: Total, second: Total, first_end: End, second_end: End) -> float | None:
    """(F2 - F1) / (c1 - c2), where that is above 0: F the people a month, c the run cost at the stated volume."""
    people = [float(getattr(one.people_usd_per_month or ZERO, end)) for one, end in
              ((first, first_end), (second, second_end))]  # fmt: skip
    slope = [cost_at(first, 1.0, first_end) - people[0], cost_at(second, 1.0, second_end) - people[1]]
    if slope[0] == slope[1]:
        return None
    factor = (people[1] - people[0]) / (slope[0] - slope[1])
    return factor if factor > 0 else None


def _planned_crossing(first: Total, second: Total, first_end: End, second_end: End) -> float | None:
    """The first change of sign between volumes that both can carry, found on the stairs of the fleets themselves."""

    def one(factor: float) -> float:
        return cost_at(first, factor, first_end)

    def other(factor: float) -> float:
        return cost_at(second, factor, second_end)

    grid = sorted({one.factor for total in (first, second) for row in total.rows for one in row.at_volumes})
    carried = [factor for factor in grid if math.isfinite(one(factor)) and math.isfinite(other(factor))]
    for left, right in pairwise(carried):
        found = find_crossings(one, other, np.array([left, right]))
        if found:
            return found[0][0]
    return None
