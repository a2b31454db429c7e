"""`Top` as a report: one list of fields for the terminal and for JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.gateway.money.rates import PICO_PER_USD, usd_text
from tonnage.gateway.top.rates import BudgetLeft, Top, TopRow
from tonnage.reports.blocks import Block, Heading, Page, Paragraph
from tonnage.reports.listing import Field, Fields, field_rows, field_table, field_values
from tonnage.reports.rendering import Report
from tonnage.reports.wording import render_duration, short

_UNKNOWN: Final = "-"
SORTS: Final[dict[str, Callable[[TopRow], Any]]] = {
    "requests": lambda one: -one.requests_per_s,
    "in-flight": lambda one: -one.in_flight,
    "p95": lambda one: -(one.first_byte_p95_s or 0.0),
    "tokens": lambda one: -one.output_tokens_per_s,
    "usd": lambda one: -one.usd_per_hour,
    "name": lambda one: one.name,
}


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else short(value, 3)


def _milliseconds(value: float | None) -> str:
    return _UNKNOWN if value is None else short(value * 1000.0, 3)


def _percent(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{100 * value:.0f} %"


_RATES: Final[Fields[TopRow]] = (
    Field("requests_per_s", lambda one: one.requests_per_s, title="req/s", right=True, show=_number),
    Field("in_flight", lambda one: one.in_flight, title="in flight", right=True),
    Field("first_byte_p50_s", lambda one: one.first_byte_p50_s, title="TTFT p50 ms", right=True, show=_milliseconds),
    Field("first_byte_p95_s", lambda one: one.first_byte_p95_s, title="p95 ms", right=True, show=_milliseconds),
    Field("output_tokens_per_s", lambda one: one.output_tokens_per_s, title="tokens/s", right=True, show=_number),
    Field("usd_per_hour", lambda one: one.usd_per_hour, title="USD/h", right=True, show=_number),
)  # fmt: skip
_CIRCUIT: Final = Field[TopRow]("circuit", lambda one: one.circuit, title="circuit")
_PAYS: Final = Field[TopRow]("pays", lambda one: one.pays, title="pays", right=True, show=_percent)
_HITS: Final = Field[TopRow](
    "cache_hit_share", lambda one: one.cache_hit_share, title="cache hits", right=True, show=_percent
)


def _named(title: str) -> Field[TopRow]:
    return Field("name", lambda one: one.name, title=title)


DEPLOYMENTS: Final[Fields[TopRow]] = (_named("deployment"), *_RATES, _CIRCUIT, _PAYS)
ROUTES: Final[Fields[TopRow]] = (_named("route"), *_RATES, _HITS)
KEYS: Final[Fields[TopRow]] = (_named("key"), *_RATES[:2], *_RATES[4:])


def forecast_words(found: Mapping[str, Any] | None) -> str:
    """When a budget is reached, or how much of it is expected to be spent; a warning is marked."""
    if found is None:
        return _UNKNOWN
    mark = "! " if found["warns"] else ""
    reached_in_s = found["reached_in_s"]
    if reached_in_s is None:
        return f"{mark}{_percent(found['share_at_end'])} at its end"
    return f"{mark}reached" if reached_in_s == 0 else f"{mark}reached in {render_duration(reached_in_s)}"


def _amount(one: BudgetLeft, amount: int) -> str:
    return f"{short(amount / PICO_PER_USD, 4)} USD" if one.unit == "usd" else f"{amount:,}"


def _exact(one: BudgetLeft, amount: int) -> str | int:
    return usd_text(amount) if one.unit == "usd" else amount


BUDGETS: Final[Fields[BudgetLeft]] = (
    Field("allowance", lambda one: one.words, title="allowance", wraps=True),
    Field("unit", lambda one: one.unit),
    Field("cap", lambda one: _exact(one, one.cap)),
    Field("taken", lambda one: _exact(one, one.taken)),
    Field("left", lambda one: _exact(one, one.left)),
    Field("", lambda one: _amount(one, one.left), title="left", right=True),
    Field("", lambda one: _percent(one.left / one.cap), title="of it", right=True),
    Field("forecast", lambda one: one.forecast, title="at this rate", show=forecast_words),
)  # fmt: skip


def check_sort(sort: str) -> None:
    """InputError for an unknown name."""
    if sort not in SORTS:
        raise InputError(f"nothing is sorted by '{sort}'", hint=f"one of {', '.join(SORTS)}")


def top_report(found: Top, sort: str) -> Report:
    """Tables of deployments, routes, keys and budgets, by one of `SORTS`."""
    deployments, routes, keys = (
        sorted(rows, key=SORTS[sort]) for rows in (found.deployments, found.routes, found.keys)
    )
    return Report(
        page=lambda: Page(title=_title(found), blocks=tuple(_blocks(found, deployments, routes, keys))),
        document=lambda: {
            "schema": "tonnage/gateway-top@1", "seconds": round(found.seconds, 3), "workers": found.workers,
            "waiting": found.waiting,
            "deployments": [field_values(DEPLOYMENTS, one) for one in deployments],
            "routes": [field_values(ROUTES, one) for one in routes], "keys": [field_values(KEYS, one) for one in keys],
            "allowances": [field_values(BUDGETS, one) for one in found.budgets], "accounts": found.accounts or "ok",
        },
        columns=tuple(one.key for one in DEPLOYMENTS),
        rows=lambda: field_rows(DEPLOYMENTS, deployments),
    )  # fmt: skip


def _title(found: Top) -> str:
    workers = "1 worker" if found.workers == 1 else f"{found.workers} workers"
    return f"Gateway, {workers}, {found.waiting:,} waiting, the last {short(found.seconds, 2)} s"


def _blocks(found: Top, deployments: Sequence[TopRow], routes: Sequence[TopRow], keys: Sequence[TopRow]) -> list[Block]:
    blocks: list[Block] = [field_table(DEPLOYMENTS, deployments), field_table(ROUTES, routes)]
    if keys:
        blocks.append(field_table(KEYS, keys))
    if found.accounts is not None:
        blocks.append(Paragraph(text=f"Budgets are not known now: {found.accounts}"))
    elif found.budgets:
        blocks += [Heading(text="Left"), field_table(BUDGETS, found.budgets)]
    return blocks
