"""`tonnage gains`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.promised_gains import GainsOptions
from tonnage.cli.declared import MarketSession


def gains(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The workload file.", show_default=False)],
    asked: GainsOptions,
    *,
    session: MarketSession,
) -> None:
    """Show what promised gains come to for this workload: spot, autoscaling, right-sizing, Arm, H100 and A100.

    Documents promise 60 to 80 % by spot, 40 % by autoscaling, 25 % by right-sizing, 20 % by Arm processors, 10 times
    by an H100 and 6 times by an A100. Each is computed from catalog, plan and predictor, with an interval and how it
    came about; what cannot be computed says what is missing.
    """
    with session.progress("planning"):
        answer = api.gains(file, asked, settings=session.settings)
    session.show_answer(answer)
