"""`tonnage spot`: replay policies over recorded spot, fit how long spot lasts, judge spot for one job."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.api import spot
from tonnage.api.spot import ZONES, AdviseOptions, ReplayOptions
from tonnage.cli.declared import Commands, ReportSession, completing
from tonnage.cli.meter import Meter

commands = Commands(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Spot under a deadline: replay policies over traces, fit lifetimes, judge spot for a job.",
)


def complete_zones(incomplete: str) -> list[str]:
    return [name for name in ZONES if name.startswith(incomplete)]


Traces = Annotated[
    list[str],
    typer.Argument(metavar="TRACE...", help="Spot traces, JSON; their format: docs/spot.md.", show_default=False),
]


@commands.command("replay", short_help="Policies side by side over recorded spot")
def replay(
    traces: Traces,
    asked: Annotated[ReplayOptions, completing(zones=complete_zones)],
    *,
    session: ReportSession,
) -> None:
    """Replay a job with a deadline over recorded spot, from random starts, under every policy and the offline optimum.

    Costs are in multiples of the whole job on demand. A deadline that even on-demand would miss is bad input, exit 2.
    """
    with Meter(quiet=session.quiet) as meter:
        answer = spot.replay(traces, asked, on_step=meter.show)
    session.show_answer(answer)


@commands.command("fit", short_help="How long spot lasts: hazards, Weibull shapes, a model file")
def fit(
    traces: Traces,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write the hazard model here, JSON.", show_default=False),
    ] = None,
    *,
    session: ReportSession,
) -> None:
    """Fit spot lifetimes: preemption hazard by age, Weibull shapes, availability and prices, by zone and accelerator.

    With traces of several families each is left out in turn, and its lifetimes judged by a fit on the others.
    """
    with session.progress("fitting"):
        answer = spot.fit(traces, out=out)
    session.show_answer(answer)


@commands.command("advise", short_help="Expected hours, bill, checkpoint interval; refuses what cannot hold")
def advise(
    asked: AdviseOptions,
    *,
    session: ReportSession,
) -> None:
    """Judge spot for one job: expected hours and bill, the best checkpoint interval, the chance to miss a deadline.

    Exit code 4, with the expected hours, where spot without checkpoints diverges or a deadline cannot be kept.
    """
    with session.progress("computing"):
        answer = spot.advise(asked, settings=session.settings)
    session.show_answer(answer)
