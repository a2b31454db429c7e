"""`tonnage sweep`: many trials of one run, by the best figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli.declared import ReportSession
from tonnage.cli.running import ReportedExit
from tonnage.cli.session import Session
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.sweeps.folder import SweepFolder
    from tonnage.sweeps.sweep import Sweep
    from tonnage.trials.study import OptunaStudy


def sweep(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A workload file with `run:` and `sweep:`.", show_default=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="[default: the file's own]", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a sweep that was stopped or killed.")] = False,
    show: Annotated[
        str | None,
        typer.Option("--show", metavar="NAME", help="Print the trials of a sweep; start nothing.", show_default=False),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on", metavar="PLACE", help="Carry trials out at this place of places.toml.", show_default=False
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Start in spite of doubts, without asking.")] = False,
    *,
    session: ReportSession,
) -> None:
    """Try many values of a run's keys, each trial a run of its own, and say which is best.

    Each trial is started as by `tonnage run`, under the name of the sweep and its number. Ctrl-C, and a limit of the
    sweep, let the trials under way save and end; after that, or a kill, --resume goes on: ended trials are kept.
    Exit code 4: stopped at a limit; 1: no trial came to its end; 130: stopped by someone.
    """
    if show is not None:
        _show(session, show)
        return
    if file is None:
        raise InputError("no workload file is named", hint="tonnage sweep FILE, or --show NAME")
    _carry_out(session, file, name, on=on, resume=resume, yes=yes)


def _show(session: Session, name: str) -> None:
    from tonnage.cli.sweeping import TrialRuns, result_of
    from tonnage.sweeps.folder import find_sweep
    from tonnage.sweeps.sweep import load_sweep
    from tonnage.trials.study import OptunaStudy

    folder = find_sweep(session.settings.home, name)
    sweep = load_sweep(folder.workload_file(), name=name)
    folder.check_same(sweep)
    study = OptunaStudy(folder.study_file, sweep.study)
    session.show(result_of(sweep, folder, study, TrialRuns(sweep, session.settings)))


def _carry_out(session: Session, file: Path, name: str | None, *, on: str | None, resume: bool, yes: bool) -> None:
    from tonnage.sweeps.folder import SweepFolder
    from tonnage.sweeps.sweep import load_sweep
    from tonnage.trials.study import OptunaStudy, find_optuna

    find_optuna()
    sweep = load_sweep(file, name=name)
    folder = SweepFolder(session.settings.home / "sweeps" / sweep.name)
    if resume:
        folder.check_same(sweep)
    else:
        _first_look(session, sweep, on=on, yes=yes)
        folder.begin(sweep)
    with folder.held():
        _session(session, sweep, folder, OptunaStudy(folder.study_file, sweep.study), on=on)


def _first_look(session: Session, sweep: Sweep, *, on: str | None, yes: bool) -> None:
    """Objections to the run are reported before the first trial, once for all trials."""
    from tonnage.api.home_runs import run_names
    from tonnage.api.launching import prepare_spec, refuse_cut_short
    from tonnage.cli.carry_out import confirm
    from tonnage.runs.reading import run_spec_of

    taken = [one for one in run_names(session.settings.home) if sweep.is_trial(one)]
    if taken and not (session.settings.home / "sweeps" / sweep.name / "sweep.json").exists():
        hint = "--name NAME gives the sweep, and with it its runs, another name"
        raise InputError(f"a run named '{taken[0]}' is there already", hint=hint)
    spec = replace(run_spec_of(sweep.checked, sweep.file), name=f"{sweep.name}-first-look", sweep=sweep.name)
    doubts = prepare_spec(session.settings, spec, on=on).doubts
    for doubt in doubts:
        session.say(f"doubtful: {doubt.message}" + (f" ({doubt.hint})" if doubt.hint else ""))
    if doubts and not yes:
        refuse_cut_short(doubts)
        confirm()


def _session(session: Session, sweep: Sweep, folder: SweepFolder, study: OptunaStudy, *, on: str | None) -> None:
    from tonnage.api.interrupting import terminations_interrupt
    from tonnage.cli.following import INTERRUPTED
    from tonnage.cli.sweeping import TrialRuns, result_of
    from tonnage.sweeps.engine import SweepSession
    from tonnage.trials.study import best_of

    terms = sweep.terms
    session.say(
        f"sweep {sweep.name} in {folder.path}: {sweep.trials} trials, {terms.parallel} at a time, "
        f"{sweep.direction} {sweep.figure}"
    )
    runs = TrialRuns(sweep, session.settings, on=on)
    with terminations_interrupt():
        ended = SweepSession(sweep, folder, study, runs, say=session.say).run()
    session.show(result_of(sweep, folder, study, runs))
    if ended.why == "interrupted":
        raise typer.Exit(ReportedExit(INTERRUPTED))
    if ended.why != "done":
        raise typer.Exit(ReportedExit(4))
    if best_of(study.tried(), sweep.direction) is None:
        raise typer.Exit(ReportedExit(1))
