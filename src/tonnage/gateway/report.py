"""Gateways, explanations and spending as reports: one list of fields for terminal, JSON, CSV and pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tonnage.gateway.explaining import Budgeted, Explained, RuleMet
from tonnage.gateway.file.described import Deployment, Gateway, Route
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.rates import PICO_PER_USD, usd_text
from tonnage.gateway.status import AllowanceState, forecast_document
from tonnage.gateway.top.report import forecast_words
from tonnage.reports.blocks import Block, Column, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.listing import Field, Fields, field_table, field_values, fields_report
from tonnage.reports.rendering import Report
from tonnage.reports.wording import short
from tonnage.values import dataclass

_WHY_NOT: Final = {
    "dialect": "cannot be asked so", "resting": "rests after failures", "quality": "below the route's quality",
    "region": "computes elsewhere", "tried": "was tried",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NameSpend:
    """What one name has spent since a moment."""

    name: str
    attempts: int
    input_tokens: int
    output_tokens: int
    usd_pico: int
    estimated_usd_pico: int


_ACTS: Final = {"refuse": "refused", "redact": "taken out", "report": "counted"}


def _thousands(found: int) -> str:
    return f"{found:,}"


def _dollars(pico: int) -> str:
    return short(pico / PICO_PER_USD, 6)


def _per_million(pico: int) -> float:
    return pico * 1e6 / PICO_PER_USD


def _token_price(one: Deployment, pico: int) -> float | None:
    """None: it sells images or audio alone."""
    return _per_million(pico) if "chat" in one.surfaces or "messages" in one.surfaces else None


DEPLOYMENTS: Final[Fields[Deployment]] = (
    Field("name", lambda one: one.name, title="deployment"),
    Field("model", lambda one: one.model, title="model"),
    Field("dialect", lambda one: one.dialect, title="speaks"),
    Field("own", lambda one: one.own, title="own", show=lambda own: "own" if own else "tokens"),
    Field("input_usd_per_million", lambda one: _token_price(one, one.rates.tiers[0].input_pico), title="USD/M in",
          right=True),
    Field("output_usd_per_million", lambda one: _token_price(one, one.rates.tiers[0].output_pico), title="USD/M out",
          right=True),
    Field("price_source", lambda one: one.rates.source, title="price from", wraps=True),
    Field("price_read_on", lambda one: one.rates.read_on, title="read on"),
    Field("at_once", lambda one: one.at_once, title="at once", right=True),
    Field("quality", lambda one: None if one.quality is None else one.quality.value, right=True),
    Field("quality_metric", lambda one: None if one.quality is None else one.quality.metric),
    Field("quality_samples", lambda one: None if one.quality is None else one.quality.samples),
)  # fmt: skip
ROUTES: Final[Fields[Route]] = (
    Field("name", lambda one: one.name, title="route"),
    Field("policy", lambda one: one.policy, title="policy"),
    Field("deployments", lambda one: one.deployments, title="deployments", show=", ".join),
    Field("fallback", lambda one: one.fallback, title="then", show=lambda name: name or ""),
)
SPENT: Final[Fields[NameSpend]] = (
    Field("name", lambda one: one.name, title="name"),
    Field("attempts", lambda one: one.attempts, title="attempts", right=True),
    Field("input_tokens", lambda one: one.input_tokens, title="input tokens", right=True, show=_thousands),
    Field("output_tokens", lambda one: one.output_tokens, title="output tokens", right=True, show=_thousands),
    Field("usd", lambda one: one.usd_pico, title="USD", right=True, json=usd_text, show=_dollars),
    Field("estimated_usd", lambda one: one.estimated_usd_pico, title="of it estimated", right=True, json=usd_text,
          show=_dollars),
)  # fmt: skip


def _forecast(one: AllowanceState, name: str) -> Any:
    document = forecast_document(one.forecast)
    return None if document is None else document[name]


BUDGETS: Final[Fields[AllowanceState]] = (
    Field("budget", lambda one: one.allowance.words, title="budget", wraps=True),
    Field("hard", lambda one: one.allowance.hard, title="kind", show=lambda hard: "hard" if hard else "soft"),
    Field("cap_usd", lambda one: usd_text(one.allowance.cap)),
    Field("spent_usd", lambda one: one.taken, title="spent USD", right=True, json=usd_text, show=_dollars),
    Field("left_usd", lambda one: max(one.allowance.cap - one.taken, 0), title="left", right=True, json=usd_text,
          show=_dollars),
    Field("usd_per_hour", lambda one: _forecast(one, "usd_per_hour"), title="USD/h", right=True,
          show=lambda rate: "not known yet" if rate is None else short(rate, 4)),
    Field("measured_s", lambda one: _forecast(one, "measured_s")),
    Field("reached_in_s", lambda one: _forecast(one, "reached_in_s")),
    Field("share_at_end", lambda one: _forecast(one, "share_at_end")),
    Field("warns", lambda one: _forecast(one, "warns")),
    Field("", lambda one: forecast_words(forecast_document(one.forecast)), title="at this rate"),
)  # fmt: skip


def gateway_report(gateway: Gateway) -> Report:
    """A gateway file as it is understood."""
    deployments, routes = tuple(gateway.deployments.values()), tuple(gateway.routes.values())
    allowances = tuple((str(index + 1), one.words) for index, one in enumerate(gateway.allowances))
    blocks = (
        Heading(text="Deployments"), field_table(DEPLOYMENTS, deployments), Heading(text="Routes"),
        field_table(ROUTES, routes), Heading(text="Allowances"), Pairs(rows=allowances),
    )  # fmt: skip
    return fields_report(
        lambda: Page(title="Gateway", blocks=blocks),
        lambda: {
            "schema": "tonnage/gateway@1",
            "deployments": [field_values(DEPLOYMENTS, one) for one in deployments],
            "routes": [field_values(ROUTES, one) for one in routes],
            "allowances": [_allowance(one) for one in gateway.allowances],
            "keys": [{"name": one.name, "team": one.team, "project": one.project} for one in gateway.callers.values()],
        },
        DEPLOYMENTS,
        deployments,
    )


def spent_report(by: str, found: Sequence[NameSpend], since: str) -> Report:
    """Spending by a column of the ledger."""
    return fields_report(
        lambda: Page(title=f"Spent since {since}, by {by}", blocks=(
            field_table(SPENT, found) if found else Paragraph(text="Nothing was spent since then.", tone="faint"),
        )),
        lambda: {"schema": "tonnage/gateway-spend@1", "by": by, "since": since,
                 "spent": [field_values(SPENT, one) for one in found]},
        SPENT, found,
    )  # fmt: skip


def budgets_report(found: Sequence[AllowanceState]) -> Report:
    """Budgets in their present windows."""
    return fields_report(
        lambda: Page(title="Budgets", blocks=(field_table(BUDGETS, found),)),
        lambda: {"schema": "tonnage/gateway-budgets@1", "budgets": [field_values(BUDGETS, one) for one in found]},
        BUDGETS,
        found,
    )


def explained_report(found: Explained) -> Report:
    """What would happen to a request, and why."""
    return Report(
        page=lambda: Page(title=f"A request to {found.route.name}", blocks=tuple(_explained_blocks(found))),
        document=lambda: _explained_document(found),
        columns=("deployment", "place", "why_not", "expected_usd", "held_usd"),
        rows=lambda: [
            [
                one.name,
                _place(found, one.name),
                one.why_not,
                usd_text(one.usd_pico),
                usd_text(found.held_pico[one.name]),
            ]
            for one in found.candidates
        ],
    )


def _explained_blocks(found: Explained) -> Iterator[Block]:
    yield Pairs(rows=(
        ("policy", found.route.policy), ("caller", f"{found.caller.name}, team {found.caller.team}"),
        ("input", f"about {found.input_tokens_estimate} tokens, at most {found.most_input_tokens}"),
        ("kept", _kept(found)), ("after these", ", ".join(found.fallbacks) or "no other route"),
        *_conduct(found),
    ))  # fmt: skip
    columns = ("", "deployment", "expected USD", "held USD", "first byte s", "answer s", "why not")
    rows = []
    for one in sorted(found.candidates, key=lambda one: _place(found, one.name) or 99):
        first, answer = ("-" if it is None else short(it, 3) for it in (one.first_byte_s, one.answer_s))
        place = _place(found, one.name)
        rows.append((
            "" if place is None else str(place), one.name, usd_text(one.usd_pico), usd_text(found.held_pico[one.name]),
            first, answer, "" if one.why_not is None else _WHY_NOT[one.why_not],
        ))  # fmt: skip
    yield Table(columns=tuple(Column(title=one) for one in columns), rows=tuple(rows))
    if found.budgets:
        yield Heading(text="Taken from")
        yield Pairs(rows=tuple((one.allowance.words, _taken(one)) for one in found.budgets))


def _rule(one: RuleMet) -> str:
    said = f"to {', '.join(one.deployments)}: " + ("taken" if one.taken else "holds" if one.holds else "does not hold")
    if one.classifier is None:
        return said
    took = "" if one.adds_s is None else f", {short(one.adds_s * 1000, 3)} ms"
    if one.supposed:
        return f"{said}; {one.classifier} is supposed to say {', '.join(one.supposed)}{took}"
    return f"{said}; {one.classifier} is asked when it is sent{took}: suppose with --label {one.classifier}=LABEL"


def _rule_document(one: RuleMet) -> dict[str, Any]:
    return {"conditions": one.conditions, "deployments": list(one.deployments), "holds": one.holds, "taken": one.taken,
            "classifier": one.classifier, "supposed": list(one.supposed), "adds_s": one.adds_s}  # fmt: skip


def _kept(found: Explained) -> str:
    if not found.cached:
        return "its answer is not kept"
    return "its answer is kept and given again" + (", to questions that mean the same too" if found.compared else "")


def _conduct(found: Explained) -> Iterator[tuple[str, str]]:
    """What may happen to it beside the deployments in their order."""
    route = found.route
    if found.language is not None:
        yield "language", found.language
    for number, rule in enumerate(found.rules, start=1):
        yield f"rule {number}, {rule.conditions}", _rule(rule)
    for one in found.checks:
        if one.found is None:
            said = f"asks {one.rule.deployment} when it is sent, then may {one.rule.act}"
        else:
            said = "finds nothing" if not one.found else f"finds {', '.join(one.found)}: {_ACTS[one.rule.act]}"
        yield f"check {one.rule.name}", said
    if found.queue is not None:
        yield "full limits", f"waits up to {found.queue.longest:g} s in a line of {found.queue.places} places"
    if route.canary is not None:
        yield "canary", f"{route.canary.percent:g} % of conversations try {route.canary.deployment} first"
    if route.hedge is not None:
        after = "the 95th percentile of first bytes" if route.hedge.after is None else f"{route.hedge.after:g} s"
        yield "hedge", f"a second deployment is asked after {after}, for {route.hedge.share_percent:g} % at most"
    if route.shadow is not None:
        yield (
            "shadow",
            f"{route.shadow.percent:g} % are asked of {route.shadow.deployment} too; its answers are dropped",
        )


def _conduct_document(found: Explained) -> dict[str, Any]:
    route = found.route
    return {
        "checks": [
            {"name": one.rule.name, "detect": one.rule.detect, "act": one.rule.act, "deployment": one.rule.deployment,
             "found": None if one.found is None else list(one.found), "refuses": one.refuses}
            for one in found.checks
        ],
        "queue": None if found.queue is None else {"places": found.queue.places, "longest_s": found.queue.longest},
        "canary": None if route.canary is None else {"deployment": route.canary.deployment,
                                                     "percent": route.canary.percent},
        "hedge": None if route.hedge is None else {"after_s": route.hedge.after,
                                                   "share_percent": route.hedge.share_percent},
        "shadow": None if route.shadow is None else {"deployment": route.shadow.deployment,
                                                     "percent": route.shadow.percent},
    }  # fmt: skip


def _taken(one: Budgeted) -> str:
    taken, needs = _amount(one.allowance, one.taken), _amount(one.allowance, one.needs)
    return f"{taken} taken, needs {needs}" + (": refused" if one.refuses else "")


def _explained_document(found: Explained) -> dict[str, Any]:
    return {
        "schema": "tonnage/gateway-explanation@1", "route": found.route.name, "policy": found.route.policy,
        "caller": found.caller.name, "input_tokens_estimate": found.input_tokens_estimate,
        "input_tokens_at_most": found.most_input_tokens, "answer_is_kept": found.cached,
        "questions_are_compared": found.compared, "language": found.language,
        "rules": [_rule_document(one) for one in found.rules], **_conduct_document(found),
        "order": list(found.order), "fallbacks": list(found.fallbacks),
        "candidates": [
            {"deployment": one.name, "place": _place(found, one.name), "why_not": one.why_not,
             "expected_usd": usd_text(one.usd_pico), "held_usd": usd_text(found.held_pico[one.name]),
             "first_byte_s": one.first_byte_s, "answer_s": one.answer_s}
            for one in found.candidates
        ],
        "allowances": [{**_allowance(one.allowance), "taken": one.taken, "needs": one.needs, "refuses": one.refuses}
                       for one in found.budgets],
    }  # fmt: skip


def _place(found: Explained, name: str) -> int | None:
    return found.order.index(name) + 1 if name in found.order else None


def _amount(allowance: Allowance, amount: int) -> str:
    return f"{usd_text(amount)} USD" if allowance.unit == "usd" else str(amount)


def _allowance(one: Allowance) -> dict[str, Any]:
    cap = {"cap_usd": usd_text(one.cap)} if one.unit == "usd" else {"cap": one.cap}
    said = {"id": one.id, "scope": one.scope, "name": one.name, "unit": one.unit, "window": one.window}
    return {**said, "hard": one.hard, **cap}
