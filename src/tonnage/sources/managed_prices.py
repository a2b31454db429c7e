"""Prices that are no machine-hours (tokens, DBU): gathered, settled where listed twice, read from a snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from tonnage.catalog.managed import ManagedPrices
from tonnage.catalog.managed_rows import TOKEN_UNIT, collect_managed, token_sku
from tonnage.catalog.rows import Row, read_rows
from tonnage.sources.results import MANAGED_COLUMNS, ManagedPriceRow, RowTally, SourceResult
from tonnage.workload.token_models import find_token_models, has_reach

FILE_NAME = "managed_prices.csv"
LARGEST_USD = 1e6


class ManagedBook:
    """Gathers rows; where a row's identity has two prices, neither is used."""

    def __init__(self, tally: RowTally) -> None:
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


def as_catalog(rows: Iterable[ManagedPriceRow]) -> ManagedPrices:
    """The rows as a catalog takes them; raises CatalogError on one that it would not load."""
    return collect_managed(
        Row(FILE_NAME, line, dict(zip(MANAGED_COLUMNS, row.cells(), strict=True)))
        for line, row in enumerate(rows, start=2)
    )


def overlay(*layers: Iterable[ManagedPriceRow]) -> tuple[ManagedPriceRow, ...]:
    """One row a key over all layers: the one of the latest day, of one day that of the later layer."""
    found: dict[tuple[str, ...], ManagedPriceRow] = {}
    for layer in layers:
        for row in layer:
            before = found.get(row.key)
            if before is None or row.day >= before.day:
                found[row.key] = row
    return tuple(found.values())


def with_known_names(rows: Iterable[ManagedPriceRow], models: Sequence[str]) -> tuple[ManagedPriceRow, ...]:
    """Token prices under the names that plans know: a price list says «Nova Lite» for `amazon.nova-lite-v1:0`.

    A model that is not one of `models`, or may be several, keeps the name it has.
    """
    here = [model for model in models if not has_reach(model)]
    found: dict[str, str] = {}
    renamed = []
    for row in rows:
        model, kind = token_sku(row.sku) if row.unit == TOKEN_UNIT else ("", "")
        if model and model not in found:
            same = find_token_models(model, here)
            found[model] = same[0] if len(same) == 1 else model
        renamed.append(replace(row, sku=f"{found[model]} {kind}") if model else row)
    return tuple(renamed)


def packaged_managed_prices() -> tuple[ManagedPriceRow, ...]:
    """The managed prices that come with Tonnage."""
    return _managed_rows(files("tonnage.catalog") / "data" / FILE_NAME)


def load_managed_prices(folder: Path) -> tuple[ManagedPriceRow, ...]:
    """The managed prices of a snapshot, none where it has no such file; raises CatalogError on a bad row."""
    path = folder / FILE_NAME
    return _managed_rows(path) if path.is_file() else ()


def _managed_rows(path: Traversable | Path) -> tuple[ManagedPriceRow, ...]:
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
