"""Ledgers: lines sum to the total, in decimal."""

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.pricing.ledger import Ledger, LedgerLine, hours


def line(quantity: str, price: str) -> LedgerLine:
    return LedgerLine(
        what="compute", part="machines", quantity=Decimal(quantity), unit="instance-hour",
        usd_per_unit=Decimal(price), source="list", read_on=date(2026, 7, 20),
    )  # fmt: skip


# The monthly estimates of a planning document, at its own prices: instances x hours x days, USD an hour, USD.
MONTHS = [
    ("352", "0.526", 185.15),
    ("88", "3.060", 269.28),
    ("2160", "0.752", 1624.32),
    ("96", "32.770", 3145.92),
]


@pytest.mark.parametrize(("quantity", "price", "expected"), MONTHS)
def test_monthly_estimates(quantity: str, price: str, expected: float) -> None:
    """2 x g4dn.xlarge 8 h x 22 days; p3.2xlarge 4 h x 22 days; 3 x g4dn.2xlarge all month; p4d 24 h a week x 4."""
    assert float(line(quantity, price).usd) == pytest.approx(expected, abs=0.005)


@given(st.lists(st.tuples(st.decimals(0, 10_000, places=4), st.decimals(0, 500, places=4)), max_size=20))
def test_lines_sum_to_the_total(entries: list[tuple[Decimal, Decimal]]) -> None:
    """The total is the sum of what the lines print, exactly."""
    ledger = Ledger(lines=tuple(line(str(q), str(p)) for q, p in entries))
    assert ledger.total_usd == sum((one.usd for one in ledger.lines), start=Decimal(0))


def test_hours_are_exact_decimals() -> None:
    """A float number of hours becomes the decimal it prints as."""
    assert hours(0.1) * 3 == Decimal("0.3")
