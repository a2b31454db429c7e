"""Token prices from a table of one's own: a model a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tonnage.errors import WorkloadError
from tonnage.pricing.tokens import ProvisionedUnits, TokenPrices
from tonnage.workload.tables.reading import InputColumn, InputRow

COLUMNS: Final = (
    InputColumn(name="name", required=True),
    InputColumn(name="usd_per_million_input", kind="number", required=True),
    InputColumn(name="usd_per_million_output", kind="number", required=True),
    InputColumn(name="usd_per_million_cached_input", kind="number"),
    InputColumn(name="batch_discount_percent", kind="number", maximum=99.99),
    InputColumn(name="usd_per_unit_hour", kind="number"),
    InputColumn(name="unit_tokens_per_minute", kind="number", minimum=1.0),
    InputColumn(name="minimum_units", kind="number", minimum=1.0),
    InputColumn(name="source"),
    InputColumn(name="read_on", kind="date"),
)


def parse_token_prices(rows: Sequence[InputRow], file: str) -> tuple[TokenPrices, ...]:
    """The prices in the rows of a table of `COLUMNS`. WorkloadError names line and column."""
    return tuple(_prices(row, file) for row in rows)


def _prices(row: InputRow, file: str) -> TokenPrices:
    discount = row.number("batch_discount_percent")
    read, written = row.number("usd_per_million_input"), row.number("usd_per_million_output")
    assert read is not None
    assert written is not None
    return TokenPrices(
        name=row.text("name") or "",
        usd_per_million_input=read,
        usd_per_million_output=written,
        usd_per_million_cached_input=row.number("usd_per_million_cached_input"),
        batch_discount_fraction=None if discount is None else discount / 100.0,
        provisioned=_units(row, file),
        source=row.text("source") or file,
        read_on=row.day("read_on"),
    )


def _units(row: InputRow, file: str) -> ProvisionedUnits | None:
    price, tokens = row.number("usd_per_unit_hour"), row.number("unit_tokens_per_minute")
    if price is None and tokens is None:
        return None
    if price is None or tokens is None:
        missing = "usd_per_unit_hour" if price is None else "unit_tokens_per_minute"
        raise WorkloadError("is empty", hint="provisioned units need both", file=file, line=row.line, key=missing)
    least = row.number("minimum_units")
    return ProvisionedUnits(usd_per_unit_hour=price, tokens_per_minute=tokens, minimum_units=int(least or 1))
