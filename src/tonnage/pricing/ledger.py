"""Lines that sum to a total: quantity x unit price, each with where the price was read and when."""

from __future__ import annotations

from datetime import date
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Literal

from tonnage.pricing.fee_estimates import EstimateSource
from tonnage.values import dataclass

Part = Literal[  # of a bill, by what it pays for
    "machines", "start-up", "interruptions", "unused hours", "platform fee", "tokens", "storage", "data transfer",
    "load balancer", "people", "credit",
]  # fmt: skip
SMALLEST_USD = Decimal("0.0001")  # small jobs cost cents: a line is kept to a hundredth of one


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """One cost: `quantity` of `unit` at `usd_per_unit` (after `discount_percent`, which is already taken off)."""

    what: str
    part: Part
    quantity: Decimal
    unit: str
    usd_per_unit: Decimal
    source: str | EstimateSource
    read_on: date | None
    discount_percent: Decimal = Decimal(0)
    billed_by: str = ""  # a provider, or databricks; "": no provider's bill (people)

    @property
    def usd(self) -> Decimal:
        """The amount to a hundredth of a cent, half to even."""
        return (self.quantity * self.usd_per_unit).quantize(SMALLEST_USD, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All lines of one way to do the work."""

    lines: tuple[LedgerLine, ...]

    @property
    def total_usd(self) -> Decimal:
        return sum((line.usd for line in self.lines), start=Decimal(0))


def hours(quantity: float) -> Decimal:
    """A predicted number of hours as the ledger counts it: to the millionth."""
    return Decimal(repr(round(quantity, 6)))
