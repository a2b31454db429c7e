"""`tonnage doctor`."""

from __future__ import annotations

import typer

from tonnage.cli.declared import MarketSession


def doctor(
    *,
    session: MarketSession,
) -> None:
    """Check the installation and this machine: Python, extras and their versions, catalog, home, processor, GPUs, Java,
    environments of engines, disk, ports, other programs. What is amiss comes with the command that mends it. Exit code
    1 on a problem.
    """
    from tonnage.cli.examination import examine
    from tonnage.reports.environment import doctor_report

    checks = examine(session.settings)
    session.show(doctor_report(checks))
    if any(check.status == "problem" for check in checks):
        raise typer.Exit(1)
