"""Prices that are no machine-hours (tokens, DBU): gathered, settled where listed twice, read from a snapshot."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from pathlib import Path

from tonnage.catalog.rows import read_rows
from tonnage.sources.results import MANAGED_COLUMNS, ManagedPriceRow, SourceResult, Tally

FILE_NAME = "managed_prices.csv"
LARGEST_USD = 1e6


class ManagedBook:
    """Gathers rows; where a row's identity has two prices, neither is used."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._rows: dict[tuple[str, ...], list[ManagedPriceRow]] = defaultdict(list)

    def add(self, row: ManagedPriceRow) -> None:
        """One listed price."""
        self._rows[row.key].append(row)

    def result(self) -> SourceResult:
        """One row an identity; the others are quarantined with the reason."""
        found = []
        for rows in self._rows.values():
            several = len({row.price_usd for row in rows}) > 1
            for row in rows if several else rows[1:]:
                reason = "two prices for one row" if several else "the same row twice"
                self._tally.quarantine(
                    reason, provider=row.platform, name=row.sku, region=row.region_cloud, purchase=row.unit,
                    figure=row.price_usd,
                )  # fmt: skip
            if not several:
                self._tally.used += 1
                found.append(rows[0])
        return SourceResult(
            instances=(),
            offers=(),
            report=self._tally.report(),
            managed=tuple(found),
            quarantined=tuple(self._tally.quarantined),
        )


def load_managed_prices(folder: Path) -> tuple[ManagedPriceRow, ...]:
    """The managed prices of a snapshot, none where it has no such file; raises CatalogError on a bad row."""
    path = folder / FILE_NAME
    if not path.is_file():
        return ()
    rows = []
    for row in read_rows(path, MANAGED_COLUMNS):
        price: Decimal = row.price("price_usd", LARGEST_USD)
        cells = row.cells
        rows.append(
            ManagedPriceRow(
                platform=row.text("platform"), sku=row.text("sku"), unit=row.text("unit"), price_usd=price,
                region_cloud=cells["region_cloud"], conditions=cells["conditions"], date=cells["date"],
                source=row.text("source"),
            )
        )  # fmt: skip
    return tuple(rows)
