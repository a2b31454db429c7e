"""The ledger of one option: every line with its price's source and age, the total with its interval."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import assert_never

from tonnage.planning.plan import Option
from tonnage.pricing.extras import OWN
from tonnage.pricing.fee_estimates import ListedRatio, StatedRatio, UnitsOfJobs
from tonnage.pricing.ledger import LedgerLine
from tonnage.reports.blocks import Block, Heading
from tonnage.reports.listing import Fields, cell, field_table
from tonnage.reports.wording import UNKNOWN, render_date, render_money_interval, render_price


def ledger_blocks(option: Option, *, horizon: str, as_of: date, title: str = "What it costs") -> Iterator[Block]:
    """Every line of the cost, and their sum."""
    yield Heading(text=title + (" a month" if horizon == "month" else ""))

    def read(line: LedgerLine | None) -> str:
        return "" if line is None else UNKNOWN if line.source == OWN else render_age(line.read_on, as_of)

    interval = render_money_interval(option.cost_usd)
    of_total = f"80 % interval {interval}" if interval else ""
    total_usd = option.ledger.total_usd
    fields: Fields[LedgerLine | None] = (  # None: the total
        cell("line", lambda line: line.what if line else "total", wraps=True),
        cell("quantity", lambda line: f"{line.quantity:,.4f}" if line else "", right=True),
        cell("unit", lambda line: line.unit if line else "", folds=3),
        cell("price", lambda line: _price(float(line.usd_per_unit)) if line else "", right=True),
        cell("USD", lambda line: f"{line.usd if line else total_usd:,.4f}", right=True),
        cell("price read", read, folds=1, fold_text="price read {}"),
        cell("source", lambda line: source_words(line) if line else of_total, folds=2, wraps=True),
    )
    yield field_table(fields, (*option.ledger.lines, None))


def source_words(line: LedgerLine) -> str:
    """Where a price is from; of an estimate, what it is made of."""
    match line.source:
        case ListedRatio(machines=machines, ratio=ratio):
            return f"estimate: the usual ratio of {machines} listed machines, {ratio:.2f} times the plain one"
        case StatedRatio(ratio=stated, source=source):
            return f"estimate: {stated} times the plain machine, as {source}"
        case UnitsOfJobs(instance_type=name, units_source=units, sku=sku, price_source=price):
            return f"estimate: DBU of {name} ({units}) at {sku} ({price})"
        case str(source):
            return source
        case _:
            assert_never(line.source)


def render_age(day: date | None, as_of: date) -> str:
    """
    >>> render_age(date(2026, 7, 20), date(2026, 11, 20)), render_age(None, date(2026, 11, 20))
    ('2026-07-20 (123 days)', 'no date')
    """
    return render_date(day) if day is None else f"{day.isoformat()} ({(as_of - day).days} days)"


def _price(usd: float) -> str:
    return render_price(usd) if usd >= 0 else f"-{render_price(-usd)}"
