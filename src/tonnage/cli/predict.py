"""`tonnage predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tonnage import api
from tonnage.api.trained import DEVICES, EvaluateOptions, PredictOptions
from tonnage.cli.carry_out import Run
from tonnage.cli.declared import ReportSession, completing
from tonnage.cli.meter import Meter


def predict(
    run: Run,
    data: Annotated[
        str, typer.Option("--data", metavar="FILE", help="Rows; `-` reads JSON lines from stdin.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE.jsonl", help="Where the answers are written.", show_default=False)
    ],
    asked: Annotated[PredictOptions, completing(device=complete_device)],
    *,
    session: ReportSession,
) -> None:
    """What the finished model of a run says of each row: one line of JSON a row, in order.

    Memory does not grow with the rows. A kill or Ctrl-C leaves FILE.jsonl.part: the same command goes on with it, and
    FILE.jsonl appears once all rows are answered.
    """
    with Meter(quiet=session.quiet) as meter:

        def progress(done: int, rate: float | None) -> None:
            meter.show(f"{done:,} rows" + ("" if rate is None else f", {rate:,.1f} rows/s"))

        meter.show(f"loading the model of {run} ...")
        answer = api.predict(run, data, out, asked, settings=session.settings, on_rows=progress)
    session.show_answer(answer)


def complete_device(incomplete: str) -> list[str]:
    return [name for name in DEVICES if name.startswith(incomplete)]


def evaluate(
    run: Run,
    asked: Annotated[EvaluateOptions, completing(device=complete_device)],
    *,
    session: ReportSession,
) -> None:
    """How good the finished model of a run is, on its test rows (its validation rows where it has none) or on FILE.

    FILE has the columns of the run's own rows. Its labels must be those the model has learned.
    """
    with session.progress(f"judging {run}"):
        answer = api.evaluate(run, asked, settings=session.settings)
    session.show_answer(answer)
