"""Cheaper machines for what measured use needs: `tonnage.rightsize`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.catalogs import CatalogSource
    from tonnage.api.inputs import Clock
    from tonnage.rightsizing.rightsize import MachineFinding


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsizeOptions(Options):
    """Where `rightsize` looks for a cheaper machine, and how far above measured peaks it must reach."""

    headroom_fraction: float = option(
        "--headroom", "On top of every measured peak.", default=0.2, metavar="FRACTION", least=0, most=5
    )
    any_region: bool = option("--any-region", "Look in every region of the provider.", default=False)
    any_provider: bool = option("--any-provider", "Look at every provider, everywhere.", default=False)


def rightsize(
    usage: Path | str,
    options: RightsizeOptions | None = None,
    *,
    catalog: CatalogSource | None = None,
    as_of: Clock | None = None,
    settings: Settings | None = None,
) -> Answer[list[MachineFinding]]:
    """For each running machine of the table `usage` (CSV or JSON, docs/rightsizing.md) the cheaper one that still holds
    its measured use, and what it saves a month.

    A row may name a workload file, relative to the table's folder: then the workload must fit too. Raises InputError
    for a table that cannot be used, UnknownName for a machine that the catalog has not.
    """
    from tonnage.api.catalogs import market_of
    from tonnage.api.inputs import load_workload
    from tonnage.reports.rightsizing import rightsize_report
    from tonnage.rightsizing import parse_usage, usage_columns
    from tonnage.rightsizing import rightsize as find
    from tonnage.rightsizing.rightsize import Where
    from tonnage.workload.tables.reading import load_table

    options, settings = options or RightsizeOptions(), settings or current_settings(as_of=as_of)
    market = market_of(catalog, settings)
    where = Where(any_region=options.any_region, any_provider=options.any_provider, headroom=options.headroom_fraction)
    rows = parse_usage(load_table(usage, usage_columns(market)), str(usage), market)
    folder = Path(usage).parent
    jobs = [
        None if row.workload is None else load_workload(folder / row.workload, catalog=market, settings=settings)
        for row in rows
    ]
    found = [find(row, market, where, job) for row, job in zip(rows, jobs, strict=True)]
    return Answer(found, partial(rightsize_report, catalog=market))
