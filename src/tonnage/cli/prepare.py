"""`tonnage prepare`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.preparing import PrepareOptions
from tonnage.cli.declared import ReportSession


def prepare(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file with `prepare:`.", show_default=False)],
    asked: PrepareOptions,
    *,
    session: ReportSession,
) -> None:
    """Join, window, encode and tokenise rows: DuckDB on this machine, Spark on many, the same result on each.

    Sources and result are CSV, JSONL, Parquet or Delta tables with versions. A missing column, a cell of another type
    and a key that two rows have are reported with source, column, key and line; nothing is written then. --stream takes
    files as they arrive in a folder, in micro-batches of which each row is written once, killed or not.
    """
    with session.progress("preparing"):
        answer = api.prepare(file, asked)
    session.show_answer(answer)
