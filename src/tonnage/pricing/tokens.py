"""What a token API charges: prices per million tokens, discounts, provisioned units, each with its source and date;
a table of one's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Final

from tonnage.errors import WorkloadError
from tonnage.values import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionedUnits:
    """Throughput bought by the hour: units of `tokens_per_minute` (input and output together), used or not."""

    usd_per_unit_hour: float
    tokens_per_minute: float
    minimum_units: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrices:
    """One model's prices, USD per million tokens. None: not offered (cached input) or not published.

    `batch_discount_fraction`: off every price where answers may wait. `provisioned`: bought by the hour instead.
    """

    name: str
    usd_per_million_input: float
    usd_per_million_output: float
    source: str
    read_on: date | None
    usd_per_million_cached_input: float | None = None
    batch_discount_fraction: float | None = None
    provisioned: ProvisionedUnits | None = None

    def usd_per_request(
        self, *, input_tokens: float, output_tokens: float, cached_fraction: float = 0.0, batch: bool = False
    ) -> float:
        """USD of one request. Cached input without a price of its own costs what input costs.

        >>> prices = TokenPrices(name="m", usd_per_million_input=2.0, usd_per_million_output=8.0, source="",
        ...     read_on=None, usd_per_million_cached_input=0.5, batch_discount_fraction=0.5)
        >>> prices.usd_per_request(input_tokens=1000, output_tokens=500, cached_fraction=0.5)
        0.00525
        >>> prices.usd_per_request(input_tokens=1000, output_tokens=500, cached_fraction=0.5, batch=True)
        0.002625
        """
        cached = self.usd_per_million_cached_input
        cached = self.usd_per_million_input if cached is None else cached
        read = self.usd_per_million_input * (1.0 - cached_fraction) + cached * cached_fraction
        usd = (input_tokens * read + output_tokens * self.usd_per_million_output) / 1e6
        return usd * (1.0 - (self.batch_discount_fraction or 0.0)) if batch else usd

    def provisioned_usd_per_hour(self, *, peak_rate_per_s: float, tokens_per_request: float) -> float | None:
        """USD an hour of the units that carry the peak; None where no units are sold.

        >>> units = ProvisionedUnits(usd_per_unit_hour=20.0, tokens_per_minute=60_000)
        >>> prices = TokenPrices(name="m", usd_per_million_input=2.0, usd_per_million_output=8.0, source="",
        ...     read_on=None, provisioned=units)
        >>> prices.provisioned_usd_per_hour(peak_rate_per_s=1.5, tokens_per_request=1000)
        40.0
        """
        if self.provisioned is None:
            return None
        needed = peak_rate_per_s * 60.0 * tokens_per_request / self.provisioned.tokens_per_minute
        units = max(self.provisioned.minimum_units, int(-(-needed // 1)))
        return units * self.provisioned.usd_per_unit_hour


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
