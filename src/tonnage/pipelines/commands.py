"""The command line of a step, complete: what `--dry-run` prints and the engine starts."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tonnage.pipelines.fingerprints import run_folder
from tonnage.pipelines.pipeline import Pipeline, PipelineStep
from tonnage.pipelines.reading import NEEDED
from tonnage.runs import RunStatus
from tonnage.runs.liveness import observed_state

TONNAGE = (sys.executable, "-m", "tonnage")


def render_command(pipeline: Pipeline, step: PipelineStep, *, run: str, home: Path) -> tuple[str, ...]:
    """What is started for a step. `run` is the run's own name for a run step, else that of the model it uses.

    A run step goes on where an earlier try ended: it resumes a run that stopped or whose supervisor is gone, follows
    one that still runs, and only shows one that ended well while no pipeline was there to note it.
    """
    match step.kind:
        case "command":
            return tuple(_filled(word, pipeline, step) for word in step.command)
        case "run":
            return _run_command(str(step.workload), run, home)
        case "evaluate":
            return (*TONNAGE, "evaluate", run, *_data(pipeline, step), "--output", "json")
        case "register":
            alias = ("--alias", step.alias) if step.alias else ()
            return (*TONNAGE, "runs", "register", run, "--as", str(step.register_as), *alias)
        case "predict":
            return (*TONNAGE, "predict", run, *_data(pipeline, step), "--out", dict(step.outputs)["output"])


def _run_command(workload: str, run: str, home: Path) -> tuple[str, ...]:
    folder = run_folder(home, run)
    if not folder.spec_file.exists():
        return (*TONNAGE, "run", workload, "--name", run, "--yes")
    state = observed_state(folder).state
    if not state.ended:
        return (*TONNAGE, "logs", run, "--follow")
    return (*TONNAGE, "show" if state is RunStatus.SUCCEEDED else "resume", run)


def _data(pipeline: Pipeline, step: PipelineStep) -> tuple[str, ...]:
    return ("--data", _filled(step.data, pipeline, step)) if step.data else ()


def _filled(text: str, pipeline: Pipeline, step: PipelineStep) -> str:
    """`{step.output}` becomes the path that step writes; `{output}` alone this step's own; other braces stay."""
    own = dict(step.outputs)

    def path_of(found: re.Match[str]) -> str:
        owner, output = found.groups()
        known = {one.name: dict(one.outputs) for one in pipeline.steps}
        return known.get(owner, {}).get(output, found.group())

    text = NEEDED.sub(path_of, text)
    return re.sub(r"\{([A-Za-z0-9_-]+)\}", lambda found: own.get(found.group(1), found.group()), text)
