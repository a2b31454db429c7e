"""`tonnage run` and `tonnage resume`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tonnage import api
from tonnage.api.failover import ANY, PLAN, place_of
from tonnage.api.runs import ResumeOptions, RunOptions
from tonnage.cli.declared import ReportSession, completing
from tonnage.cli.options import complete_run
from tonnage.cli.running import ReportedExit
from tonnage.cli.session import Session
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.api.launching import Launch
    from tonnage.runs.folder import RunFolder

_RUNNERS = ("local", "torchrun", "ray")
MOST_MOVES = 10  # of one run, under one `--on any`
_CLOUDS = ("aws", "gcp", "azure")


def complete_runner(incomplete: str) -> list[str]:
    return [name for name in _RUNNERS if name.startswith(incomplete)]


def complete_cloud(incomplete: str) -> list[str]:
    return [name for name in _CLOUDS if name.startswith(incomplete)]


_COMPLETIONS = {"runner": complete_runner, "notices": complete_cloud}
Detach = Annotated[bool, typer.Option("-d", "--detach", help="Do not follow the log; the run goes on alone.")]
Run = Annotated[str, typer.Argument(metavar="RUN", autocompletion=complete_run, help="A run's name.")]


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A workload file with a `run:` section, or a spec.json.")],
    asked: Annotated[RunOptions, completing(**_COMPLETIONS)],
    detach: Detach = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print command, environment and files; do nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("-y", "--yes", help="Start in spite of doubts and of a --max-cost below the prediction.")
    ] = False,
    *,
    session: ReportSession,
) -> None:
    """Run a workload on this machine, or at a place: train, survive interruptions, measure.

    What is predicted and what is doubtful comes first; fewer GPUs or less memory than needed ends it before the first
    step. The log goes to stderr, the outcome to stdout. Ctrl-C leaves the run running: `tonnage logs -f` comes back.
    Exit code 4: stopped at a limit, or refused; 5: lost to preemption; 130: stopped by someone.
    """
    from tonnage.api.launching import prepare, refuse_cut_short, start

    if dry_run and asked.on == ANY:
        raise InputError("a dry run asks no place, so it cannot tell which one can", hint="--on PLACE")
    launch = prepare(session.settings, file, asked.given(), dry_run=dry_run)
    if dry_run:
        from tonnage.reports.jobs import job_report, sent_report
        from tonnage.runs.job import dump_job

        prediction, doubts = launch.prediction, launch.doubts
        folder, sent = str(launch.folder.path), launch.submission
        session.show(
            job_report(launch.job, launch.spec, folder, prediction=prediction, doubts=doubts)
            if sent is None
            else sent_report(
                sent.commands, sent.script, dump_job(launch.job), folder, head=_head(launch), doubts=doubts
            )
        )
        return
    _announce(session, launch)
    if launch.doubts and not yes:
        refuse_cut_short(launch.doubts)
        confirm()
    start(launch)
    _go_on(session, launch.folder, detach=detach, anywhere=asked.on in {ANY, PLAN})


def resume(
    run: Run,
    asked: Annotated[ResumeOptions, completing(**_COMPLETIONS)],
    detach: Detach = False,
    *,
    session: ReportSession,
) -> None:
    """Continue a run that was stopped, failed or lost, from its newest valid checkpoint.

    Limits count what was used before; those given here replace the run's own. With other processes, or on another
    device, it is the same run: the same rows in the same steps.
    """
    from tonnage.api.home_runs import find_run
    from tonnage.runs.logs import lengths

    folder = find_run(session.settings, run)
    offsets = lengths(folder)
    api.resume(run, asked, settings=session.settings)
    session.say(f"{run} goes on")
    _go_on(session, folder, detach=detach, offsets=offsets, anywhere=asked.on == ANY)


def _head(launch: Launch) -> dict[str, Any]:
    """Where a run would go, and what is known of it before."""
    assert launch.submission is not None
    sent = launch.submission
    return {
        "place": sent.place,
        "kind": sent.kind,
        "tag": sent.tag,
        "cost": launch.cost,
        "plan": None if launch.planned is None else launch.planned.document(),
        "prediction": launch.prediction,
    }


def _announce(session: Session, launch: Launch) -> None:
    from tonnage.api.run_prediction import prediction_doubts, prediction_line
    from tonnage.reports.wording import plural

    where = f"{launch.spec.launch.runner}, {plural(launch.spec.launch.processes, 'process')}"
    there = "" if launch.executor is None else f" at {launch.executor.name}"
    session.say(f"run {launch.spec.name} ({launch.spec.task}; {where}){there} in {launch.folder.path}")
    if launch.planned is not None:
        session.say(launch.planned.line())
    session.say(prediction_line(launch.prediction))
    for line in prediction_doubts(launch.prediction):
        session.say(line)
    for doubt in launch.doubts:
        session.say(f"doubtful: {doubt.message}" + (f" ({doubt.hint})" if doubt.hint else ""))


def confirm() -> None:
    """Ask on a terminal; elsewhere the doubts are on stderr and the run starts."""
    if sys.stdin.isatty() and sys.stderr.isatty() and not typer.confirm("start it?", err=True):
        raise typer.Exit(4)


def _go_on(
    session: Session, folder: RunFolder, *, detach: bool, offsets: Mapping[str, int] | None = None,
    anywhere: bool = False,
) -> None:  # fmt: skip
    """Follow a run to its end. `anywhere`: where its place loses it, it goes on at the next one that can carry it.

    `offsets`: where in its logs the new words begin.
    """
    from tonnage.api.placing import collect_at, look_at_place
    from tonnage.api.run_listing import run_listing
    from tonnage.cli.following import exit_code, follow, last_words, to_stderr
    from tonnage.runs.logs import RunLogs
    from tonnage.runs.states import RunStatus

    name = folder.path.name
    if detach:
        session.say(f"{name} goes on alone; `tonnage logs -f {name}` follows it, `tonnage stop {name}` ends it")
        session.show(run_listing([folder], title="Started"))
        return
    quiet: Any = session.quiet
    try:
        printed = _nothing if quiet else to_stderr
        asks = partial(look_at_place, session.settings, folder)
        logs = RunLogs(folder, offsets=offsets or {})
        state = follow(folder, print_line=printed, quiet=quiet, logs=logs, settle=asks)
        for _ in range(MOST_MOVES if anywhere else 0):
            if state.state is not RunStatus.LOST:
                break
            session.say(f"{name} was lost at {place_of(folder)}: {state.message}")
            api.resume(name, ResumeOptions(on=ANY), settings=session.settings)
            session.say(f"{name} goes on at {place_of(folder)}")
            state = follow(folder, print_line=printed, quiet=quiet, logs=logs, settle=asks)
    except KeyboardInterrupt:
        session.say(f"\n{name} goes on alone; `tonnage logs -f {name}` follows it, `tonnage stop {name}` ends it")
        raise typer.Exit(0) from None
    if fault := collect_at(session.settings, folder):
        session.say(fault)
    session.say(last_words(folder, state))
    session.show(run_listing([folder], title="Ended"))
    raise typer.Exit(ReportedExit(exit_code(state)))


def _nothing(_: str) -> None:
    """The log stays in its file."""
