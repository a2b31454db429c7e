"""`tonnage show RUN`: one run in full."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.cli import options
from tonnage.cli.options import complete_run
from tonnage.cli.session import open_session

Run = Annotated[
    str, typer.Argument(metavar="RUN", autocompletion=complete_run, help="The name of a run.", show_default=False)
]


def show(run: Run, output: options.Output = None, quiet: options.Quiet = False) -> None:
    """Show a run: what was asked, predicted beside measured and why they differ, loss, events, spend, files."""
    session = open_session(output=output, quiet=quiet)
    from tonnage import api

    session.show_answer(api.show(run, settings=session.settings))
