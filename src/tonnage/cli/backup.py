"""`tonnage backup FOLDER`, `tonnage backup verify FILE`, `tonnage restore FILE`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.backups import BackupOptions
from tonnage.cli.declared import Commands, ReportSession, StartGroup
from tonnage.secret_references import SUCH_AS

BackupFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A backup: a file, or s3://… or gs://….", show_default=False)
]
Key = Annotated[
    str | None,
    typer.Option("--key", help=f"What it was sealed with: {SUCH_AS}.", metavar="REFERENCE"),
]


class BackupGroup(StartGroup):
    """What names no command is a folder: `backup FOLDER` is `backup create FOLDER`."""

    usual = "create"


commands = Commands(
    cls=BackupGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Back up the home: `tonnage backup FOLDER` is `tonnage backup create FOLDER`.",
)


@commands.command("create", short_help="Write the home to a file, and read it back")
def create(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER",
            help="Where the file is written: a folder, or s3://BUCKET/PREFIX, gs://….",
            show_default=False,
        ),
    ],
    asked: BackupOptions,
    *,
    session: ReportSession,
) -> None:
    """Write runs, store, snapshots, places, watch, audit and gateway accounts of the home to one file, and verify it.

    Runs and services may go on. Left out: downloads, exported models and secrets, of which the home holds none.
    """
    with session.progress("backing up"):
        answer = api.backup(folder, asked, settings=session.settings)
    session.show_answer(answer)


@commands.command("verify", short_help="Read a backup to its end")
def verify(
    file: BackupFile,
    key: Key = None,
    *,
    session: ReportSession,
) -> None:
    """Check every file's hash and every database of a backup; nothing is written. Exit code 2: it is not whole."""
    with session.progress("verifying"):
        answer = api.verify_backup(file, key=key)
    session.show_answer(answer)


def restore(
    file: BackupFile,
    key: Key = None,
    *,
    session: ReportSession,
) -> None:
    """Put a backup where the home is to be (TONNAGE_HOME): verified and whole, or not at all.

    A home that is not empty is refused. What was interrupted is `lost` then: `tonnage resume` goes on from checkpoints.
    """
    with session.progress("restoring"):
        answer = api.restore(file, key=key, settings=session.settings)
    session.show_answer(answer)
