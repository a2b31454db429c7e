"""Steps that follow one another: `tonnage.run_pipeline`, `tonnage.show_pipeline`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import TonnageError, UnknownName, did_you_mean, nearest
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.pipelines.engine import PipelineOutcome
    from tonnage.pipelines.pipeline import Pipeline
    from tonnage.pipelines.report import StepLine
    from tonnage.reports.rendering import Report

Lines = tuple["StepLine", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions(Options):
    """Which steps `run_pipeline` does again, and whether it does any."""

    again: tuple[str, ...] = option(
        "--again", "Do this step and all after it again, up to date or not.", default=(), metavar="STEP"
    )
    dry_run: bool = option("--dry-run", "Print each step's command; start nothing.", default=False)


def run_pipeline(
    file: Path | str,
    options: PipelineOptions | None = None,
    *,
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> Answer[Lines]:
    """Do every step of the pipeline file that is not up to date, each after the steps it needs; a line for each.

    `say` receives progress messages. After a failure the same call goes on where it stopped. The answer's fault is
    StepFailed where a step failed. Raises InputError for a file that cannot be used, UnknownName for a step that it has
    not.
    """
    from tonnage.pipelines import load_pipeline
    from tonnage.pipelines.engine import PipelineEngine

    options, home = options or PipelineOptions(), (settings or current_settings()).home
    pipeline = load_pipeline(Path(file))
    forced = _forced(pipeline, options.again)
    if options.dry_run:
        return Answer(_commands(pipeline, home), partial(_report, pipeline=pipeline))
    tell = say or _silent
    tell(f"pipeline {pipeline.name}: {len(pipeline.steps)} steps")
    outcome = PipelineEngine(home=home, say=tell, forced=forced).run(pipeline)
    fault = _failure(pipeline, outcome, home, str(file))
    return Answer(_lines(pipeline, outcome), partial(_report, pipeline=pipeline), fault)


def show_pipeline(
    file: Path | str, *, settings: Settings | None = None, say: Callable[[str], None] | None = None
) -> Answer[Lines]:
    """The steps of a pipeline file, in their order, and what each last ended with. Starts nothing.

    Raises InputError for a file that cannot be used.
    """
    from tonnage.pipelines import load_pipeline
    from tonnage.pipelines.engine import PipelineEngine
    from tonnage.pipelines.report import StepLine

    pipeline, home = load_pipeline(Path(file)), (settings or current_settings()).home
    records = PipelineEngine(home=home, say=say or _silent).records(pipeline)
    lines = []
    for step in pipeline.steps:
        result = records.get(step.name)
        state = "never" if result is None else "done" if result.stands(pipeline.folder, home) else "stale"
        lines.append(StepLine(step=step, state=state, result=result))
    return Answer(tuple(lines), partial(_report, pipeline=pipeline))


def _report(lines: Lines, *, pipeline: Pipeline) -> Report:
    from tonnage.pipelines.report import pipeline_report

    return pipeline_report(pipeline, lines)


def _failure(pipeline: Pipeline, outcome: PipelineOutcome, home: Path, file: str) -> TonnageError | None:
    from tonnage.pipelines.engine import StepFailed

    if not outcome.failed:
        return None
    name, said = next(iter(outcome.failed.items()))
    log = home / "pipelines" / pipeline.name / "logs" / f"{name}.log"
    return StepFailed(f"step '{name}': {said}", hint=f"log: {log}; `tonnage pipeline run {file}` goes on from there")


def _forced(pipeline: Pipeline, again: tuple[str, ...]) -> frozenset[str]:
    names = [step.name for step in pipeline.steps]
    for name in again:
        if name not in names:
            found = nearest(name, names, count=1)
            raise UnknownName(f"no step is named '{name}'", hint=did_you_mean(found, f"steps: {', '.join(names)}"))
    return pipeline.after(frozenset(again))


def _lines(pipeline: Pipeline, outcome: PipelineOutcome) -> Lines:
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


def _commands(pipeline: Pipeline, home: Path) -> Lines:
    """Each step with its command line; the end of a run's name is known only once its inputs are there."""
    from tonnage.pipelines.commands import render_command
    from tonnage.pipelines.report import StepLine

    lines = []
    for step in pipeline.steps:
        run = f"{pipeline.name}-{step.of or step.name}-FINGERPRINT"
        command = shlex.join(render_command(pipeline, step, run=run, home=home))
        lines.append(StepLine(step=step, state="planned", message=command))
    return tuple(lines)


def _silent(text: str) -> None:
    del text
