"""`tonnage pipeline`: steps that follow one another, done once and again only where something changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli import options
from tonnage.cli.session import Session, open_session

if TYPE_CHECKING:
    from tonnage.pipelines.engine import Outcome
    from tonnage.pipelines.pipeline import Pipeline
    from tonnage.pipelines.report import StepLine
    from tonnage.reports.rendering import Report

commands = typer.Typer(no_args_is_help=True, help="Steps that follow one another: prepare, train, evaluate, register.")
File = Annotated[Path, typer.Argument(metavar="FILE", help="NAME.pipeline.yaml", show_default=False)]


@commands.command("run")
def run(
    file: File,
    again: Annotated[
        list[str] | None,
        typer.Option("--again", metavar="STEP", help="Do this step and all after it again, up to date or not."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print each step's command; start nothing.")] = False,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Do every step that is not up to date, each after the steps it needs.

    A step is up to date where its command, the files it reads, what the steps before it left and what it wrote are
    as they were. After a failure, or Ctrl-C, the same command goes on where it stopped.
    """
    from tonnage.pipelines import load_pipeline

    session = open_session(output=output, quiet=quiet)
    pipeline = load_pipeline(file)
    forced = _forced(pipeline, again or [])
    if dry_run:
        session.show(_commands(pipeline, session.settings.home))
        return
    from tonnage.pipelines.engine import Engine, StepFailed
    from tonnage.pipelines.report import pipeline_report

    session.say(f"pipeline {pipeline.name}: {len(pipeline.steps)} steps")
    outcome = Engine(home=session.settings.home, say=session.say, forced=forced).run(pipeline)
    session.show(pipeline_report(pipeline, _lines(pipeline, outcome)))
    if outcome.failed:
        name, said = next(iter(outcome.failed.items()))
        log = session.settings.home / "pipelines" / pipeline.name / "logs" / f"{name}.log"
        raise StepFailed(f"step '{name}': {said}", hint=f"log: {log}; `tonnage pipeline run {file}` goes on from there")


@commands.command("show")
def show(
    file: File,
    graph: Annotated[bool, typer.Option("--graph", help="The steps and arrows as a Mermaid flowchart.")] = False,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """The steps, in their order, and what each last ended with. Starts nothing."""
    from tonnage.cli.streams import write_stdout
    from tonnage.pipelines import load_pipeline

    session = open_session(output=output, quiet=quiet)
    pipeline = load_pipeline(file)
    if graph:
        from tonnage.pipelines.report import render_graph

        write_stdout(render_graph(pipeline))
        return
    _show_records(session, pipeline)


def _show_records(session: Session, pipeline: Pipeline) -> None:
    from tonnage.pipelines.engine import Engine
    from tonnage.pipelines.report import StepLine, pipeline_report

    home = session.settings.home
    records = Engine(home=home, say=session.say).records(pipeline)
    lines = []
    for step in pipeline.steps:
        result = records.get(step.name)
        state = "never" if result is None else "done" if result.stands(pipeline.folder, home) else "stale"
        lines.append(StepLine(step=step, state=state, result=result))
    session.show(pipeline_report(pipeline, tuple(lines)))


def _forced(pipeline: Pipeline, again: list[str]) -> frozenset[str]:
    from tonnage.errors import UnknownName, did_you_mean, nearest

    names = [step.name for step in pipeline.steps]
    for name in again:
        if name not in names:
            found = nearest(name, names, count=1)
            raise UnknownName(f"no step is named '{name}'", hint=did_you_mean(found, f"steps: {', '.join(names)}"))
    return pipeline.after(frozenset(again))


def _lines(pipeline: Pipeline, outcome: Outcome) -> tuple[StepLine, ...]:
    from tonnage.pipelines.report import StepLine

    lines = []
    for step in pipeline.steps:
        result = outcome.results.get(step.name)
        if step.name in outcome.failed:
            lines.append(StepLine(step=step, state="failed", message=outcome.failed[step.name]))
        elif result is None:
            lines.append(StepLine(step=step, state="skipped", message="a step it needs failed"))
        else:
            lines.append(StepLine(step=step, state="up to date" if result.cached else "done", result=result))
    return tuple(lines)


def _commands(pipeline: Pipeline, home: Path) -> Report:
    """Each step with its command line; the end of a run's name is known only once its inputs are there."""
    import shlex

    from tonnage.pipelines.commands import render_command
    from tonnage.pipelines.report import StepLine, pipeline_report

    lines = []
    for step in pipeline.steps:
        run = f"{pipeline.name}-{step.of or step.name}-FINGERPRINT"
        command = shlex.join(render_command(pipeline, step, run=run, home=home))
        lines.append(StepLine(step=step, state="planned", message=command))
    return pipeline_report(pipeline, tuple(lines))
