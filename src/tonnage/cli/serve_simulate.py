"""`tonnage serve simulate`: autoscalers side by side on a load."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.api.scaling import ScalingOptions
from tonnage.cli.declared import ReportSession, completing
from tonnage.cli.meter import Meter

_KINDS = ("steady", "waves", "daily", "ramps", "on-off", "spikes", "rare-spikes", "silent-nights")


def complete_kind(incomplete: str) -> list[str]:
    return [name for name in _KINDS if name.startswith(incomplete)]


def complete_tuning(incomplete: str) -> list[str]:
    return [name for name in ("hindsight", "past") if name.startswith(incomplete)]


def simulate(
    asked: Annotated[ScalingOptions, completing(burst=complete_kind, tuning=complete_tuning)],
    trace: Annotated[
        str | None,
        typer.Argument(metavar="[TRACE]", help="Requests, CSV; the columns: docs/scaling.md.", show_default=False),
    ] = None,
    *,
    session: ReportSession,
) -> None:
    """Replay a load against autoscalers: the promises they keep and the replica-hours they take.

    Each rival is tuned over its main parameter. Nothing is started; a trace without requests is bad input, exit 2.
    """
    with Meter(quiet=session.quiet) as meter:
        from tonnage import api

        answer = api.simulate_scaling(trace, asked, on_step=meter.show)
    session.show_answer(answer)
