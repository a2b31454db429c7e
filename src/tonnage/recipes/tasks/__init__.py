"""The tasks a run can do, each imported when asked for.

Tasks that follow gradients are a `TaskProgram` for the training loop (`program`). The others, boosted trees and text
generation, carry themselves out (`standalone`): they take the run's folder and return the worker's exit code.

Task `own` is the `TaskProgram` of an installed package: an entry point of the group `tonnage.tasks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from tonnage.errors import InputError
from tonnage.recipes.task import TaskProgram
from tonnage.runs.folder import RunFolder
from tonnage.runs.spec import RunSpec, Task
from tonnage.workload.run_terms import OWN_TASK

_PROGRAMS: Final[dict[Task, str]] = {
    "sequence-classification": "sequence_classification",
    "token-classification": "token_classification",
    "question-answering": "question_answering",
    "causal-lm": "causal_lm",
    "sequence-to-sequence": "sequence_to_sequence",
    "image-classification": "image_classification",
    "mlp": "mlp",
}
_STANDALONE: Final[dict[Task, str]] = {"boosted-trees": "boosted_trees", "text-generation": "text_generation"}


GROUP: Final = "tonnage.tasks"


def own_program(name: str, found: Iterable[EntryPoint] | None = None) -> TaskProgram:
    """The program that an installed package gives under a name (`found`: those of the group). InputError where there is
    none, or it cannot be loaded."""
    known = {one.name: one for one in (entry_points(group=GROUP) if found is None else found)}
    if name not in known:
        said = f"installed: {', '.join(sorted(known))}" if known else "no installed package has one; docs/run-tasks.md"
        raise InputError(f"no entry point '{name}' in the group {GROUP}", hint=said)
    try:
        loaded: TaskProgram = known[name].load()
    except (ImportError, AttributeError) as error:
        hint = "install what it needs, in the environment that runs it"
        raise InputError(f"the task '{name}' ({known[name].value}) cannot be loaded: {error}", hint=hint) from error
    return loaded


def program_of(spec: RunSpec) -> TaskProgram:
    """What the training loop runs for a specification."""
    return own_program(spec.program or "") if spec.task == OWN_TASK else program(spec.task)


def program(task: Task) -> TaskProgram:
    """What the training loop runs for a task of ours."""
    if task not in _PROGRAMS:
        raise InputError(f"{task} is not a task of the training loop", hint=f"its tasks: {', '.join(_PROGRAMS)}")
    prepare: TaskProgram = import_module(f"{__name__}.{_PROGRAMS[task]}").prepare
    return prepare


def standalone(task: Task) -> Callable[[RunFolder], int] | None:
    """What runs a task that has no training loop; None where it has one."""
    if task not in _STANDALONE:
        return None
    run: Callable[[RunFolder], int] = import_module(f"{__name__}.{_STANDALONE[task]}").run
    return run
