"""A service that runs: what it costs now, beside its plan and beside prices per token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tonnage.reports.blocks import Block, Column, Heading, Page, Pairs, Paragraph, Table
from tonnage.reports.breakeven import api_blocks
from tonnage.reports.breakeven_document import api_document
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, render_money, render_unit_money, short
from tonnage.service.answer import BreakEven
from tonnage.serving.running.record import Ends, PlannedCost, RunningService
from tonnage.values import dataclass

P95: Final = "p95 latency in s"
TTFT: Final = "p95 TTFT in s"
TPOT: Final = "p95 TPOT in s"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceShown:
    """A service, what it said last of its costs (None: nothing yet), and the prices beside them.

    `beside`: prices per token for the requests that it answers; None: `why_no_tokens` says why.
    """

    service: RunningService
    costs: Mapping[str, Any] | None
    beside: BreakEven | None = None
    why_no_tokens: str = ""


def service_report(shown: ServiceShown) -> Report:
    """The terminal's page, and JSON of the same figures."""
    return Report(
        page=lambda: Page(title=f"Service {shown.service.name}", blocks=tuple(_blocks(shown))),
        document=lambda: _document(shown),
        columns=("name", "value"),
        rows=lambda: [[name, value] for name, value in _flat(shown)],
    )


def _blocks(shown: ServiceShown) -> Iterator[Block]:
    service, costs = shown.service, shown.costs or {}
    least, most = service.replicas or (1, 1)
    alive = "runs" if service.is_alive else "its process is gone: `tonnage serve` starts it again"
    yield Pairs(rows=(
        ("state", alive), ("at", service.url), ("engine", service.engine),
        ("replicas", f"{least} to {most}" if service.replicas else "1, without a balancer"),
        ("since", f"{service.started_at:%Y-%m-%d %H:%M:%S} UTC"),
        ("machines held", short(float(costs["machines"]), 4) if costs else UNKNOWN),
        ("a machine's hour", _price(service)),
    ))  # fmt: skip
    if not costs:
        yield Paragraph(text="It has not said yet what it costs: it does every few seconds, once it takes requests.")
        return
    yield Heading(text="Cost")
    yield _spans(costs, service.planned)
    yield from _plan_blocks(service.planned)
    yield from _token_blocks(shown)


def _price(service: RunningService) -> str:
    if service.usd_per_machine_hour is None:
        return "not known, and unknown is not free: --usd-per-hour states it"
    return f"{render_money(service.usd_per_machine_hour)} ({service.price_from})"


def _spans(costs: Mapping[str, Any], planned: PlannedCost | None) -> Table:
    """The last minute, the time since the start and the plan, side by side."""
    now, whole = costs.get("now") or {}, costs.get("since_start") or {}
    lines = (
        ("USD an hour", costs.get("usd_per_hour"), _hourly(whole)),
        ("USD", now.get("usd"), whole.get("usd")),
        ("requests", now.get("requests"), whole.get("requests")),
        (P95, costs.get("p95_s"), None),
        (TTFT, costs.get("ttft_p95_s"), None),
        (TPOT, costs.get("tpot_p95_s"), None),
        ("requests a second", now.get("requests_per_s"), whole.get("requests_per_s")),
        ("USD per 1,000 requests", now.get("usd_per_1000_requests"), whole.get("usd_per_1000_requests")),
        ("USD per million tokens", now.get("usd_per_million_tokens"), whole.get("usd_per_million_tokens")),
        ("input tokens", now.get("input_tokens"), whole.get("input_tokens")),
        ("output tokens", now.get("output_tokens"), whole.get("output_tokens")),
    )
    predicted = {} if planned is None else _predicted(planned)
    shown = [one for one in lines if one[0] not in (TTFT, TPOT) or one[1] is not None or one[0] in predicted]
    beside = (Column(title="the plan, at its busy rate", align="right", wraps=True),) if predicted else ()
    return Table(
        columns=(Column(title=""), Column(title=f"last {now.get('seconds') or 0:.0f} s", align="right"),
                 Column(title="since the start", align="right"), *beside),
        rows=tuple(
            (name, *(UNKNOWN if value is None else short(float(value), 4) for value in values),
             *((predicted.get(name, ""),) if predicted else ()))
            for name, *values in shown
        ),
    )  # fmt: skip


def _predicted(planned: PlannedCost) -> dict[str, str]:
    """What the plan says, with its interval, by the name of a line."""
    known = {
        "USD an hour": None if planned.rate_varies else planned.usd_per_hour(),
        P95: planned.predicted_p95_s, TTFT: planned.predicted_ttft_p95_s,
        TPOT: planned.predicted_tpot_p95_s, "USD per 1,000 requests": planned.usd_per_1000_requests(),
    }  # fmt: skip
    return {name: _spanned(ends) for name, ends in known.items() if ends is not None}


def _hourly(span: Mapping[str, Any]) -> float | None:
    usd, seconds = span.get("usd"), span.get("seconds")
    return None if usd is None or not seconds else float(usd) * 3600.0 / float(seconds)


def _plan_blocks(planned: PlannedCost | None) -> Iterator[Block]:
    if planned is None:
        return
    yield Heading(text="The plan")
    yield Pairs(rows=(
        ("machines", f"{planned.machines} x {planned.instance_type} at {planned.provider}, rank {planned.rank}"),
        ("a month", f"{render_money(planned.usd_per_month)} "
                    f"({render_money(planned.low_usd_per_month)} to {render_money(planned.high_usd_per_month)})"),
    ))  # fmt: skip


def _spanned(ends: tuple[float, float, float]) -> str:
    value, low, high = (short(one, 4) for one in ends)
    return f"{value} ({low} to {high})"


def _token_blocks(shown: ServiceShown) -> Iterator[Block]:
    if shown.beside is not None:
        yield from api_blocks(shown.beside)
        cheapest = min(shown.beside.apis, key=lambda one: one.usd_per_1000_requests)
        here = ((shown.costs or {}).get("now") or {}).get("usd_per_1000_requests")
        own = "nothing is asked here" if here is None else f"{render_unit_money(here)} here"
        theirs = f"{render_unit_money(cheapest.usd_per_1000_requests)} at {cheapest.name}"
        yield Paragraph(text=f"1,000 requests now: {own}, {theirs}.")
        return
    yield Heading(text="Beside prices per token")
    yield Paragraph(text=shown.why_no_tokens, tone="faint")


def _document(shown: ServiceShown) -> dict[str, Any]:
    service, planned = shown.service, shown.service.planned
    found: dict[str, Any] = {
        "schema": "tonnage/service-costs@1",
        "name": service.name,
        "alive": service.is_alive,
        "url": service.url,
        "engine": service.engine,
        "pid": service.pid,
        "started_at": service.started_at.isoformat(),
        "replicas": list(service.replicas) if service.replicas else None,
        "usd_per_machine_hour": service.usd_per_machine_hour,
        "price_from": service.price_from or None,
        "costs": None if shown.costs is None else dict(shown.costs),
        "planned": None,
        "apis": None,
        "why_no_apis": shown.why_no_tokens or None,
    }
    if planned is not None:
        value, low, high = planned.usd_per_1000_requests()
        found["planned"] = {
            "rank": planned.rank, "provider": planned.provider, "instance_type": planned.instance_type,
            "machines": planned.machines,
            "usd_per_month": {"value": planned.usd_per_month, "low": planned.low_usd_per_month,
                              "high": planned.high_usd_per_month},
            "usd_per_1000_requests": {"value": value, "low": low, "high": high},
            "p95_latency_s": _named_ends(planned.predicted_p95_s),
            "p95_ttft_s": _named_ends(planned.predicted_ttft_p95_s),
            "p95_tpot_s": _named_ends(planned.predicted_tpot_p95_s),
        }  # fmt: skip
    if shown.beside is not None:
        found["apis"] = [api_document(shown.beside, one) for one in shown.beside.apis]
    return found


def _named_ends(ends: Ends | None) -> dict[str, float] | None:
    return None if ends is None else dict(zip(("value", "low", "high"), ends, strict=True))


def _flat(shown: ServiceShown) -> Iterator[tuple[str, Any]]:
    costs = shown.costs or {}
    yield "usd_per_hour", costs.get("usd_per_hour")
    for span in ("now", "since_start"):
        yield from ((f"{span}.{name}", value) for name, value in (costs.get(span) or {}).items())


def ended_report(service: RunningService) -> Report:
    """The message once a service was asked to end."""
    state = "still answers" if service.is_alive else "ended"
    return Report(
        page=lambda: Page(title="Ended", blocks=(Paragraph(text=f"The service {service.name} {state}."),)),
        document=lambda: {"schema": "tonnage/service-ended@1", "name": service.name, "alive": service.is_alive},
        columns=("name", "state"),
        rows=lambda: [[service.name, state]],
    )
