"""`tonnage audit show` and `tonnage audit verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.cli.backup import Key
from tonnage.cli.declared import Commands, ReportSession

commands = Commands(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show what was done for this home, and whether any of it was changed.",
)


@commands.command("show", short_help="Show what was done, and check that no line was changed")
def show(*, session: ReportSession) -> None:
    """Show every line of this home's audit: who, what, from where. Exit code 4: a line was changed or taken out.

    Alerts and what a watch did about them, sign-ins and keys of the page, and what was done to runs through the page or
    the API are lines; commands typed on this machine and edits of files are not.
    """
    session.show_answer(api.audit_lines(settings=session.settings))


@commands.command("verify", short_help="Find lines that were changed, taken out or cut off at the end")
def verify(
    backup: Annotated[
        str | None,
        typer.Option("--backup", help="A backup whose audit must be the beginning of this one.", metavar="FILE",
                     show_default=False),
    ] = None,
    key: Key = None,
    *,
    session: ReportSession,
) -> None:  # fmt: skip
    """Check each line against those before it, the newest against what the store knows, all against a backup.

    Exit code 4 where one of them speaks against the audit. «Unknown»: there was nothing to compare with.
    """
    session.show_answer(api.verify_audit(backup=backup, key=key, settings=session.settings))
