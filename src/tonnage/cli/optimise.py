"""`tonnage optimise`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.optimising import OptimiseOptions
from tonnage.cli.declared import MarketSession


def optimise(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The workload file.", show_default=False)],
    asked: OptimiseOptions,
    *,
    session: MarketSession,
) -> None:
    """Show what to switch on for this work: number formats, compilation, engines, threads, allocators, slices of cards.

    Each switch has the gain that the predictor expects on the device, with an interval; what it does not know is
    unknown. With --measure each is measured on this machine, in a process of its own, turn by turn, with the accuracy
    before and after; a switch that loses more than --max-loss is refused. After Ctrl-C or a termination the report is
    of the turns that were measured, with exit code 130.
    """
    from tonnage.api.interrupting import terminations_interrupt

    with session.progress("predicting" if not asked.measure else "measuring"), terminations_interrupt():
        answer = api.optimise(file, asked, settings=session.settings, say=session.say)
    session.show_answer(answer)
