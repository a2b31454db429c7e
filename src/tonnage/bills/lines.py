"""A line of a bill: what day, for what, with which key or tags, how much; and the values of its cells read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final, Literal

from tonnage.units import PICO_PER_USD
from tonnage.values import dataclass

# commitment: hours that a reservation or a savings plan pays for; fee: purchases and support
Charge = Literal["usage", "commitment", "credit", "tax", "fee", "adjustment"]
DOLLARS: Final = "USD"
Row = Mapping[str, Any]
CENT: Final = PICO_PER_USD // 100
# an amount of one of these units in hours: AWS `pricing_unit`, FOCUS `ConsumedUnit`, GCP `usage.unit`, Azure
# `UnitOfMeasure` (which has a number before it: «100 Hours»)
_HOURS: Final = {
    "hrs": 1.0, "hours": 1.0, "hour": 1.0, "h": 1.0, "instance-hours": 1.0, "seconds": 1 / 3600, "second": 1 / 3600,
    "s": 1 / 3600, "minutes": 1 / 60, "minute": 1 / 60,
}  # fmt: skip


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


def first(row: Row, *names: str) -> Any:
    """The first of the columns that has a value; None where none has."""
    return next((row[name] for name in names if row.get(name) not in (None, "")), None)


def text(row: Row, *names: str) -> str | None:
    """`first`, as text."""
    found = first(row, *names)
    return None if found is None else str(found)


def inner(row: Row, path: str) -> Any:
    """A value that is nested (`usage.amount`), or flattened with a dot or an underscore.

    >>> inner({"usage": {"amount": 2}}, "usage.amount"), inner({"usage_amount": 2}, "usage.amount")
    (2, 2)
    """
    outer, _, name = path.partition(".")
    held = row.get(outer)
    if name and isinstance(held, Mapping):
        return held.get(name)
    return first(row, path, path.replace(".", "_"))


def amount(value: Any, unit_pico: int = PICO_PER_USD) -> tuple[int, int]:
    """(pico-dollars, what the last digit is worth); a number of JSON has been rounded to its digits already.

    >>> amount("1.50")
    (1500000000000, 10000000000)
    """
    if value is None or isinstance(value, bool):
        raise ValueError("no amount")
    found = Decimal(str(value).replace(",", "").lstrip("$"))
    exponent = found.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"amount {value!r}")
    digit = Decimal(unit_pico).scaleb(min(exponent, 0))
    return int((found * unit_pico).to_integral_value()), int(digit.to_integral_value())


def day(value: Any) -> date:
    """By UTC: of seconds, or of a date or time as ISO 8601 writes it, or as Azure does (month first).

    >>> str(day("2026-11-03T23:30:00Z")), str(day("11/03/2026"))
    ('2026-11-03', '2026-11-03')
    """
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).date()
    if isinstance(value, date):
        return value
    if isinstance(value, int | float) or (isinstance(value, str) and value.isdigit()):
        return datetime.fromtimestamp(float(value), UTC).date()
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a date")
    if "/" in value[:6]:
        return datetime.strptime(value.split()[0], "%m/%d/%Y").date()
    moment = datetime.fromisoformat(value.strip().replace(" UTC", "+00:00").replace("Z", "+00:00"))
    return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date()


def hours(value: Any, unit: Any) -> float | None:
    """An amount of time in hours; None where the unit is none of time.

    >>> hours("7200", "seconds"), hours(2, "1 Hour"), hours("3", "100 Hours"), hours(5, "GiB-Mo")
    (2.0, 2.0, 3.0, None)
    """
    if value is None or unit is None:
        return None
    name = str(unit).strip().casefold().split(" ")[-1]  # Azure's quantity is in the unit, not in its hundreds
    return float(value) * _HOURS[name] if name in _HOURS else None


def tags(value: Any) -> tuple[tuple[str, str], ...]:
    """Tags of a mapping, of pairs of key and value, or of JSON text of either; Azure leaves the braces out.

    >>> tags('"team": "ranking","env": "test"')
    (('team', 'ranking'), ('env', 'test'))
    >>> tags([{"key": "team", "value": "ranking"}])
    (('team', 'ranking'),)
    """
    if isinstance(value, str):
        bare = value.strip()
        value = json.loads(bare if bare.startswith(("{", "[")) else "{" + bare + "}") if bare else {}
    if isinstance(value, Mapping):
        return tuple((str(name), str(held)) for name, held in value.items() if held is not None)
    pairs = [one for one in value or () if isinstance(one, Mapping)]
    return tuple((str(one["key"]), str(one.get("value") or "")) for one in pairs)
