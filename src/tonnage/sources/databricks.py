"""Databricks' rates in USD per DBU, from a table at an address or path of the user's: there is no public price API.

Two forms are read, each as CSV or JSON (a list of rows):
- an export of the system table `system.billing.list_prices`: `SELECT sku_name, cloud, currency_code, usage_unit,
  pricing.default AS price, price_start_time, price_end_time FROM system.billing.list_prices`. `pricing` may also be
  whole, as JSON. Documented at https://docs.databricks.com/admin/system-tables/pricing.html
- a table with the columns of `managed_prices.csv`, for DBU an instance-hour and the like.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from datetime import date
from typing import Any, Final

from tonnage.errors import SourceError
from tonnage.sources.fetching import FetchLimits, Watch, fetch_text
from tonnage.sources.listed_prices import read_price, read_text, require_usd
from tonnage.sources.machines import RowRejectedError
from tonnage.sources.managed_prices import LARGEST_USD, ManagedBook
from tonnage.sources.results import MANAGED_COLUMNS, ManagedPriceRow, RowTally, SourceResult
from tonnage.values import dataclass

PLATFORM: Final = "databricks"
LIST_PRICE_COLUMNS: Final = ("sku_name", "cloud", "currency_code", "usage_unit")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabricksSource:
    """The table at `location`, an address or a path."""

    location: str
    read_on: date
    limits: FetchLimits = FetchLimits()  # a frozen value
    watch: Watch | None = None

    @property
    def name(self) -> str:
        return "Databricks rate table"

    def fetch(self) -> SourceResult:
        """Read and parse the table; raises SourceError."""
        text = fetch_text(self.location, self.limits, self.watch)
        return parse_rates(text, read_on=self.read_on, name=self.name)


def parse_rates(text: str, *, read_on: date, name: str) -> SourceResult:
    """USD per DBU, a row a SKU and cloud; raises SourceError when the table is another."""
    rows = _rows(text, name)
    tally = RowTally(name)
    book = ManagedBook(tally)
    ours = bool(rows) and isinstance(rows[0], dict) and set(MANAGED_COLUMNS) <= set(rows[0])
    for row in rows:
        tally.read += 1
        try:
            if not isinstance(row, dict):
                raise RowRejectedError("a row that is no object")
            found = _as_it_stands(row, name) if ours else _list_price(row, name, tally, read_on)
        except RowRejectedError as rejection:
            cells: Mapping[str, Any] = row if isinstance(row, dict) else {}
            tally.quarantine(
                str(rejection), provider=PLATFORM, name=str(cells.get("sku_name") or cells.get("sku") or ""),
                region=str(cells.get("cloud") or cells.get("region_cloud") or ""), figure=_stated(cells),
            )  # fmt: skip
            continue
        if found is not None:
            book.add(found)
    return book.result()


def _rows(text: str, name: str) -> list[Any]:
    if text.lstrip()[:1] in ("[", "{"):
        try:
            table = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise SourceError(f"{name}: not JSON ({error})") from error
        if not isinstance(table, list):
            raise SourceError(f"{name}: not a list of rows")
        return table
    reader = csv.DictReader(text.splitlines(), strict=True)
    missing = [column for column in LIST_PRICE_COLUMNS if column not in (reader.fieldnames or ())]
    if missing and not set(MANAGED_COLUMNS) <= set(reader.fieldnames or ()):
        raise SourceError(f"{name}: column {', '.join(missing)} is missing", hint="docs/prices.md shows both forms")
    try:
        rows = list(reader)
    except csv.Error as error:
        raise SourceError(f"{name}: not CSV ({error})") from error
    if any(None in row or None in row.values() for row in rows):
        raise SourceError(f"{name}: a row with too many or too few cells", hint="is the file whole?")
    return rows


def _list_price(row: Mapping[str, Any], name: str, tally: RowTally, read_on: date) -> ManagedPriceRow | None:
    """A row of the system table; None where it no longer holds or is no DBU rate."""
    ends, starts = (str(row.get(f"price_{end}_time") or "")[:10] for end in ("end", "start"))
    if (ends and ends <= read_on.isoformat()) or starts > read_on.isoformat():
        tally.drop("a price of another time")
        return None
    if row.get("usage_unit") != "DBU":
        tally.drop("no rate of a DBU")
        return None
    require_usd(row.get("currency_code"))
    return ManagedPriceRow(
        platform=PLATFORM,
        sku=read_text(row, "sku_name"),
        unit="USD per DBU",
        price_usd=read_price(_stated(row), most=LARGEST_USD),
        region_cloud=read_text(row, "cloud").casefold(),
        conditions=f"list price since {starts}" if starts else "list price",
        date=read_on.isoformat(),
        source=name,
    )


def _stated(row: Mapping[str, Any]) -> object:
    """The price as the row states it: `price`, `price_usd`, or `pricing` with its key `default`."""
    for column in ("price", "price_usd"):
        if column in row:
            return row[column]
    pricing = row.get("pricing")
    if isinstance(pricing, str):
        try:
            pricing = json.loads(pricing)
        except json.JSONDecodeError:
            return pricing
    return pricing.get("default") if isinstance(pricing, dict) else pricing


def _as_it_stands(row: Mapping[str, Any], name: str) -> ManagedPriceRow:
    return ManagedPriceRow(
        platform=read_text(row, "platform"),
        sku=read_text(row, "sku"),
        unit=read_text(row, "unit"),
        price_usd=read_price(row.get("price_usd"), most=LARGEST_USD),
        region_cloud=str(row.get("region_cloud") or ""),
        conditions=str(row.get("conditions") or ""),
        date=str(row.get("date") or ""),
        source=str(row.get("source") or name),
    )
