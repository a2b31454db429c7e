"""`tonnage stop` and `tonnage cancel`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.cli.carry_out import Run
from tonnage.cli.declared import ReportSession
from tonnage.cli.session import Session

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended.")]


def stop(
    run: Run,
    now: Annotated[bool, typer.Option("--now", help="At once, without a checkpoint: as `tonnage cancel`.")] = False,
    wait: Wait = True,
    *,
    session: ReportSession,
) -> None:
    """Ask a run to write a checkpoint and end. `tonnage resume` goes on with it.

    A service answers what is under way, then ends; `service:NAME` names one where a run has the same name.
    """
    _end(session, run, at_once=now, wait=wait)


def cancel(
    run: Run,
    wait: Wait = True,
    *,
    session: ReportSession,
) -> None:
    """End a run at once, without a checkpoint. Earlier checkpoints stay."""
    _end(session, run, at_once=True, wait=wait)


def _end(session: Session, name: str, *, at_once: bool, wait: bool) -> None:
    from tonnage.api.home_runs import run_names
    from tonnage.api.services import end_service, find_service

    if name not in run_names(session.settings.home) and (service := find_service(name, session.settings)) is not None:
        with session.progress("waiting for what it answers"):
            ended = end_service(service, at_once=at_once, wait=wait)
        session.show_answer(ended)
        return
    with session.progress("ending at once" if at_once else "waiting for its checkpoint"):
        answer = api.stop(name, at_once=at_once, wait=wait, settings=session.settings, on_silence=session.say)
    session.show_answer(answer)
