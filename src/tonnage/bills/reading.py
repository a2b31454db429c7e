"""A bill's file read: whose it is, by its columns, and its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import InvalidOperation
from itertools import chain, islice
from pathlib import Path
from typing import Final

from tonnage.bills.cloud_kinds import CLOUD_KINDS
from tonnage.bills.lines import BillLine, ProviderBill
from tonnage.bills.rows import bill_rows
from tonnage.bills.token_kinds import anthropic_console, anthropic_report, openai_costs, openai_usage
from tonnage.bills.values import Row
from tonnage.errors import DataError

LOOKED_AT: Final = 200  # rows whose columns say whose bill it is: JSON and sparse CSV leave empty ones out
Reader = Callable[[Row], Iterator[BillLine]]


def read_bill(path: Path) -> ProviderBill:
    """A bill in CSV, JSON as the provider's API answers, or Parquet; a folder of parts is one bill.

    DataError names file and line, and what is not a bill that is known here; later lines raise it as they are read.
    """
    rows = bill_rows(path)
    head = list(islice(rows, LOOKED_AT))
    if not head:
        raise DataError(f"{path} has no line", hint="an export of costs or usage")
    columns = {name for _, row in head for name in row}
    for kind, needed, read in _KINDS:
        if all(any(name in columns for name in names) for names in needed):
            return ProviderBill(kind=kind, lines=_lines(read, chain(head, rows)))
    known = "; ".join(f"{kind}: {', '.join(names[0] for names in needed)}" for kind, needed, _ in _KINDS)
    raise DataError(f"{path} is not a bill that is known here", hint=f"columns of {known}")


def _lines(read: Reader, rows: Iterator[tuple[str, Row]]) -> Iterator[BillLine]:
    for place, row in rows:
        try:
            yield from read(row)
        except (KeyError, ValueError, TypeError, AttributeError, InvalidOperation) as error:
            raise DataError(f"{place} cannot be read: {error!r}", hint="an export as the provider made it") from error


def _one(read: Callable[[Row], BillLine]) -> Reader:
    return lambda row: iter((read(row),))


_KINDS: Final[tuple[tuple[str, tuple[tuple[str, ...], ...], Reader], ...]] = (
    *CLOUD_KINDS,
    ("Anthropic console", (("cost_usd",), ("usage_date_utc",), ("model",)), _one(anthropic_console)),
    ("Anthropic cost report", (("starting_at",), ("amount",)), _one(anthropic_report)),
    ("OpenAI costs", (("start_time", "start_time_iso"), ("amount_value", "amount")), _one(openai_costs)),
    ("OpenAI usage", (("start_time", "start_time_iso"), ("model",), ("input_tokens",), ("output_tokens",)),
     _one(openai_usage)),
)  # fmt: skip
