"""`tonnage rightsize`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.machines import RightsizeOptions
from tonnage.cli.declared import MarketSession


def rightsize(
    usage: Annotated[
        str, typer.Argument(metavar="USAGE", help="Measured use, a machine a row: CSV or JSON.", show_default=False)
    ],
    asked: RightsizeOptions,
    *,
    session: MarketSession,
) -> None:
    """Find for each running machine the cheaper one that still holds its measured use, and what it saves a month.

    It says what would change, what the next cheaper machine would break, and how sure it is. A row may name a workload
    file: then the workload must fit too.
    """
    with session.progress("comparing machines"):
        answer = api.rightsize(usage, asked, settings=session.settings)
    session.show_answer(answer)
