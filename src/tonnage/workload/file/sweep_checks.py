"""Contradictions inside `sweep`, and between it and the rest of the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

from pydantic import BaseModel

from tonnage.errors import did_you_mean, nearest
from tonnage.workload.file.kinds import TabularFile, TrainFile, WorkloadFile
from tonnage.workload.file.problems import Problem, model_at
from tonnage.workload.file.run_checks import task_of
from tonnage.workload.file.run_fields import LearningFields
from tonnage.workload.file.sweep_fields import ParameterFields, SweepFields
from tonnage.workload.file.yaml_lines import KeyPath
from tonnage.workload.run_terms import FIGURES, ONE_PROCESS, Task

SECTIONS: Final = ("train", "tabular", "run", "data")  # what a trial may change
_FIXED: Final = ("run.limits", "run.tracking", "run.runner", "run.processes", "run.device", "run.task")  # of all trials
_DEPTH: Final = 4
FIGURES_AT_THE_END: Final[dict[Task, tuple[str, ...]]] = FIGURES | {"boosted-trees": FIGURES["mlp"]}


def find_sweep_problems(file: WorkloadFile) -> Iterator[Problem]:
    """Everything in `sweep` that cannot hold."""
    if not isinstance(file, (TrainFile, TabularFile)) or file.sweep is None:
        return
    if file.run is None:
        yield Problem(("sweep",), "there is no run to try", "add `run:`; docs/run-tasks.md shows each task")
        return
    task = task_of(file)
    known = sweepable_keys(type(file))
    for name, parameter in file.sweep.parameters.items():
        yield from _parameter_problems(name, parameter, known, file.sweep)
    yield from _objective_problems(file.sweep, task)
    if file.sweep.pruning != "none":
        yield from _pruning_problems(file.run, task)
    if file.sweep.limits.cost_usd is not None and file.run.limits.usd_per_hour is None:
        fault = "what an hour costs is not known"
        yield Problem(("sweep", "limits", "cost_usd"), fault, "say it: `run: {limits: {usd_per_hour: 3.06}}`")


def sweepable_keys(model: type[BaseModel]) -> tuple[str, ...]:
    """Every key a trial may change, with dots."""
    found = (f"{name}.{leaf}" for name in SECTIONS if (inner := model_at(model, (name,))) for leaf in _leaves(inner))
    return tuple(path for path in found if not any(f"{path}.".startswith(f"{fixed}.") for fixed in _FIXED))


def is_whole(model: type[BaseModel], path: str) -> bool:
    """Whether a key takes whole numbers only."""
    *above, last = path.split(".")
    owner = model_at(model, tuple(above))
    assert owner is not None
    kinds = set(_kinds(owner.model_fields[last].annotation))
    return int in kinds and float not in kinds


def _kinds(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)


def _leaves(model: type[BaseModel], depth: int = 1) -> Iterator[str]:
    for name, field in model.model_fields.items():
        inner = next((one for one in _kinds(field.annotation) if _is_section(one)), None)
        if inner is None or depth >= _DEPTH:
            yield name
        else:
            yield from (f"{name}.{leaf}" for leaf in _leaves(inner, depth + 1))


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _parameter_problems(
    name: str, parameter: ParameterFields, known: tuple[str, ...], sweep: SweepFields
) -> Iterator[Problem]:
    path = ("sweep", "parameters", name)
    if name not in known:
        by_end = tuple(one for one in known if one.rpartition(".")[2] == name.rpartition(".")[2])[:1]
        listed = "name it from the top with dots, such as `run.learning_rate`; docs/workload-file.md lists all"
        hint = did_you_mean(by_end or nearest(name, known, count=1), listed)
        yield Problem(path, "is no key of this file that a trial may change", hint)
        return
    yield from values_problems(path, parameter)
    if parameter.choices is None and sweep.sampler == "grid" and parameter.step is None:
        yield Problem(path, "`sampler: grid` needs single values", "list them, or give `step`")


def values_problems(path: KeyPath, parameter: ParameterFields) -> Iterator[Problem]:
    """What cannot hold in the choices or the range of one parameter, wherever it is in a file."""
    if parameter.choices is not None:
        if parameter.low is not None or parameter.high is not None or parameter.step is not None or parameter.log:
            yield Problem(path, "has `choices` and a range", "keep one of the two")
        elif not parameter.choices:
            yield Problem(path, "has nothing to choose from", "list the values: `[16, 32]`")
        return
    if parameter.low is None or parameter.high is None:
        fault = "is missing, expected a list of values or a range"
        yield Problem((*path, "low" if parameter.low is None else "high"), fault, "{low: 1e-5, high: 1e-2, log: true}")
        return
    if parameter.low > parameter.high:
        fault = f"low {parameter.low:g} is above high {parameter.high:g}"
        yield Problem((*path, "low"), fault, f"{{low: {parameter.high:g}, high: {parameter.low:g}}}")
    if parameter.log and parameter.low <= 0:
        yield Problem((*path, "low"), f"found {parameter.low:g}: `log` needs a low above 0", "such as 1e-5")
    if parameter.step is not None and parameter.step <= 0:
        yield Problem((*path, "step"), f"found {parameter.step:g}, expected a number above 0", "such as 2")
    if parameter.log and parameter.step is not None:
        yield Problem((*path, "step"), "`log` takes no step", "remove one of the two, or list the values")


def _objective_problems(sweep: SweepFields, task: Task) -> Iterator[Problem]:
    figure, known = sweep.objective.figure, FIGURES_AT_THE_END.get(task, ())
    if known and figure not in known:
        hint = did_you_mean(nearest(figure, known, count=1), f"figures of {task}: {', '.join(known)}")
        yield Problem(("sweep", "objective"), f"no figure of {task} is named '{figure}'", hint)


def _pruning_problems(run: LearningFields, task: Task) -> Iterator[Problem]:
    if task in ONE_PROCESS:
        yield Problem(("sweep", "pruning"), f"{task} is judged once, at its end", "use `none`")
    elif run.evaluate_every is None:
        yield Problem(("sweep", "pruning"), "nothing is evaluated on the way", "add `evaluate_every: 500` to `run`")
