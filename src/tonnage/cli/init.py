"""`tonnage init`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from tonnage import api
from tonnage.api.starting import COMPARE, TASKS, InitOptions
from tonnage.cli.streams import write_stdout
from tonnage.errors import InputError


def complete_task(incomplete: str) -> list[str]:
    return [task for task in (*TASKS, COMPARE) if task.startswith(incomplete)]


def init(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]", help="What is to be learned.", show_default=False, autocompletion=complete_task
        ),
    ] = None,
    list_tasks: Annotated[bool, typer.Option("--list", help="Print the tasks and exit.")] = False,
    *,
    asked: InitOptions,
) -> None:
    """Write a starter: a workload file with comments, rows and a small model, that run at once and offline.

    Change its rows, columns and weights to yours. `tonnage init compare` writes a compare file instead; what no flag
    says is asked where there is a terminal.
    """
    if list_tasks:
        _list_tasks()
        return
    if task is None:
        raise InputError("name a task", hint="`tonnage init --list` shows them all")
    if task == COMPARE:
        (path,) = api.init(task, _completed(asked))
        write_stdout(f"wrote {path}\ncompare: tonnage compare {path} --report comparison.html\n")
        return
    paths = api.init(task, asked)
    file = next(path for path in paths if path.name == f"{task}.tonnage.yaml")
    write_stdout(f"wrote {len(paths)} files to {file.parent}\nrun it: tonnage run {file}\n")


def _list_tasks() -> None:
    from tonnage.recipes.starters import STARTERS

    width = max(map(len, STARTERS))
    write_stdout("".join(f"{name:<{width}}  {starter.summary}\n" for name, starter in STARTERS.items()))
    write_stdout(f"{COMPARE:<{width}}  a compare file: platforms beside one another for your own work\n")


def _completed(asked: InitOptions) -> InitOptions:
    """With what no flag says asked at the terminal, where there is one."""
    from tonnage.comparison.profiles import load_profiles

    if not sys.stdin.isatty():
        return asked
    return replace(
        asked,
        compare=asked.compare or _ask(f"compare which platforms ({', '.join(sorted(load_profiles()))})"),
        workloads=asked.workloads or _ask("workload files (FILE:JOBS)"),
    )


def _ask(question: str) -> tuple[str, ...]:
    """Names separated by commas or spaces."""
    return tuple(str(typer.prompt(question, err=True)).replace(",", " ").split())
