"""Values as JSON and CSV carry them: rounded, never NaN or infinite, always in the same order."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from json.encoder import encode_basestring as _quoted  # a text in quotes, written in C
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tonnage.sizing.estimates import Figure


DIGITS: Final = 6  # significant; a prediction is not better than that
_EXACT: Final = 2.0**53  # whole numbers up to here are kept whole


def plain_number(value: float | None) -> float | int | None:
    """Six significant digits; whole numbers stay whole; what is not finite is null.

    >>> plain_number(0.123456789), plain_number(109482240.0), plain_number(float("inf"))
    (0.123457, 109482240, None)
    """
    if value is None or not math.isfinite(value):
        return None
    value = float(value)
    if value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return float(f"{value:.{DIGITS}g}")


def plain_usd(amount: float | Decimal) -> float | int | None:
    """An amount of money: to the hundredth of a cent, which is what ledgers count in.

    >>> plain_usd(Decimal("1234567.8901"))
    1234567.8901
    """
    rounded = round(float(amount), 4)
    if not math.isfinite(rounded):
        return None
    return int(rounded) if rounded.is_integer() else rounded


def plain_price(price: float | Decimal | None) -> float | int | None:
    """A price per unit, as it was read: prices are facts, so no digit is dropped. None stays None.

    >>> plain_price(Decimal("1.692835"))
    1.692835
    """
    value = None if price is None else float(price)
    return value if value is None or not value.is_integer() else int(value)


def plain_figure(figure: Figure | None) -> dict[str, Any] | None:
    """A prediction: value, 80 % interval, basis."""
    if figure is None:
        return None
    return {
        "value": plain_number(figure.value),
        "low": plain_number(figure.low),
        "high": plain_number(figure.high),
        "basis": figure.basis,
    }


def plain_cost(figure: Figure) -> dict[str, Any]:
    """A predicted amount of money."""
    return {
        "value": plain_usd(figure.value),
        "low": plain_usd(figure.low),
        "high": plain_usd(figure.high),
        "basis": figure.basis,
    }


def plain_day(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def plain_instant(instant: datetime) -> str:
    """An instant; the date alone at midnight UTC."""
    text = instant.isoformat()
    return text.removesuffix("T00:00:00+00:00")


_WORDS: Final = {None: "null", True: "true", False: "false"}


def dump_json(document: Mapping[str, Any]) -> str:
    """The text of a document, with a newline at its end; ValueError on NaN or infinity."""
    parts: list[str] = []
    _write_json(document, "\n", parts.append)
    parts.append("\n")
    return "".join(parts)


def _write_json(value: Any, line: str, write: Callable[[str], None]) -> None:
    """As `json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)`, whose indented form is written by
    generators in one another and takes three times as long. `line`: a new line with the indent of `value`."""
    if isinstance(value, str):
        write(_quoted(value))
    elif isinstance(value, dict) and value:
        inner, before = line + "  ", "{"
        for key, one in value.items():
            write(f"{before}{inner}{_quoted(key if isinstance(key, str) else _small_json(key))}: ")
            _write_json(one, inner, write)
            before = ","
        write(line + "}")
    elif isinstance(value, list | tuple) and value:
        inner, before = line + "  ", "["
        for one in value:
            write(before + inner)
            _write_json(one, inner, write)
            before = ","
        write(line + "]")
    else:
        write(_small_json(value))


def _small_json(value: Any) -> str:
    """Of what has nothing inside. Raises ValueError on NaN or infinity, TypeError on what JSON does not have."""
    if value is None or value is True or value is False:
        return _WORDS[value]
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float) and math.isfinite(value):
        return float.__repr__(value)
    return json.dumps(value, allow_nan=False)


def dump_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A header and one line a row; None is an empty cell, true and false are words."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return _text_cell(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "" if not math.isfinite(value) else repr(int(value)) if value.is_integer() else repr(value)
    return "" if value is None else value


def _text_cell(text: str) -> str:
    """Text that a spreadsheet would run as a formula gets a leading apostrophe; numbers stay numbers.

    >>> _text_cell("=1+1"), _text_cell("-0.5"), _text_cell("-- a"), _text_cell("a=b")
    ("'=1+1", '-0.5', "'-- a", 'a=b')
    """
    if len(text) < 2 or text[0] not in "=+-@\t\r":
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
