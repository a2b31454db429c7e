"""The dollars that weights imply: what one point of a criterion, or a whole lead in judged points, would be paid
for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tonnage.comparison.criteria import HIGHEST, LOWEST, MONEY_CRITERIA, Criterion
from tonnage.comparison.scoring import Scores
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpliedPrice:
    """What a weight says that one point more of a criterion is worth, at a cost of `at_usd_per_month`."""

    criterion: str
    weight: float
    usd_per_month: float
    at_usd_per_month: float


def implied_prices(
    criteria: Sequence[Criterion], weights: Mapping[str, float], usd_per_month: float | None
) -> tuple[ImpliedPrice, ...]:
    """The price of one point of each weighted criterion, dearest first; none where cost has no weight.

    The score of cost falls by `points_per_doubling` p with each doubling, so one point of a criterion of weight w
    offsets
    w / w_cost points of cost, which is a bill 2 ** (w / (w_cost p)) times as high.
    """
    cost = next(one for one in criteria if one.key == "cost")
    scale = weights.get("cost", 0.0) * cost.points_per_doubling
    if scale <= 0 or usd_per_month is None:
        return ()
    found = [
        ImpliedPrice(
            criterion=key,
            weight=weight,
            usd_per_month=usd_per_month * (2 ** (weight / scale) - 1),
            at_usd_per_month=usd_per_month,
        )
        for key, weight in weights.items()
        if weight > 0 and key not in MONEY_CRITERIA
    ]
    return tuple(sorted(found, key=lambda one: (-one.usd_per_month, one.criterion)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpliedLead:
    """What the weights together would have paid a month more for `alternative` than for `other`. None: any price."""

    alternative: str
    other: str
    points: float
    usd_per_month: float | None
    asked_usd_per_month: float


def implied_lead(
    criteria: Sequence[Criterion],
    scores: Scores,
    weights: Mapping[str, float],
    counted: Sequence[str],
    pair: tuple[str, str],
    months: tuple[float, float],
) -> ImpliedLead | None:
    """The price at which the weighted scores of a pair (the judged better first) tie; None where cost has no weight.

    A score of cost ends at 1: a lead of more points than that is one for which the weights would pay any price.
    """
    alternative, other = pair
    cost = next(one for one in criteria if one.key == "cost")
    if weights.get("cost", 0.0) <= 0:
        return None
    keys = [key for key in counted if key not in MONEY_CRITERIA]
    points = sum(weights[key] * (scores[alternative][key].value - scores[other][key].value) for key in keys)
    behind = points / weights["cost"]
    price = None
    if behind <= HIGHEST - LOWEST:
        price = months[1] * (2 ** (behind / cost.points_per_doubling) - 1)
    asked = months[0] - months[1]
    if not math.isfinite(asked):
        return None
    return ImpliedLead(
        alternative=alternative, other=other, points=points, usd_per_month=price, asked_usd_per_month=asked
    )
