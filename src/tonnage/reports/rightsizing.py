"""Right-sizing: the machine now, the cheaper one, the saving, what stands in the way (`tonnage/rightsize@1`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tonnage.catalog import Catalog
from tonnage.reports.blocks import Block, Bullets, Column, Heading, Page, Paragraph, Table
from tonnage.reports.plain import plain_day, plain_number, plain_usd
from tonnage.reports.reasons.rightsizing import broken_document, broken_words, remark_document, remark_words
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, render_money, render_price, render_purchase
from tonnage.rightsizing.rightsize import MachineFinding, Rejected

RIGHTSIZE_SCHEMA: Final = "tonnage/rightsize@1"
FINDING_COLUMNS: Final = (
    "name", "action", "provider", "instance_type", "region", "purchase", "hours_per_month", "usd_per_instance_hour",
    "price_read_on", "new_provider", "new_instance_type", "new_region", "new_usd_per_instance_hour",
    "new_price_read_on", "saving_usd_per_month", "confidence", "reasons", "changes", "cheaper_but",
)  # fmt: skip


def rightsize_report(findings: Sequence[MachineFinding], catalog: Catalog) -> Report:
    """The report of all rows, the largest saving first on pages, in the table's order elsewhere."""
    return Report(
        page=lambda: _page(findings, catalog),
        document=lambda: _document(findings, catalog),
        columns=FINDING_COLUMNS,
        rows=lambda: [_row(one) for one in findings],
    )


def _page(findings: Sequence[MachineFinding], catalog: Catalog) -> Page:
    saving = sum(one.saving_usd_per_month for one in findings)
    moves = [one for one in findings if one.action == "move"]
    text = f"{plural(len(moves), 'machine')} of {len(findings):,} can be cheaper: {render_money(saving)} a month."
    blocks: list[Block] = [Paragraph(text=text, tone="good" if moves else "plain")]
    columns = (
        Column(title="machine", wraps=True),
        Column(title="now", wraps=True),
        Column(title="an hour", align="right", folds=2),
        Column(title="bought", folds=4),
        Column(title="better", wraps=True),
        Column(title="an hour", align="right", folds=2),
        Column(title="saves a month", align="right"),
        Column(title="confidence", folds=1),
    )
    order = sorted(findings, key=lambda one: -one.saving_usd_per_month)
    blocks.append(Table(columns=columns, rows=tuple(_cells(one) for one in order)))
    for one in order:
        blocks += [Heading(text=one.usage.name), Bullets(items=tuple(_remarks(one)))]
    blocks.append(Paragraph(text=f"Prices: catalog {catalog.name} (built {catalog.built_on}).", tone="faint"))
    return Page(title="Right-sizing", blocks=tuple(blocks))


def _cells(one: MachineFinding) -> tuple[str, ...]:
    now = one.usd_per_hour_now
    return (
        one.usage.name,
        one.usage.instance.name,
        UNKNOWN if now is None else render_price(now),
        render_purchase(one.usage.purchase),
        one.action if one.instance is None else one.instance.name,
        UNKNOWN if one.offer is None else render_price(float(one.offer.usd_per_instance_hour)),
        render_money(one.saving_usd_per_month),
        one.confidence,
    )


def _remarks(one: MachineFinding) -> list[str]:
    if one.action == "no price":
        return ["no price is in the catalog for this machine, bought so, there: a saving cannot be told"]
    said = [f"changes: {'; '.join(map(remark_words, one.changes))}"] if one.changes else []
    said += [_cheaper_but(rejected) for rejected in one.cheaper_but]
    if one.action == "keep" and not one.cheaper_but:
        said.append("no cheaper machine is sold there")
    return [*said, *map(remark_words, one.reasons)]


def _cheaper_but(one: Rejected) -> str:
    broken = "; ".join(broken_words(limit).clause for limit in one.broken)
    return f"cheaper, but breaks: {one.instance.name} at {render_price(one.usd_per_hour)}: {broken}"


def _document(findings: Sequence[MachineFinding], catalog: Catalog) -> dict[str, Any]:
    return {
        "schema": RIGHTSIZE_SCHEMA,
        "catalog": {"snapshot": catalog.name, "built_on": catalog.built_on.isoformat()},
        "saving_usd_per_month": plain_usd(sum(one.saving_usd_per_month for one in findings)),
        "machines": [_machine(one) for one in findings],
    }


def _machine(one: MachineFinding) -> dict[str, Any]:
    usage, offer = one.usage, one.offer
    return {
        "name": usage.name,
        "line": usage.line,
        "action": one.action,
        "provider": usage.instance.provider,
        "instance_type": usage.instance.name,
        "region": usage.region,
        "purchase": usage.purchase,
        "hours_per_month": plain_number(usage.hours_per_month),
        "usd_per_instance_hour": plain_number(one.usd_per_hour_now),
        "price_read_on": plain_day(one.price_read_on),
        "better": None
        if offer is None
        else {
            "provider": offer.provider,
            "instance_type": offer.instance_type,
            "region": offer.region,
            "usd_per_instance_hour": plain_number(float(offer.usd_per_instance_hour)),
            "price_read_on": plain_day(offer.read_on),
        },
        "saving_usd_per_month": plain_usd(one.saving_usd_per_month),
        "changes": [remark_words(change) for change in one.changes],
        "change_values": [remark_document(change) for change in one.changes],
        "cheaper_but": [
            {
                "provider": rejected.instance.provider,
                "instance_type": rejected.instance.name,
                "usd_per_instance_hour": plain_number(rejected.usd_per_hour),
                "breaks": [broken_document(limit) for limit in rejected.broken],
            }
            for rejected in one.cheaper_but
        ],
        "confidence": one.confidence,
        "reasons": [remark_words(reason) for reason in one.reasons],
        "reason_values": [remark_document(reason) for reason in one.reasons],
    }


def _row(one: MachineFinding) -> list[Any]:
    usage, offer = one.usage, one.offer
    return [
        usage.name,
        one.action,
        usage.instance.provider,
        usage.instance.name,
        usage.region,
        usage.purchase,
        plain_number(usage.hours_per_month),
        plain_number(one.usd_per_hour_now),
        plain_day(one.price_read_on),
        *((None,) * 5 if offer is None else (
            offer.provider, offer.instance_type, offer.region, plain_number(float(offer.usd_per_instance_hour)),
            plain_day(offer.read_on),
        )),
        plain_usd(one.saving_usd_per_month),
        one.confidence,
        "; ".join(map(remark_words, one.reasons)),
        "; ".join(map(remark_words, one.changes)),
        "; ".join(_cheaper_but(rejected) for rejected in one.cheaper_but),
    ]  # fmt: skip
