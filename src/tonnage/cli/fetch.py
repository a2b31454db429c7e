"""`tonnage fetch`: models and data sets brought here, verified, to one target or several."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli import options
from tonnage.cli.session import Session, open_session

if TYPE_CHECKING:
    from tonnage.fetching import Request, Watcher

Patterns = list[str] | None


def fetch(
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...", show_default=False,
            help="hf://ORG/NAME[@REVISION][/PATH], hf://datasets/..., s3://, gs://, az://, http(s):// or a path.",
        ),
    ],
    to: Annotated[
        Patterns,
        typer.Option(
            "--to", metavar="TARGET", show_default=False,
            help="A folder, s3://, gs:// or az://; may be repeated. [default: the files stay in the cache]",
        ),
    ] = None,
    include: Annotated[
        Patterns, typer.Option("--include", metavar="PATTERN", help="Only files like '*.safetensors'; may be repeated.")
    ] = None,
    exclude: Annotated[
        Patterns, typer.Option("--exclude", metavar="PATTERN", help="Not files like 'onnx/'; may be repeated.")
    ] = None,
    sha256: Annotated[
        str | None,
        typer.Option("--sha256", metavar="HEX", help="What a single file's SHA-256 must be.", show_default=False),
    ] = None,
    sums: Annotated[
        Patterns,
        typer.Option("--sums", metavar="FILE", help="A SHA256SUMS file or its URL; may be repeated."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, max=128, help="Connections at once.")] = 8,
    attempts: Annotated[
        int, typer.Option("--attempts", metavar="N", min=1, help="Failures in a row after which a file is given up.")
    ] = 6,
    copy: Annotated[bool, typer.Option("--copy", help="Copy into folders; no hard links into the cache.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that no fetch has put there.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="From the cache alone; asks no server.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="SOURCE is a target: read its files again and check them.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List files and bytes; fetch and write nothing.")] = False,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:  # fmt: skip
    """Download models and data sets: parallel, resumable, verified, through a cache shared by all targets.

    The same command after a cut, Ctrl-C or kill goes on where it was. Exit code 1 where a file did not come.
    """
    session = open_session(output=output, as_of=as_of, quiet=quiet)
    from tonnage.errors import InputError

    if verify:
        if to or include or exclude or sha256 or sums or dry_run:
            raise InputError("--verify takes targets alone", hint="tonnage fetch --verify FOLDER")
        _verify(session, source, jobs)
        return
    from datetime import UTC, datetime

    from tonnage.fetching import Request

    _fetch(
        session,
        Request(
            sources=tuple(source),
            targets=tuple(to or ()),
            include=tuple(include or ()),
            exclude=tuple(exclude or ()),
            sha256=sha256,
            sums=tuple(sums or ()),
            jobs=jobs,
            attempts=attempts,
            copy=copy,
            force=force,
            offline=offline or _is_on(os.environ.get("HF_HUB_OFFLINE")),
            dry_run=dry_run,
            cache=(session.settings.home if dry_run else session.private_home()) / "cache" / "fetch",
            now=session.settings.as_of or datetime.now(UTC),
        ),
    )


def _is_on(text: str | None) -> bool:
    return (text or "").strip().upper() in ("1", "ON", "YES", "TRUE")


def _fetch(session: Session, request: Request) -> None:
    from tonnage.errors import FetchError
    from tonnage.fetching import fetch as fetch_files
    from tonnage.reports.fetch import FetchLine, fetch_report

    with _watching(session) as watcher:
        done = fetch_files(request, watcher)
    lines = [
        FetchLine(
            name=one.name,
            source=one.source,
            outcome=one.outcome,
            size_bytes=one.size_bytes,
            version=one.version,
            sha256=one.sha256,
            verified_by=one.verified_by,
            places=one.places,
            problem=one.problem,
        )
        for one in done.files
    ]
    session.show(fetch_report(lines, seconds=done.seconds, dry_run=done.dry_run))
    if done.failures:
        first = done.failures[0]
        raise FetchError(
            f"{len(done.failures)} of {len(done.files)} files did not come; {first.name}: {first.problem}",
            hint="the same command again goes on where this one ended",
        )


def _verify(session: Session, targets: list[str], jobs: int) -> None:
    from tonnage.errors import FetchError
    from tonnage.fetching import verify as verify_files
    from tonnage.reports.fetch import CheckLine, verify_report

    found = verify_files(targets, jobs=jobs)
    lines = [
        CheckLine(
            name=one.name,
            target=one.target,
            state=one.state,
            size_bytes=one.size_bytes,
            sha256=one.sha256,
            found_sha256=one.found_sha256,
        )
        for one in found
    ]
    session.show(verify_report(lines))
    bad = [one for one in found if one.state != "ok"]
    if bad:
        raise FetchError(
            f"{len(bad)} of {len(found)} files are changed or missing, such as {bad[0].target}: {bad[0].name}",
            hint="fetch again: missing files are put back, changed ones with --force",
        )


@contextmanager
def _watching(session: Session) -> Iterator[Watcher]:
    """A bar with rate and time to go, on a terminal only; remarks on stderr in any case."""
    from tonnage.fetching import Watcher

    if session.quiet or not sys.stderr.isatty():
        yield Watcher(say=session.say)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True, no_color=session.settings.color == "never")
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TextColumn("to go"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("fetch", total=None)
        yield Watcher(
            expect=lambda count: bar.update(task, total=count),
            advance=lambda count: bar.advance(task, count),
            say=bar.console.print,
        )
