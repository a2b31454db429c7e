"""Bills of providers as lines of one kind: what day, for what, with which key, how much.

Shapes, read 2026-11: OpenAI, «Costs» and «Usage» (API pages, and their fields as columns of an export); Anthropic,
«Cost report» of the Admin API (amounts in cents) and the Console's CSV; AWS, Cost and Usage Report (`lineItem/…`,
CUR 2.0 `line_item_…`); FOCUS 1.0 to 1.2 (`BilledCost`).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import orjson

from tonnage.errors import DataError
from tonnage.gateway.money.rates import PICO_PER_USD
from tonnage.values import dataclass

Row = Mapping[str, Any]
_CENT: Final = PICO_PER_USD // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """`item`: what it is for, in the bill's words; `model`, `key`: where the bill says them. `usd_pico` None: a bill of
    usage alone. `digit_pico`: what the last digit of the amount is worth. Tokens None: the bill does not count them."""

    day: date
    item: str
    model: str | None
    key: str | None
    usd_pico: int | None
    digit_pico: int
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderBill:
    """`kind`: whose it is, by its columns."""

    kind: str
    lines: tuple[BillLine, ...]


def read_bill(path: Path) -> ProviderBill:
    """The lines of a bill, CSV or JSON as the provider's API answers. DataError names file and line, and what is not
    a bill that is known here; another currency than dollars is refused."""
    rows = list(_rows(path))
    if not rows:
        raise DataError(f"{path} has no line", hint="an export of costs or usage")
    columns = {name for _, row in rows for name in row}
    for kind, needed, read in _KINDS:
        if all(any(name in columns for name in names) for names in needed):
            return ProviderBill(kind=kind, lines=tuple(_line(read, row, place) for place, row in rows if _counts(row)))
    known = "; ".join(f"{kind}: {', '.join(names[0] for names in needed)}" for kind, needed, _ in _KINDS)
    raise DataError(f"{path} is no bill that is known here", hint=f"columns of {known}")


def _line(read: Callable[[Row], BillLine], row: Row, place: str) -> BillLine:
    currency = _first(row, "amount_currency", "currency", "BillingCurrency", "lineItem/CurrencyCode",
                      "line_item_currency_code")  # fmt: skip
    if currency is not None and str(currency).upper() != "USD":
        raise DataError(f"{place}: is in {currency}", hint="bills in dollars can be compared with the ledger")
    try:
        return read(row)
    except (KeyError, ValueError, TypeError, InvalidOperation) as error:
        raise DataError(f"{place} cannot be read: {error!r}", hint="an export as the provider made it") from error


def _counts(row: Row) -> bool:
    """Taxes, credits and fees are no price of tokens."""
    kind = _first(row, "lineItem/LineItemType", "line_item_line_item_type", "ChargeCategory")
    return kind is None or kind in ("Usage", "DiscountedUsage")


# the kinds


def _openai_costs(row: Row) -> BillLine:
    usd_pico, digit = _amount(_first(row, "amount_value", "amount"))
    item = str(_first(row, "line_item") or "all")
    return BillLine(
        day=_day(_first(row, "start_time", "start_time_iso")), item=item, model=item.split(",")[0].strip(),
        key=_text(row, "api_key_id", "project_name", "project_id"), usd_pico=usd_pico, digit_pico=digit,
    )  # fmt: skip


def _openai_usage(row: Row) -> BillLine:
    model = str(row["model"])
    return BillLine(
        day=_day(_first(row, "start_time", "start_time_iso")), item=model, model=model,
        key=_text(row, "api_key_id", "project_name", "project_id"), usd_pico=None, digit_pico=0,
        input_tokens=int(row["input_tokens"]), output_tokens=int(row["output_tokens"]),
    )  # fmt: skip


def _anthropic_report(row: Row) -> BillLine:
    usd_pico, digit = _amount(row["amount"], _CENT)
    return BillLine(
        day=_day(row["starting_at"]), item=str(_first(row, "description", "model", "cost_type") or "all"),
        model=_text(row, "model"), key=_text(row, "workspace_id"), usd_pico=usd_pico, digit_pico=digit,
    )  # fmt: skip


def _anthropic_console(row: Row) -> BillLine:
    usd_pico, digit = _amount(row["cost_usd"])
    kinds = [str(row[name]) for name in ("cost_type", "token_type") if row.get(name)]
    return BillLine(
        day=_day(row["usage_date_utc"]), item=" ".join([str(row["model"]), *kinds]), model=_text(row, "model"),
        key=_text(row, "api_key", "workspace"), usd_pico=usd_pico, digit_pico=digit,
    )  # fmt: skip


def _focus(row: Row) -> BillLine:
    usd_pico, digit = _amount(row["BilledCost"])
    names = (
        "ServiceName",
        "ResourceId",
        "ResourceName",
        "x_UsageType",
        "SkuMeter",
        "SkuId",
        "ChargeDescription",
        "Tags",
    )
    said = [str(row[name]) for name in names if row.get(name)]
    return BillLine(
        day=_day(row["ChargePeriodStart"]), item=" ".join(said), model=None, key=_text(row, "SubAccountId"),
        usd_pico=usd_pico, digit_pico=digit,
    )  # fmt: skip


def _cur(row: Row) -> BillLine:
    usd_pico, digit = _amount(_first(row, "lineItem/UnblendedCost", "line_item_unblended_cost"))
    names = ("ProductCode", "product_code"), ("ResourceId", "resource_id"), ("UsageType", "usage_type"), \
            ("LineItemDescription", "line_item_description")  # fmt: skip
    said = [found for old, new in names if (found := _text(row, f"lineItem/{old}", f"line_item_{new}"))]
    return BillLine(
        day=_day(_first(row, "lineItem/UsageStartDate", "line_item_usage_start_date")), item=" ".join(said), model=None,
        key=_text(row, "lineItem/UsageAccountId", "line_item_usage_account_id"), usd_pico=usd_pico, digit_pico=digit,
    )  # fmt: skip


_KINDS: Final[tuple[tuple[str, tuple[tuple[str, ...], ...], Callable[[Row], BillLine]], ...]] = (
    ("FOCUS", (("BilledCost",), ("ChargePeriodStart",)), _focus),
    ("AWS CUR", (("lineItem/UnblendedCost", "line_item_unblended_cost"),
                 ("lineItem/UsageStartDate", "line_item_usage_start_date")), _cur),
    ("Anthropic console", (("cost_usd",), ("usage_date_utc",), ("model",)), _anthropic_console),
    ("Anthropic cost report", (("starting_at",), ("amount",)), _anthropic_report),
    ("OpenAI costs", (("start_time", "start_time_iso"), ("amount_value", "amount")), _openai_costs),
    ("OpenAI usage", (("start_time", "start_time_iso"), ("model",), ("input_tokens",), ("output_tokens",)),
     _openai_usage),
)  # fmt: skip


# rows and values


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="CSV or JSON") from error
    if text.lstrip()[:1] not in ("{", "["):
        for number, row in enumerate(csv.DictReader(text.splitlines()), start=2):
            yield f"{path}:{number}", {name: value for name, value in row.items() if name and value not in ("", None)}
        return
    try:
        pages = [orjson.loads(text)]
    except orjson.JSONDecodeError:
        pages = _json_lines(text, path)
    for page in pages:
        for each in page if isinstance(page, list) else [page]:
            yield from ((str(path), row) for row in _flat(each))


def _json_lines(text: str, path: Path) -> list[Any]:
    try:
        return [orjson.loads(line) for line in text.splitlines() if line.strip()]
    except orjson.JSONDecodeError as error:
        raise DataError(
            f"{path} is no JSON: {error}", hint="an answer of the provider's API, or lines of them"
        ) from error


def _flat(found: Any) -> Iterator[Row]:
    """Pages of buckets of results as rows: the times of its bucket beside each result."""
    if not isinstance(found, dict):
        return
    if isinstance(found.get("data"), list):
        for one in found["data"]:
            yield from _flat(one)
        return
    if not isinstance(found.get("results"), list):
        yield found
        return
    times = {name: value for name, value in found.items() if name not in ("results", "object")}
    for one in found["results"]:
        if isinstance(one, dict):
            amount = one.get("amount")
            more = {"amount_value": amount.get("value"), "amount_currency": amount.get("currency")} if isinstance(
                amount, dict) else {}  # fmt: skip
            kept = {name: value for name, value in one.items() if value is not None and not isinstance(value, dict)}
            yield {**times, **kept, **more}


def _first(row: Row, *names: str) -> Any:
    return next((row[name] for name in names if row.get(name) not in (None, "")), None)


def _text(row: Row, *names: str) -> str | None:
    found = _first(row, *names)
    return None if found is None else str(found)


def _amount(value: Any, unit_pico: int = PICO_PER_USD) -> tuple[int, int]:
    """(pico-dollars, what the last digit is worth); a number of JSON has been rounded to its digits already."""
    if value is None or isinstance(value, bool):
        raise ValueError("no amount")
    amount = Decimal(str(value).replace(",", "").lstrip("$"))
    exponent = amount.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"amount {value!r}")
    digit = Decimal(unit_pico).scaleb(min(exponent, 0))
    return int((amount * unit_pico).to_integral_value()), int(digit.to_integral_value())


def _day(value: Any) -> date:
    """By UTC: of seconds, or of a date or time as ISO 8601 writes it."""
    if isinstance(value, int | float) or (isinstance(value, str) and value.isdigit()):
        return datetime.fromtimestamp(float(value), UTC).date()
    if not isinstance(value, str):
        raise ValueError(f"no day: {value!r}")
    moment = datetime.fromisoformat(value.strip().replace(" UTC", "+00:00").replace("Z", "+00:00"))
    return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date()


def only(bill: ProviderBill, text: str) -> ProviderBill:
    """The lines that hold a text: a key, a project, an account."""
    wanted = text.casefold()
    found = [one for one in bill.lines if wanted in f"{one.item} {one.model or ''} {one.key or ''}".casefold()]
    return ProviderBill(kind=bill.kind, lines=tuple(found))


def total_pico(lines: Iterable[BillLine]) -> int | None:
    """None where no line has an amount."""
    found: Sequence[int] = [one.usd_pico for one in lines if one.usd_pico is not None]
    return sum(found) if found else None
