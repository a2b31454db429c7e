"""`tonnage rightsize`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tonnage.cli import options
from tonnage.cli.session import open_session


def rightsize(
    usage: Annotated[
        str, typer.Argument(metavar="USAGE", help="Measured use, a machine a row: CSV or JSON.", show_default=False)
    ],
    headroom: Annotated[
        float, typer.Option("--headroom", metavar="FRACTION", min=0, max=5, help="On top of every measured peak.")
    ] = 0.2,
    any_region: Annotated[bool, typer.Option("--any-region", help="Look in every region of the provider.")] = False,
    any_provider: Annotated[bool, typer.Option("--any-provider", help="Look at every provider, everywhere.")] = False,
    catalog: options.CatalogFolder = None,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Find for each running machine the cheaper one that still holds its measured use, and what it saves a month.

    It says what would change, what the next cheaper machine would break, and how sure it is. A row may name a workload
    file: then the workload must fit too.
    """
    session = open_session(output=output, as_of=as_of, catalog=catalog, quiet=quiet)
    with session.progress("comparing machines"):
        from tonnage import api
        from tonnage.reports.rightsizing import rightsize_report
        from tonnage.rightsizing import parse_usage, usage_columns
        from tonnage.rightsizing import rightsize as find
        from tonnage.rightsizing.rightsize import Where
        from tonnage.workload.tables.reading import load_table

        market = api.load_catalog(settings=session.settings)
        where = Where(any_region=any_region, any_provider=any_provider, headroom=headroom)
        rows = parse_usage(load_table(usage, usage_columns(market)), usage, market)
        workloads = [
            None
            if row.workload is None
            else api.load_workload(Path(usage).parent / row.workload, catalog=market, settings=session.settings)
            for row in rows
        ]
        findings = [find(row, market, where, job) for row, job in zip(rows, workloads, strict=True)]
    session.show(rightsize_report(findings, market))
