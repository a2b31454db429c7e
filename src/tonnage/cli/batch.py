"""`tonnage batch`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.batch_options import PLACES, TASKS, BatchOptions
from tonnage.cli.declared import ReportSession, completing
from tonnage.cli.meter import Meter
from tonnage.cli.running import INTERRUPTED
from tonnage.traffic.batch import BatchProgress


def complete_task(incomplete: str) -> list[str]:
    return [name for name in TASKS if name.startswith(incomplete)]


def complete_place(incomplete: str) -> list[str]:
    return [name for name in PLACES if name.startswith(incomplete)]


def batch(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="Requests: JSON lines or .parquet; a file or s3://, gs://, az://.", show_default=False
        ),
    ],
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="Answers, JSON lines: a file or an object.", show_default=False)
    ],
    asked: Annotated[BatchOptions, completing(task=complete_task, on=complete_place)],
    *,
    session: ReportSession,
) -> None:
    """Carry requests through a service, each answered once: the same command goes on after a kill, with what is left.

    A service that cannot be reached is named after a few seconds. Exit code 1: rows have no answer (OUT.errors.jsonl
    says why), or the service refuses; 4: stopped at --max-cost, --deadline or --patience; 130: interrupted, with the
    answers on their way recorded.
    """
    with Meter(quiet=session.quiet) as meter:
        from tonnage.api.planned_batches import read_planned
        from tonnage.reports.batch import progress_line

        planned = None if asked.plan is None else read_planned(asked.plan)

        away = ""

        def show(progress: BatchProgress) -> None:
            """The line of progress; where the service went away, or came back, a line that stays."""
            nonlocal away
            if bool(progress.away) != bool(away):
                session.say(progress.away or "it answers again")
            away = progress.away
            meter.show(progress_line(progress, planned))

        answer = api.batch(
            source, out, asked, on_check=lambda rows: meter.show(f"{rows:,} rows checked"), on_progress=show
        )
    if answer.found.ending != "interrupted":
        session.show_answer(answer)
        return
    session.show(answer.report())
    session.say("the same command goes on with what is left")
    raise typer.Exit(INTERRUPTED)
