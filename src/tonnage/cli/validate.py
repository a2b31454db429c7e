"""`tonnage validate`: predicted beside measured, for every row of a file of published or own measurements."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.api.judging import KEYS, ValidateOptions
from tonnage.cli import options
from tonnage.cli.declared import completing, opened_by
from tonnage.cli.meter import Meter
from tonnage.cli.session import Session

_KINDS = ("training", "inference")


def complete_kind(incomplete: str) -> list[str]:
    return [kind for kind in _KINDS if kind.startswith(incomplete)]


def complete_key(incomplete: str) -> list[str]:
    return [key for key in KEYS if key.startswith(incomplete)]


def validate(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", autocompletion=complete_kind, help="training or inference.", show_default=False),
    ],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A CSV table of measurements; its columns: docs/accuracy.md.", show_default=False
        ),
    ],
    asked: Annotated[ValidateOptions, completing(leave_out=complete_key)],
    memory_margin: options.MemoryMargin = None,
    *,
    session: Annotated[Session, opened_by("calibration", "catalog", "output", "quiet")],
) -> None:
    """Predict every row of a table of measurements and print the error: median, 90th percentile, bias, coverage.

    By metric, GPU and model family; rows that cannot be judged by reason; rows marked suspect apart.
    """
    with Meter(quiet=session.quiet) as meter:
        from tonnage import api

        answer = api.validate(
            kind, file, asked, memory_margin=memory_margin, settings=session.settings, on_rows=meter.rows,
            on_step=meter.step,
        )  # fmt: skip
    session.show_answer(answer)
