"""`tonnage doctor`."""

from __future__ import annotations

import typer

from tonnage import api
from tonnage.cli.declared import MarketSession


def doctor(
    *,
    session: MarketSession,
) -> None:
    """Check the installation and this machine: Python, extras and their versions, catalog, home, processor, GPUs, Java,
    environments of engines, disk, ports, other programs. What is amiss comes with the command that mends it. Exit code
    1 on a problem.
    """
    answer = api.doctor(settings=session.settings)
    session.show(answer.report())  # its title says what the fault says
    if answer.fault is not None:
        raise typer.Exit(1)
