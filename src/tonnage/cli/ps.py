"""`tonnage ps`: every run and its state."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.cli.declared import ReportSession


def ps(
    every: Annotated[bool, typer.Option("-a", "--all", help="Ended runs too.")] = False,
    *,
    session: ReportSession,
) -> None:
    """Runs that are under way, and those that were lost; with --all every run. The newest comes first. Services follow.

    A run whose supervisor is gone without a last word is `lost`: `tonnage resume` goes on with it.
    """
    from tonnage.api.home_runs import all_runs
    from tonnage.api.placing import look_at_place
    from tonnage.api.run_listing import run_listing
    from tonnage.api.services import service_lines
    from tonnage.runs.liveness import heartbeat_file

    runs = list(all_runs(session.settings))
    for run in runs:
        elsewhere = run.place_file.exists() or not heartbeat_file(run).exists()  # a client died before the record
        if elsewhere and (remark := look_at_place(session.settings, run)):
            session.say(remark)
    remark = "" if every else "--all lists ended runs too"
    lines = service_lines(session.settings)
    session.show(run_listing(runs, title="Runs", remark=remark, every=every, services=lines))
