"""What would be cheaper than the best, and why it is not the best: the words, and the JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, assert_never

from tonnage.planning.plan import Cheaper, Option, Plan, PriceTrusted, Refusal, RiskAccepted, UnknownAnswered
from tonnage.planning.reasons import risks as kinds
from tonnage.planning.reasons.miss import Unknown
from tonnage.planning.reasons.risks import Doubt
from tonnage.reports.blocks import Block, Paragraph
from tonnage.reports.plain import plain_day, plain_number, plain_usd
from tonnage.reports.wording import render_bought, render_machines, render_money

QUESTIONS: Final[dict[Unknown, str]] = {
    "p95 latency": "what is its p95 latency? Measure it and state buy.token_p95_latency",
    "p95 TTFT": "what is its p95 time to first token? Measure it and state buy.token_p95_ttft",
    "throughput": "how many tokens a minute may the account use? State buy.tokens_per_minute",
    "host memory": "how much memory has its host? Ask the provider",
}


def cheaper_blocks(plan: Plan) -> Iterator[Block]:
    """One line each, below the best; and whether the best itself can be relied on."""
    best = plan.best
    if best is not None and not plan.any_price and not any(option.relied_on for option in plan.options):
        doubts = ", ".join(doubt_words(doubt) for doubt in best.doubts)
        known = " and a host known to keep up" if len(best.doubts) > len(best.price_doubts) else ""
        text = f"No option has a price one can rely on (dated, young, of a data centre){known}. Of the best: {doubts}."
        yield Paragraph(text=text, tone="warning")
    for one in plan.cheaper:
        yield Paragraph(text=cheaper_words(one, plan))


def cheaper_words(one: Cheaper, plan: Plan) -> str:
    """One or two sentences: the answer, its price, what it saves, what to do or ask."""
    month = " a month" if plan.horizon == "month" else ""
    saves = _saved(one.saves_usd, plan.best)

    def priced(who: Option | Refusal, usd: float) -> str:
        return f"{_named(who)}, {render_money(usd)}{month}{saves}"

    match one:
        case RiskAccepted(option=option):
            reaches, room = option.run.memory_gib.high, option.run.memory_available_gib
            memory = f"Its memory may reach {reaches:.1f} of {room:.1f} GiB"
            said = priced(option, option.cost_usd.value)
            return f"With the risk of running out of memory: {said}. {memory}; --accept-risk memory takes it."
        case PriceTrusted(option=option):
            doubts = ", ".join(doubt_words(doubt) for doubt in option.doubts)
            said = priced(option, option.cost_usd.value)
            what = "At a price" if option.price_doubts else "With a host"
            return f"{what} not relied on ({doubts}): {said}. --trust any lets it win."
        case UnknownAnswered(candidate=candidate, unknown=unknown, cost_usd=cost):
            return (
                f"Out only because its {unknown} is not known: {priced(candidate, cost)}. To ask: {QUESTIONS[unknown]}."
            )
        case _:
            assert_never(one)


def _saved(usd: float, best: Option | None) -> str:
    if best is None or best.cost_usd.value <= 0 or usd <= 0:
        return ""
    return f", {100 * usd / best.cost_usd.value:.0f} % less"


def _named(one: Option | Refusal) -> str:
    place = f" in {one.region}" if one.region else ""
    bought = render_bought(one.purchase, one.platform)
    return f"{render_machines(one.count, one.instance_type)} at {one.provider}{place}, {bought}"


def doubt_words(doubt: Doubt) -> str:
    """Two or three words."""
    match doubt:
        case kinds.UndatedPriceRisk(platform=platform):
            return "no date" if platform is None else f"no date of the fee of {platform}"
        case kinds.OldPriceRisk(age_days=age, platform=platform):
            return f"{age} days old" if platform is None else f"fee of {platform} {age} days old"
        case kinds.CommunityHostRisk():
            return "community host"
        case kinds.OddPriceRisk():
            return "odd price"
        case kinds.EstimatedFeeRisk(platform=platform):
            return f"fee of {platform} estimated"
        case kinds.UnknownHostRisk():
            return "vCPUs not stated"
        case kinds.OddPremiumRisk(platform=platform):
            return f"odd price of {platform}"
        case _:
            assert_never(doubt)


def price_words(option: Option) -> str:
    """The day the price was read where one can rely on it, else why not."""
    doubts = option.doubts
    if not doubts:
        return plain_day(option.price_read_on) or "stated here"
    return "? " + ", ".join(doubt_words(doubt) for doubt in doubts)


def cheaper_document(one: Cheaper, plan: Plan) -> dict[str, Any]:
    """As JSON: why it is not the best, who it is, what it costs and saves, in figures and words."""
    if isinstance(one, UnknownAnswered):
        who, why, cost = one.candidate, "unknown", one.cost_usd
    else:
        who, cost = one.option, one.option.cost_usd.value
        doubt = "price not relied on" if one.option.price_doubts else "host not known"
        why = "accepted risk" if isinstance(one, RiskAccepted) else doubt
    return {
        "kind": why,
        "provider": who.provider,
        "instance_type": who.instance_type,
        "region": who.region,
        "count": who.count,
        "purchase": who.purchase,
        "platform": who.platform,
        "cost_usd": plain_usd(cost),
        "saves_usd": plain_number(one.saves_usd),
        "risk": one.risk if isinstance(one, RiskAccepted) else None,
        "unknown": one.unknown if isinstance(one, UnknownAnswered) else None,
        "ask": QUESTIONS[one.unknown] if isinstance(one, UnknownAnswered) else None,
        "text": cheaper_words(one, plan),
    }
