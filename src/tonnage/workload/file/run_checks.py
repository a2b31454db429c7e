"""Contradictions inside `run`, and between it and the rest of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tonnage.errors import did_you_mean, nearest
from tonnage.workload.file.inline_shape import InlineShape
from tonnage.workload.file.kinds import BatchFile, ServeFile, TabularFile, TrainFile, WorkloadFile
from tonnage.workload.file.problems import Problem
from tonnage.workload.file.run_fields import (
    GenerateRunFields,
    LearningFields,
    RunDataFields,
    SharedRunFields,
    SourceFields,
    TrainRunFields,
)
from tonnage.workload.file.yaml_lines import KeyPath
from tonnage.workload.run_terms import FIGURES, ONE_PROCESS, OWN_TASK, ROLES, Task, format_of

NEW_WEIGHTS: Final = "new"
LEARNED: Final[dict[Task, str]] = {
    "sequence-classification": "classification", "image-classification": "classification",
    "causal-lm": "language-model", "sequence-to-sequence": "language-model",
}  # fmt: skip
UNREGISTERED: Final[tuple[Task, ...]] = ("sequence-to-sequence", "image-classification")
_PASSWORD: Final = re.compile(r"^[\w.+-]+://[^/@]*:(?P<password>[^@]*)@")
_VARIABLE: Final = re.compile(r"\$\{\w+\}")


def task_of(file: TrainFile | BatchFile | TabularFile) -> Task:
    """What a file's run does."""
    if isinstance(file, TabularFile):
        return file.tabular.method
    assert file.run is not None
    return file.run.task


def find_run_problems(file: WorkloadFile) -> Iterator[Problem]:
    """Everything in `run` that cannot hold, reported before anything is read or started."""
    if isinstance(file, ServeFile) or file.run is None:
        return
    task, run = task_of(file), file.run
    yield from _launch_problems(run, task)
    yield from _limit_problems(run)
    if isinstance(run, LearningFields):
        yield from _best_problems(run, task)
    yield from _column_problems(run.data, task)
    for name in ("train", "validation", "test"):
        if (source := getattr(run.data, name)) is not None:
            yield from _source_problems(("run", "data", name), source)
    if run.data.validation is not None and run.data.validation_fraction is not None:
        fault = "nothing is held out where `validation` is given"
        yield Problem(("run", "data", "validation_fraction"), fault, "remove one of the two")
    if isinstance(run, TrainRunFields) and isinstance(file, TrainFile):
        yield from _train_problems(file, run)
    if isinstance(run, GenerateRunFields) and run.weights == NEW_WEIGHTS:
        yield Problem(("run", "weights"), "new weights write noise", "name a trained model")


def _launch_problems(run: SharedRunFields, task: Task) -> Iterator[Problem]:
    if run.processes > 1 and task in ONE_PROCESS:
        fault = f"found {run.processes}, but {task} is carried out by one process"
        yield Problem(("run", "processes"), fault, "use 1; `threads` sets how many cores it takes")
    if run.runner == "local" and run.processes > 1:
        yield Problem(
            ("run", "processes"), f"found {run.processes}, but `runner: local` is one process", "use `runner: torchrun`"
        )
    if run.tracking.alias is not None and run.tracking.register_as is None:
        yield Problem(("run", "tracking", "alias"), "nothing is registered", "name it: `register_as: my-model`")


def _best_problems(run: LearningFields, task: Task) -> Iterator[Problem]:
    asked = [name for name in ("keep_best", "best_by", "early_stopping") if getattr(run, name)]
    for name in asked:
        if task in ONE_PROCESS:
            yield Problem(("run", name), f"{task} is judged once, at its end", "remove the key")
        elif run.evaluate_every is None:
            yield Problem(("run", name), "nothing is evaluated on the way", "add `evaluate_every: 500` (steps)")
    known = FIGURES.get(task, ())
    if run.best_by is not None and known and run.best_by not in known:
        hint = did_you_mean(nearest(run.best_by, known, count=1), f"figures of {task}: {', '.join(known)}")
        yield Problem(("run", "best_by"), f"no figure of {task} is named '{run.best_by}'", hint)


def _limit_problems(run: SharedRunFields) -> Iterator[Problem]:
    if run.limits.max_cost_usd is not None and run.limits.usd_per_hour is None:
        yield Problem(
            ("run", "limits", "max_cost_usd"),
            "what an hour costs is not known",
            "say it: `usd_per_hour: 3.06`, for all machines of the run together",
        )


def _column_problems(data: RunDataFields, task: Task) -> Iterator[Problem]:
    if task == OWN_TASK:
        return
    roles = ROLES[task]
    for role in data.columns:
        if role not in roles:
            known = f"roles of {task}: {', '.join(roles)}"
            hint = did_you_mean(nearest(role, roles, count=1), known)
            yield Problem(("run", "data", "columns", role), f"is no role of {task}", hint)


def _source_problems(path: KeyPath, source: SourceFields) -> Iterator[Problem]:
    form = source.format or ("sql" if source.query is not None else format_of(source.location[0]))
    if form is None:
        hint = "add `format: jsonl`, csv or parquet; for a database give `query:`"
        yield Problem(path, f"found '{_hidden(source.location[0])}', whose end tells no format", hint)
    if form == "sql" and source.query is None:
        yield Problem((*path, "query"), "is missing", "a database needs the statement to run: `query: select ...`")
    if form != "sql" and source.query is not None:
        yield Problem((*path, "query"), f"a {form} source takes no query", "remove the key")
    if form != "hf" and source.split is not None:
        yield Problem((*path, "split"), f"a {form} source has no splits", "remove the key")
    if form in ("hf", "sql") and len(source.location) > 1:
        yield Problem((*path, "location"), f"one {form} location at a time", "keep one")
    for location in source.location:
        secret = _PASSWORD.match(location)
        if secret and not _VARIABLE.fullmatch(secret["password"]):
            fault = f"found a password in '{_hidden(location)}'"
            yield Problem(path, fault, "write ${NAME} in its place and set NAME in the environment")


def _hidden(location: str) -> str:
    """The location without a password, and without a query, which may be a signature.

    >>> _hidden("postgresql://me:secret@host/db"), _hidden("https://host/rows?sig=abc")
    ('postgresql://me:***@host/db', 'https://host/rows?***')
    """
    bare = re.sub(r"(://[^/@:]*):[^@]*@", r"\1:***@", location)
    return re.sub(r"\?.*", "?***", bare, flags=re.DOTALL) if "://" in bare else bare


def _train_problems(file: TrainFile, run: TrainRunFields) -> Iterator[Problem]:
    learned = LEARNED.get(run.task)
    if learned is not None and file.train.objective not in (None, learned):
        fault = f"found '{file.train.objective}', but {run.task} learns {learned}"
        yield Problem(("train", "objective"), fault, f"write `{learned}`, or leave the key out")
    if run.weights == NEW_WEIGHTS and not _has_config(file.model):
        fault = "new weights need a config.json"
        yield Problem(("run", "weights"), fault, "let `model:` be a path to one, or hf://org/name")
    if run.weights == NEW_WEIGHTS and file.train.method != "full":
        yield Problem(
            ("train", "method"), f"found '{file.train.method}', but new weights are all trained", "use `full`"
        )
    yield from _own_problems(run)
    if run.device_map is not None and run.processes > 1:
        yield Problem(("run", "device_map"), "one model over all devices is one process", "use `processes: 1`")
    for name in ("tensor_parallel", "pipeline_parallel"):
        if (getattr(file.train, name) or 1) > 1:
            yield Problem(("train", name), "a run splits no layers over GPUs", "remove the key, or the `run` section")


def _own_problems(run: TrainRunFields) -> Iterator[Problem]:
    if run.task == OWN_TASK and run.program is None:
        yield Problem(("run", "program"), "is missing", "name an entry point of the group tonnage.tasks")
    if run.task != OWN_TASK and run.program is not None:
        yield Problem(("run", "program"), f"{run.task} has its own program", "remove the key, or write `task: own`")
    if run.task in UNREGISTERED and run.tracking.register_as is not None:
        fault = f"models of {run.task} are not registered yet"
        yield Problem(("run", "tracking", "register_as"), fault, "remove the key: its files are logged all the same")
    if run.task == OWN_TASK and run.tracking.register_as is not None:
        fault = "the model of an own task has no known way to be asked"
        yield Problem(("run", "tracking", "register_as"), fault, "remove the key: its files are logged all the same")


def _has_config(model: str | InlineShape) -> bool:
    from tonnage.workload.file.model_reference import is_path

    return isinstance(model, str) and (model.startswith("hf://") or is_path(model))
