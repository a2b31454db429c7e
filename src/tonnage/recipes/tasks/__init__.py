"""The tasks a run can do, each imported when asked for.

Tasks that follow gradients are a `TaskProgram` for the training loop (`program`). The others, boosted trees and text
generation, carry themselves out (`standalone`): they take the run's folder and return the worker's exit code.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from tonnage.errors import InputError
from tonnage.recipes.task import TaskProgram
from tonnage.runs.folder import RunFolder
from tonnage.runs.spec import Task

_PROGRAMS: Final[dict[Task, str]] = {
    "sequence-classification": "sequence_classification",
    "token-classification": "token_classification",
    "question-answering": "question_answering",
    "causal-lm": "causal_lm",
    "mlp": "mlp",
}
_STANDALONE: Final[dict[Task, str]] = {"boosted-trees": "boosted_trees", "text-generation": "text_generation"}


def program(task: Task) -> TaskProgram:
    """What the training loop runs for a task."""
    if task not in _PROGRAMS:
        raise InputError(f"{task} is no task of the training loop", hint=f"its tasks: {', '.join(_PROGRAMS)}")
    prepare: TaskProgram = import_module(f"{__name__}.{_PROGRAMS[task]}").prepare
    return prepare


def standalone(task: Task) -> Callable[[RunFolder], int] | None:
    """What runs a task that has no training loop; None where it has one."""
    if task not in _STANDALONE:
        return None
    run: Callable[[RunFolder], int] = import_module(f"{__name__}.{_STANDALONE[task]}").run
    return run
