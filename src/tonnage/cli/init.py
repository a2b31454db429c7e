"""`tonnage init`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.recipes.starters.starter import Files

TASKS = (
    "sequence-classification", "token-classification", "question-answering", "causal-lm",
    "sequence-to-sequence", "image-classification", "text-generation", "boosted-trees", "mlp",
)  # fmt: skip


def complete_task(incomplete: str) -> list[str]:
    return [task for task in (*TASKS, "compare") if task.startswith(incomplete)]


def init(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]", help="What is to be learned.", show_default=False, autocompletion=complete_task
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder to write to. [default: TASK]", show_default=False),
    ] = None,
    list_tasks: Annotated[bool, typer.Option("--list", help="Print the tasks and exit.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    compare: Annotated[
        list[str] | None,
        typer.Option("--compare", metavar="PROFILE", help="With compare: a platform; may be repeated."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(
            "--workload", metavar="FILE[:JOBS]", help="With compare: work, and its jobs a month; may be repeated."
        ),
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="With compare: its title.", show_default=False)] = None,
    today: Annotated[
        str | None,
        typer.Option("--today", metavar="PROFILE", help="With compare: where the work runs now.", show_default=False),
    ] = None,
    usd_per_hour: Annotated[
        float | None,
        typer.Option("--usd-per-hour", min=0.01, help="With compare: an hour of a person.", show_default=False),
    ] = None,
) -> None:
    """Write a starter: a workload file with comments, rows and a small model, that run at once and offline.

    Change its rows, columns and weights to yours. `tonnage init compare` writes a compare file instead; what no flag
    says is asked where there is a terminal.
    """
    from tonnage.cli.streams import write_stdout

    if task == "compare":
        path = write_compare_file(
            out, names=compare or [], works=workload or [], title=title, today=today, usd_per_hour=usd_per_hour,
            force=force,
        )  # fmt: skip
        write_stdout(f"wrote {path}\ncompare: tonnage compare {path} --report comparison.html\n")
        return
    if compare or workload or title or today or usd_per_hour:
        raise _not_of_a_task()
    from tonnage.recipes.starters import STARTERS, make_starter

    if list_tasks:
        width = max(map(len, STARTERS))
        write_stdout("".join(f"{name:<{width}}  {starter.summary}\n" for name, starter in STARTERS.items()))
        write_stdout(f"{'compare':<{width}}  a compare file: platforms beside one another for your own work\n")
        return
    chosen = next((name for name in STARTERS if name == task), None)
    if chosen is None:
        raise _no_such_task(task)
    folder = Path(chosen) if out is None else out
    files = make_starter(chosen)
    _write(folder, files, force=force)
    write_stdout(f"wrote {len(files)} files to {folder}\nrun it: tonnage run {folder / f'{chosen}.tonnage.yaml'}\n")


def _not_of_a_task() -> Exception:
    from tonnage.errors import InputError

    said = "--compare, --workload, --title, --today and --usd-per-hour go with compare"
    return InputError(said, hint="tonnage init compare --compare databricks --compare bedrock --workload FILE:12")


def _no_such_task(task: str | None) -> Exception:
    from tonnage.errors import InputError, did_you_mean, nearest

    listed = "`tonnage init --list` shows them all"
    if task is None:
        return InputError("name a task", hint=listed)
    return InputError(
        f"no task is named '{task}'", hint=did_you_mean(nearest(task, (*TASKS, "compare"), count=1), listed)
    )


def _write(folder: Path, files: Files, *, force: bool) -> None:
    """All files, or none where one is there already."""
    from tonnage.errors import InputError
    from tonnage.files import SHARED, write_whole

    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise InputError(f"{folder / there[0]} is there{more}", hint="name another --out, or write over it by --force")
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content, mode=SHARED)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}", hint="name another --out") from error


def write_compare_file(
    out: Path | None,
    *,
    names: list[str],
    works: list[str],
    title: str | None,
    today: str | None,
    usd_per_hour: float | None,
    force: bool,
) -> Path:
    """Write the file, which is checked as `tonnage compare` reads it; its path."""
    from tonnage.comparison.profiles import load_profiles
    from tonnage.comparison.request import parse_request
    from tonnage.comparison.starter import check_names, parse_work, render_starter
    from tonnage.files import save_for_user

    known = sorted(load_profiles())
    names, works = names or _ask("compare which platforms", known), works or _ask("workload files (FILE:JOBS)", [])
    if not names or not works:
        raise InputError(
            "name what is compared, and for which work",
            hint="tonnage init compare --compare databricks --compare bedrock --workload tune.tonnage.yaml:12",
        )
    chosen = check_names(names, known)
    if today is not None and today not in chosen:
        raise InputError(f"'{today}' is not compared", hint=f"--today is one of {', '.join(chosen)}")
    text = render_starter(
        title=title or " or ".join(chosen), names=chosen, works=[parse_work(one) for one in works], today=today,
        usd_per_hour=usd_per_hour,
    )  # fmt: skip
    path = out or Path("compare.tonnage.yaml")
    if path.exists() and not force:
        raise InputError(f"{path} is there", hint="name another --out, or write over it by --force")
    parse_request(text, file=str(path), folder=path.parent)
    save_for_user(path, text, hint="name another --out")
    return path


def _ask(question: str, known: list[str]) -> list[str]:
    """Names separated by commas or spaces; nothing where there is no terminal to ask at."""
    if not sys.stdin.isatty():
        return []
    shown = f" ({', '.join(known)})" if known else ""
    return str(typer.prompt(f"{question}{shown}", err=True)).replace(",", " ").split()
