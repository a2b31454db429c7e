"""`tonnage doctor`."""

from __future__ import annotations

import typer

from tonnage.cli import options
from tonnage.cli.session import open_session


def doctor(
    catalog: options.CatalogFolder = None,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Check the installation: Python, extras, catalog, home folder, terminal, GPU. Exit code 1 on a problem."""
    session = open_session(output=output, as_of=as_of, catalog=catalog, quiet=quiet)
    from tonnage.cli.examination import examine
    from tonnage.reports.environment import doctor_report

    checks = examine(session.settings)
    session.show(doctor_report(checks))
    if any(check.status == "problem" for check in checks):
        raise typer.Exit(1)
