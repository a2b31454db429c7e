"""A bill that was compared, as a report."""

from __future__ import annotations

from typing import Any, Final

from tonnage.budgets.bill_gaps import BillCompared, CloudGap, GapPart, UnmatchedSpend
from tonnage.reports.blocks import Block, Heading, Page, Paragraph
from tonnage.reports.listing import Field, Fields, field_keys, field_rows, field_table, field_values
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, short
from tonnage.units import PICO_PER_USD

MOST_UNMATCHED: Final = 20  # on a page; JSON has them all
_MEANING: Final = {
    "hours": "more or fewer hours than were measured: a machine that was not ended, or another run's tag",
    "untagged": "the bill has hours of this day without a tag of ours",
    "not in the bill": "not billed yet, or billed elsewhere",
    "not measured here": "the bill names it, and no measured hours of this day are known here",
}  # fmt: skip


def _usd(pico: int) -> float:
    return round(pico / PICO_PER_USD, 6)


def _cents(pico: int | None) -> str:
    return UNKNOWN if pico is None else f"{pico / PICO_PER_USD:,.4f}"


def _part(one: GapPart) -> dict[str, Any]:
    return {"reason": one.reason, "usd": None if one.pico is None else _usd(one.pico), "detail": one.detail or None}


def _words(one: GapPart) -> str:
    amount = "" if one.pico is None else f" {one.pico / PICO_PER_USD:+,.4f}"
    detail = f" ({one.detail})" if one.detail else ""
    return f"{one.reason}{amount}{detail}"


GAPS: Final[Fields[CloudGap]] = (
    Field("day", lambda one: one.day, title="day"),
    Field("name", lambda one: one.name, title="run or service"),
    Field("kind", lambda one: one.kind or None),
    Field("measured_hours", lambda one: round(one.measured_hours, 6), title="hours", right=True),
    Field("billed_hours", lambda one: one.billed_hours, title="billed", right=True),
    Field("estimate_usd", lambda one: one.estimate_pico, title="estimate USD", right=True, json=_usd, show=_cents),
    Field("bill_usd", lambda one: one.bill_pico, title="bill USD", right=True, json=_usd, show=_cents),
    Field("gap_usd", lambda one: one.gap_pico, title="gap USD", right=True, json=_usd, show=_cents),
    Field("state", lambda one: one.state, title=""),
    Field("parts", lambda one: one.parts, title="made of", wraps=True, json=lambda found: [_part(one) for one in found],
          show=lambda found: "; ".join(_words(one) for one in found)),
)  # fmt: skip
UNMATCHED: Final[Fields[UnmatchedSpend]] = (
    Field("item", lambda one: one.item, title="for", wraps=True),
    Field("hours", lambda one: one.hours, title="hours", right=True),
    Field("bill_usd", lambda one: one.pico, title="bill USD", right=True, json=_usd, show=_cents),
)  # fmt: skip


def compared_report(found: BillCompared) -> Report:
    """The days of a bill beside the hours that were measured."""
    return Report(
        page=lambda: Page(title=f"Measured hours and bill ({found.kind}), {found.first_day} to {found.last_day}",
                          blocks=tuple(_blocks(found))),
        document=lambda: {
            "schema": "tonnage/bill-reconciliation@1", "bill": found.kind, "first_day": str(found.first_day),
            "last_day": str(found.last_day), "bill_usd": _usd(found.bill_pico),
            "gaps": [field_values(GAPS, one) for one in found.gaps],
            "unmatched": [field_values(UNMATCHED, one) for one in found.unmatched],
            "other_currencies": [{"currency": name, "lines": lines} for name, lines in found.foreign],
        },
        columns=tuple(field_keys(GAPS[:-1])),
        rows=lambda: field_rows(GAPS[:-1], found.gaps),
    )  # fmt: skip


def _blocks(found: BillCompared) -> list[Block]:
    blocks: list[Block] = [field_table(GAPS, found.gaps)]
    if not found.gaps:
        blocks = [Paragraph(text="No line is of a run or service of this home, and none ran on the bill's days.")]
    named = dict.fromkeys(part.reason for one in found.gaps for part in one.parts)
    blocks += [Paragraph(text=f"{reason}: {_MEANING[reason]}.") for reason in named if reason in _MEANING]
    if found.unmatched:
        blocks += [Heading(text="Of no run or service of this home"),
                   field_table(UNMATCHED, found.unmatched[:MOST_UNMATCHED])]  # fmt: skip
        if (left := len(found.unmatched) - MOST_UNMATCHED) > 0:
            rest = sum(one.pico for one in found.unmatched[MOST_UNMATCHED:])
            blocks.append(Paragraph(text=f"and {left} more for {short(rest / PICO_PER_USD, 6)} USD: -o json"))
    for name, lines in found.foreign:
        blocks.append(Paragraph(text=f"{lines} lines are in {name} without a rate: they are compared with nothing."))
    return blocks
