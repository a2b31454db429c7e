"""`tonnage predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tonnage.cli import options
from tonnage.cli.carry_out import Run
from tonnage.cli.evaluate import Batch, Columns, DeviceName, known_device, pairs_of
from tonnage.cli.session import open_session


def predict(
    run: Run,
    data: Annotated[
        str, typer.Option("--data", metavar="FILE", help="Rows; `-` reads JSON lines from stdin.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE.jsonl", help="Where the answers are written.", show_default=False)
    ],
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="COLUMN[=NAME]", help="A column that is passed on; may be repeated."),
    ] = None,
    column: Columns = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first rows.", show_default=False)
    ] = None,
    batch: Batch = None,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", metavar="N", min=1, help="Of a model that writes text.")
    ] = 64,
    device: DeviceName = "auto",
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """What the finished model of a run says of each row: one line of JSON a row, in order.

    Memory does not grow with the rows. A kill or Ctrl-C leaves FILE.jsonl.part: the same command goes on with it, and
    FILE.jsonl appears once all rows are answered.
    """
    session = open_session(output=output, quiet=quiet)
    from tonnage.cli.home_runs import find_run
    from tonnage.cli.meter import Meter
    from tonnage.recipes.predicting import Asked, predict
    from tonnage.reports.answers import predicted_rows_report

    folder = find_run(session.settings, run)
    asked = Asked(
        data=data,
        out=out,
        columns=pairs_of(column or [], "--column"),
        keep=pairs_of(keep or [], "--keep", alone=True),
        batch=batch,
        limit=limit,
        max_new_tokens=max_new_tokens,
        device=known_device(device),
    )
    with Meter(quiet=session.quiet) as meter:
        meter.show(f"loading the model of {run} ...")

        def progress(done: int, rate: float | None) -> None:
            meter.show(f"{done:,} rows" + ("" if rate is None else f", {rate:,.1f} rows/s"))

        found = predict(folder, asked, progress=progress)
    if found.thrown_away:
        session.say("what was in the .part file came of another model, other rows or settings: begun anew")
    values = {
        "run": run,
        "rows": found.rows,
        "resumed_at_row": found.resumed_at,
        "seconds": round(found.seconds, 3),
        "rows_per_s": found.rows_per_s,
        "device": found.device,
        "data": data,
        "out": str(out),
    }
    session.show(predicted_rows_report(values))
