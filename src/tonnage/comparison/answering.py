"""The one answer to a compare file, what would change it, and the verdicts for other sizes and horizons."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from tonnage.comparison.changes import AnswerChange, changes_of, people_share, without_people
from tonnage.comparison.compliance import ComplianceStanding
from tonnage.comparison.computed import Total
from tonnage.comparison.criteria import HIGHEST, LOWEST, MONEY_CRITERIA, Criterion
from tonnage.comparison.decision import Decision
from tonnage.comparison.facts import has_tag, is_managed
from tonnage.comparison.horizons import Bill, EntryCost
from tonnage.comparison.reaching import WhyNot
from tonnage.comparison.reasons import ChoiceReason, reasons_of
from tonnage.comparison.request import HORIZONS, CompareRequest
from tonnage.comparison.scoring import Scored, Scores
from tonnage.comparison.sizes import Size, load_sizes
from tonnage.comparison.verdict import DecisionInputs, Preference, Verdict, decide_verdict
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonAdvice:
    """The verdict for one size of organisation and one horizon."""

    size: Size
    horizon: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesEffect:
    """What the rule set did to the answer. `named`: the alternatives that its leaf means, none where it names no one
    of those compared; "overruled": the answer is another, since a leaf that is no must-have counts only among
    alternatives that cost alike."""

    kind: Literal["undecided", "names none", "agrees", "overruled"]
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonAnswer:
    """The one answer, for the user's own size and the horizon decided over; and what would change it. Every section
    that recommends reads this value."""

    verdict: Verdict
    rules: RulesEffect
    inputs: DecisionInputs
    reasons: tuple[ChoiceReason, ...]
    changes: tuple[AnswerChange, ...]
    without_people: str | None  # the answer without people's hours
    people_share: float | None  # of people-hours in what the choice costs over the horizon
    implied: tuple[ImpliedPrice, ...]  # what the weights say that a point of each criterion is worth
    implied_lead: ImpliedLead | None  # where the weighted score would take another: what it would pay for that

    @property
    def choice(self) -> str | None:
        return self.verdict.choice

    @property
    def people_decide(self) -> bool:
        """Whether people-hours, which are judged, make the answer."""
        return self.without_people != self.choice


def preference_of(decision: Decision, request: CompareRequest) -> Preference:
    """What the leaf says of the alternatives: by name or profile, or managed, without-api; cheapest, only and score say
    nothing beyond the verdict's own order."""
    leaf = decision.leaf
    if leaf is None or leaf.choose in (None, "cheapest", "only", "score"):
        return Preference()
    names = [alternative.name for alternative in request.alternatives]
    if leaf.choose == "managed":
        found = [name for name in names if is_managed(request, name)]
    elif leaf.choose == "without-api":
        found = [name for name in names if not has_tag(request, name, "token-api")]
    else:
        found = [one.name for one in request.alternatives if leaf.choose in (one.name, one.profile.name)]
    return Preference(leaf=leaf.name, alternatives=tuple(found), must=leaf.must)


def inputs_of(
    request: CompareRequest,
    totals: Mapping[str, Total],
    entries: Mapping[str, EntryCost],
    standing: ComplianceStanding,
    scores: Scores,
    preference: Preference,
) -> DecisionInputs:
    """What the verdict is reached from, for the user's own size and the horizon decided over."""
    lacking: dict[str, tuple[str, WhyNot]] = {}
    instead: dict[str, tuple[str, str]] = {}
    for name, total in totals.items():
        row = next((row for row in total.rows if row.option is None), None)
        if row is not None and row.why_not is not None:
            lacking[name] = (row.work, row.why_not)
        for row in total.rows:
            if row.instead is not None:
                instead.setdefault(name, (row.work, row.instead.say))
    size = load_sizes().of(request.organisation.employees)
    return DecisionInputs(
        bills={
            name: Bill(run=total.run_usd_per_month, people=total.people_usd_per_month, entry=entries[name])
            for name, total in totals.items()
        },
        lacking=lacking,
        instead=instead,
        standing=standing,
        preference=preference,
        scores=scores,
        weights=_sized(request, size),
        worth=request.worth,
        origin=request.move.origin if request.move is not None else None,
        weeks=request.horizon_weeks[request.decide_over],
    )


def _sized(request: CompareRequest, size: Size | None) -> dict[str, float]:
    factors = {} if size is None else size.factors
    return {key: weight * factors.get(key, 1.0) for key, weight in request.weights.items()}


def answer_of(
    inputs: DecisionInputs,
    request: CompareRequest,
    totals: Mapping[str, Total],
    criteria: Sequence[Criterion],
    ranking: Sequence[Scored],
    counted: Sequence[str],
    decision: Decision,
) -> ComparisonAnswer:
    """The verdict of `inputs`, its reasons, and what would change it."""
    verdict = decide_verdict(inputs)
    months = {name: cost.value for name, total in totals.items() if (cost := total.usd_per_month) is not None}
    lead = None
    best = ranking[0].alternative if ranking else None
    if verdict.choice is not None and best in months and best != verdict.choice:
        pair = (best, verdict.choice)
        lead = implied_lead(
            criteria, inputs.scores, request.weights, counted, pair, (months[best], months[verdict.choice])
        )
    bare, share = without_people(inputs), None if verdict.choice is None else people_share(inputs, verdict.choice)
    return ComparisonAnswer(
        verdict=verdict,
        rules=_rules_effect(decision, inputs.preference, verdict.choice),
        inputs=inputs,
        reasons=reasons_of(inputs, verdict, bare, share),
        changes=changes_of(inputs, verdict, totals),
        without_people=bare,
        people_share=share,
        implied=implied_prices(criteria, request.weights, months.get(verdict.choice or "")),
        implied_lead=lead,
    )


def _rules_effect(decision: Decision, preference: Preference, choice: str | None) -> RulesEffect:
    named = preference.alternatives or ()
    if decision.leaf is None:
        return RulesEffect(kind="undecided")
    if not named:
        return RulesEffect(kind="names none")
    return RulesEffect(kind="agrees" if choice in named else "overruled", named=named)


def advise(inputs: DecisionInputs, request: CompareRequest) -> tuple[HorizonAdvice, ...]:
    """The verdict of each size and horizon."""
    return tuple(
        HorizonAdvice(
            size=size,
            horizon=name,
            verdict=decide_verdict(replace(inputs, weights=_sized(request, size), weeks=request.horizon_weeks[name])),
        )
        for size in load_sizes().sizes
        for name in HORIZONS
    )


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
