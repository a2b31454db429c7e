"""`tonnage compare`: platforms compared for one's own work."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.cli import options
from tonnage.cli.comparison_report import report_comparison

CompareFile = Annotated[
    str | None,
    typer.Argument(metavar="[FILE]", help="A compare file, NAME.tonnage.yaml with kind: compare.", show_default=False),
]
ReportFiles = Annotated[
    list[str] | None,
    typer.Option("--report", metavar="FILE", help="Write the report: .html, .md, .json or .csv; may be repeated."),
]
MigrationFiles = Annotated[
    list[str] | None,
    typer.Option("--migration", metavar="FILE", help="Write the migration plan: .csv, .ics or .md; may be repeated."),
]
ProfileFolders = Annotated[
    list[str] | None,
    typer.Option("--profiles", metavar="FOLDER", help="Platform profiles of your own, *.yaml; may be repeated."),
]


def compare(
    file: CompareFile = None,
    report: ReportFiles = None,
    migration: MigrationFiles = None,
    profiles: ProfileFolders = None,
    memory_margin: options.MemoryMargin = None,
    calibration: options.CalibrationFile = None,
    max_price_age: options.MaxPriceAge = None,
    catalog: options.CatalogFolder = None,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Compare platforms for your own work: cost, speed, fit, scores, decision, recommendation, migration.

    What can be computed is computed by the planner; judgements carry source and date; what is not known says so.
    """
    # The place of `--check FILE.md`: it goes before this and needs no FILE.
    if file is None:
        from tonnage.errors import InputError

        raise InputError("nothing to compare", hint="give a compare file: tonnage compare FILE.tonnage.yaml")
    report_comparison(
        file, report or [], migration or [], profiles or [], memory_margin=memory_margin, calibration=calibration,
        max_price_age=max_price_age, catalog=catalog, as_of=as_of, output=output, quiet=quiet,
    )  # fmt: skip
