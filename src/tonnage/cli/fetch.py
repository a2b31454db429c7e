"""`tonnage fetch`: models and data sets brought here, verified, to one target or several."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage import api
from tonnage.api.downloads import FetchOptions
from tonnage.cli.declared import given_flags, opened_by
from tonnage.cli.session import Session
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.fetching import ProgressWatcher

_BESIDE_VERIFY = {"--jobs", "--attempts", "--copy", "--force", "--offline"}  # without meaning there, and harmless


def fetch(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...", show_default=False,
            help="hf://ORG/NAME[@REVISION][/PATH], hf://datasets/..., s3://, gs://, az://, http(s):// or a path.",
        ),
    ],
    asked: FetchOptions,
    verify: Annotated[
        bool, typer.Option("--verify", help="SOURCE is a target: read its files again and check them.")
    ] = False,
    *,
    session: Annotated[Session, opened_by("as_of", "output", "quiet")],
) -> None:  # fmt: skip
    """Download models and data sets: parallel, resumable, verified, through a cache shared by all targets.

    The same command after a cut, Ctrl-C or kill goes on where it was. Exit code 1 where a file did not come.
    """
    if verify:
        if given_flags(asked).keys() - _BESIDE_VERIFY:
            raise InputError("--verify takes targets alone", hint="tonnage fetch --verify FOLDER")
        session.show_answer(api.verify_fetched(source, jobs=asked.jobs))
        return
    with _watching(session) as watcher:
        answer = api.fetch(source, asked, settings=session.settings, watcher=watcher)
    session.show_answer(answer)


@contextmanager
def _watching(session: Session) -> Iterator[ProgressWatcher]:
    """A bar with rate and time to go, on a terminal only; remarks on stderr in any case."""
    from tonnage.fetching import ProgressWatcher

    if session.quiet or not sys.stderr.isatty():
        yield ProgressWatcher(say=session.say)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True, no_color=session.settings.color == "never")
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TextColumn("to go"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("fetch", total=None)
        yield ProgressWatcher(
            expect=lambda count: bar.update(task, total=count),
            advance=lambda count: bar.advance(task, count),
            say=bar.console.print,
        )
