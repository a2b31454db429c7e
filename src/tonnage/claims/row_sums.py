"""Sums across a table row: machines × hours × price an hour = cost a month."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from math import prod

from tonnage.claims.figures import Amount, parse_amount
from tonnage.claims.headers import Header
from tonnage.claims.statements import ArithmeticClaim, Place


def row_sums(place: Place, headers: Sequence[Header], cells: Sequence[str]) -> Iterator[ArithmeticClaim]:
    """The monthly cost of a row that states hours of a month and one price an hour; a count where it has one."""
    found = {name: _only(headers, cells, name) for name in ("count", "hours")}
    rate = _price(headers, cells, monthly=False)
    total = _price(headers, cells, monthly=True)
    hours = found["hours"]
    if rate is None or total is None or hours is None or total.is_range or rate.is_range:
        return
    factors = [amount for amount in (found["count"], hours, rate) if amount is not None]
    text = " × ".join(f"{'$' if amount is rate else ''}{amount.low:g}" for amount in factors)
    yield ArithmeticClaim(
        place=place,
        expression=text,
        value=prod((Decimal(str(amount.low)) for amount in factors), start=Decimal(1)),
        result=total,
        claimed=f"{text} = {total.text}",
    )


def _only(headers: Sequence[Header], cells: Sequence[str], meaning: str) -> Amount | None:
    found = [cell for header, cell in zip(headers, cells, strict=False) if header.meaning == meaning]
    return parse_amount(found[0]) if len(found) == 1 else None


def _price(headers: Sequence[Header], cells: Sequence[str], *, monthly: bool) -> Amount | None:
    found = [
        cell
        for header, cell in zip(headers, cells, strict=False)
        if header.meaning == "price" and (header.is_monthly if monthly else header.is_hourly)
    ]
    return parse_amount(found[0]) if len(found) == 1 else None
