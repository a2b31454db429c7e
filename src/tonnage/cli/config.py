"""`tonnage config`: which settings hold, and where each came from."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.cli.declared import Commands, QuietSession, ReportSession
from tonnage.cli.streams import write_stdout

commands = Commands(
    no_args_is_help=True, rich_markup_mode=None, help="Show the settings and where each of them comes from."
)


@commands.command("show", short_help="Every setting as it holds here")
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Also say where each value came from.")] = False,
    *,
    session: ReportSession,
) -> None:
    """Show every setting as it holds here: flag, then TONNAGE_*, then tonnage.toml, then the default."""
    from tonnage.reports.environment import settings_report
    from tonnage.settings import describe_settings

    session.show(settings_report(tuple(describe_settings(session.settings)), origin=origin))


@commands.command("path", short_help="The home folder")
def path(
    *,
    session: QuietSession,
) -> None:
    """Print the home folder, where imported snapshots live and a tonnage.toml is read."""
    write_stdout(f"{session.settings.home}\n")
