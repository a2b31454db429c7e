"""`tonnage stop` and `tonnage cancel`."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tonnage.cli import options
from tonnage.cli.carry_out import Run
from tonnage.cli.session import Session, open_session

if TYPE_CHECKING:
    from tonnage.runs.folder import RunFolder

LOOK_EVERY_S: Final = 0.1
SILENT_S: Final = 60.0  # a step, an evaluation or a save may take that long
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended.")]


def stop(
    run: Run,
    now: Annotated[bool, typer.Option("--now", help="At once, without a checkpoint: as `tonnage cancel`.")] = False,
    wait: Wait = True,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Ask a run to write a checkpoint and end. `tonnage resume` goes on with it."""
    _end(open_session(output=output, quiet=quiet), run, at_once=now, wait=wait)


def cancel(run: Run, wait: Wait = True, output: options.Output = None, quiet: options.Quiet = False) -> None:
    """End a run at once, without a checkpoint. Earlier checkpoints stay."""
    _end(open_session(output=output, quiet=quiet), run, at_once=True, wait=wait)


def _end(session: Session, name: str, *, at_once: bool, wait: bool) -> None:
    from tonnage.api.home_runs import find_run
    from tonnage.cli.launching import runner_of
    from tonnage.cli.ps import run_listing
    from tonnage.errors import InputError
    from tonnage.runs.liveness import has_supervisor

    folder = find_run(session.settings, name)
    runner = runner_of(folder)
    state = runner.status(folder)
    if state.state.ended and not has_supervisor(folder) and not _has_workers(folder):
        raise InputError(f"'{name}' has ended: {state.state.value}", hint="`tonnage ps` lists runs under way")
    ask = runner.cancel if at_once else runner.stop
    ask(folder, by="cli", reason="asked for by `tonnage cancel`" if at_once else "asked for by `tonnage stop`")
    if wait:
        with session.progress("ending at once" if at_once else "waiting for its checkpoint"):
            said_at = time.monotonic() + SILENT_S
            while has_supervisor(folder) or _has_workers(folder):
                time.sleep(LOOK_EVERY_S)
                if not at_once and time.monotonic() >= said_at:
                    said_at = math.inf
                    session.say(f"no answer for {SILENT_S:.0f} s: `tonnage cancel {name}` ends it without a checkpoint")
    session.show(run_listing([folder], title="Ended" if wait else "Asked to end"))


def _has_workers(folder: RunFolder) -> bool:
    from tonnage.runs.liveness import is_held, workers_lock

    return is_held(workers_lock(folder))
