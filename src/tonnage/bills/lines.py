"""A line of a bill: what day, for what, with which key or tags, how much."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import Final, Literal

from tonnage.values import dataclass

# commitment: hours that a reservation or a savings plan pays for; fee: purchases and support
Charge = Literal["usage", "commitment", "credit", "tax", "fee", "adjustment"]
DOLLARS: Final = "USD"


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """`item`: what it is for, in the bill's words; `model`, `key`: where the bill says them. `usd_pico` None: a bill of
    usage alone, or of another currency without a rate. `digit_pico`: what the last digit of the amount is worth.
    Tokens and hours None: the bill does not count them."""

    day: date
    item: str
    model: str | None
    key: str | None
    usd_pico: int | None
    digit_pico: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    charge: Charge = "usage"
    currency: str = DOLLARS  # of the bill
    converted: bool = False  # by the bill's own rate
    hours: float | None = None  # of machines: an amount whose unit is time
    resource: str | None = None
    machine: str | None = None  # the instance type
    tags: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderBill:
    """`kind`: whose it is, by its columns. Its lines are read as they are asked for, once."""

    kind: str
    lines: Iterator[BillLine]


def total_pico(lines: Iterable[BillLine]) -> int | None:
    """None where no line has an amount."""
    found: Sequence[int] = [one.usd_pico for one in lines if one.usd_pico is not None]
    return sum(found) if found else None
