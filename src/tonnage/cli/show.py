"""`tonnage show RUN`: one run in full."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.cli.declared import ReportSession
from tonnage.cli.options import complete_run

Run = Annotated[
    str, typer.Argument(metavar="RUN", autocompletion=complete_run, help="The name of a run.", show_default=False)
]


def show(
    run: Run,
    *,
    session: ReportSession,
) -> None:
    """Show a run: what was asked, predicted beside measured and why they differ, loss, events, spend, files.

    Of a service that runs, what it costs now: an hour, 1,000 requests, a million tokens, beside its plan and prices per
    token. `service:NAME` names a service where a run has the same name.
    """
    from tonnage.api.home_runs import run_names
    from tonnage.api.services import find_service, show_service

    if run not in run_names(session.settings.home) and (service := find_service(run, session.settings)) is not None:
        with session.progress("pricing its requests"):
            shown = show_service(service, session.settings)
        session.show_answer(shown)
        return
    session.show_answer(api.show(run, settings=session.settings))
