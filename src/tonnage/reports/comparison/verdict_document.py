"""The answer as JSON: choice, cost, reasons, contenders, what is out and what would change it, as numbers."""

from __future__ import annotations

from typing import Any

from tonnage.comparison.answering import ComparisonAnswer, HorizonAdvice
from tonnage.comparison.comparing import Comparison
from tonnage.comparison.verdict import Verdict
from tonnage.reports.plain import plain_cost, plain_number
from tonnage.reports.reasons.why_not import why_not_document, why_not_words
from tonnage.sizing.estimates import Figure


def answer_document(comparison: Comparison) -> dict[str, Any]:
    """The one answer."""
    answer = comparison.answer
    return _verdict(answer.verdict) | {
        "horizon": comparison.request.decide_over,
        "people_share": plain_number(answer.people_share),
        "without_people": answer.without_people,
        "reasons": [
            {
                "kind": one.kind,
                "rival": one.rival,
                "usd": _money(one.usd),
                "rival_usd": _money(one.rival_usd),
                "weeks": plain_number(one.weeks),
                "leads": {key: plain_number(points) for key, points in one.leads},
                "people_share": plain_number(one.share),
                "rules": list(one.rules),
            }
            for one in answer.reasons
        ],
        "would_change": [
            {
                "kind": one.kind,
                "subject": one.subject or None,
                "now": plain_number(one.now),
                "at": plain_number(one.at),
                "unit": one.unit,
                "then": one.then,
            }
            for one in answer.changes
        ],
        "weights_imply": _implied(answer),
    }


def _implied(answer: ComparisonAnswer) -> dict[str, Any]:
    lead = answer.implied_lead
    return {
        "usd_per_month_per_point": {one.criterion: plain_number(one.usd_per_month) for one in answer.implied},
        "lead": None
        if lead is None
        else {
            "thing": lead.alternative,
            "over": lead.other,
            "usd_per_month": plain_number(lead.usd_per_month),
            "asked_usd_per_month": plain_number(lead.asked_usd_per_month),
        },
    }


def advice_document(advice: HorizonAdvice) -> dict[str, Any]:
    """The verdict of one size and horizon."""
    return {"organisation": advice.size.name, "horizon": advice.horizon} | _verdict(advice.verdict)


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "choice": verdict.choice,
        "ground": verdict.ground,
        "weeks": plain_number(verdict.weeks),
        "cost_usd": _money(verdict.chosen.usd if verdict.chosen else None),
        "contenders": [
            {
                "thing": one.alternative,
                "cost_usd": _money(one.usd),
                "cost_less_worth_usd": _money(one.net_usd),
                "level_with_cheapest": one.level,
                "judged_score": plain_number(one.score),
            }
            for one in verdict.contenders
        ],
        "out": [
            {
                "thing": one.alternative,
                "kind": one.kind,
                "cost_usd": _money(one.usd),
                "work": one.work or None,
                "why": why_not_words(one.why) or one.model or one.leaf or None,
                "why_value": None if one.why is None else why_not_document(one.why),
                "rules": [match.standard for match in one.rules],
                "weeks": plain_number(one.weeks),
            }
            for one in verdict.out
        ],
    }


def _money(figure: Figure | None) -> dict[str, Any] | None:
    return None if figure is None else plain_cost(figure)
