"""What was reconciled as a report."""

from __future__ import annotations

from typing import Any, Final

from tonnage.gateway.money.rates import PICO_PER_USD, usd_text
from tonnage.gateway.reconciling.gaps import BillGap, Cause, Reconciled
from tonnage.reports.blocks import Block, Heading, Page, Pairs
from tonnage.reports.listing import Field, Fields, field_keys, field_rows, field_table, field_values
from tonnage.reports.rendering import Report
from tonnage.reports.wording import short

_UNKNOWN: Final = "-"
_REASONS: Final = {
    "not in the ledger": "spent beside the gateway, or matched to the wrong deployment",
    "not in the bill": "not billed yet, or matched to the wrong deployment",
}  # fmt: skip


def _usd(pico: int) -> str:
    return f"-{usd_text(-pico)}" if pico < 0 else usd_text(pico)


def _dollars(pico: int | None) -> str:
    return _UNKNOWN if pico is None else short(pico / PICO_PER_USD, 6)


def _cause(one: Cause) -> dict[str, Any]:
    return {"reason": one.reason, "at_most_usd": _usd(one.most_pico), "rows": one.rows}


def _cause_words(one: Cause) -> str:
    if one.reason in _REASONS:
        return f"{one.reason}: {_REASONS[one.reason]}"
    rows = "" if one.rows is None else f", {one.rows:,} rows"
    return f"{one.reason} ({'' if one.reason == 'unexplained' else 'up to '}{_dollars(one.most_pico)} USD{rows})"


GAPS: Final[Fields[BillGap]] = (
    Field("day", lambda one: one.day, title="day"),
    Field("deployments", lambda one: one.deployments, title="deployments", show=", ".join),
    Field("bill_keys", lambda one: one.keys),
    Field("bill_usd", lambda one: one.bill_pico, title="bill USD", right=True, json=_usd, show=_dollars),
    Field("ledger_usd", lambda one: one.ledger_pico, title="ledger USD", right=True, json=_usd, show=_dollars),
    Field("gap_usd", lambda one: one.gap_pico, title="gap USD", right=True, json=_usd, show=_dollars),
    Field("bill_tokens", lambda one: one.bill_tokens),
    Field("ledger_tokens", lambda one: one.ledger_tokens),
    Field("state", lambda one: one.state, title="", wraps=True),
    Field("causes", lambda one: one.causes, title="why", wraps=True, json=lambda found: [_cause(one) for one in found],
          show=lambda found: "; ".join(_cause_words(one) for one in found)),
)  # fmt: skip


def reconciled_report(found: Reconciled) -> Report:
    """The days of a bill beside the ledger's."""
    return Report(
        page=lambda: Page(title=f"Ledger and bill ({found.kind}), {found.first_day} to {found.last_day}",
                          blocks=tuple(_blocks(found))),
        document=lambda: {
            "schema": "tonnage/gateway-reconciliation@1", "bill": found.kind, "first_day": str(found.first_day),
            "last_day": str(found.last_day), "gaps": [field_values(GAPS, one) for one in found.gaps],
            "unknown": [{"item": item, "usd": _usd(pico)} for item, pico in found.unknown],
        },
        columns=tuple(field_keys(GAPS[:-1])),
        rows=lambda: field_rows(GAPS[:-1], found.gaps),
    )  # fmt: skip


def _blocks(found: Reconciled) -> list[Block]:
    blocks: list[Block] = [field_table(GAPS, found.gaps)]
    if found.unknown:
        blocks += [Heading(text="Of no deployment of the file"),
                   Pairs(rows=tuple((item, f"{_dollars(pico)} USD") for item, pico in found.unknown))]  # fmt: skip
    return blocks
