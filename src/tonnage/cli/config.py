"""`tonnage config`: which settings hold, and where each came from."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage.cli import options
from tonnage.cli.session import open_session
from tonnage.cli.streams import write_stdout

commands = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show the settings and where each of them comes from."
)


@commands.command("show", short_help="Every setting as it holds here")
def show(
    origin: Annotated[bool, typer.Option("--origin", help="Also say where each value came from.")] = False,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Show every setting as it holds here: flag, then TONNAGE_*, then tonnage.toml, then the default."""
    session = open_session(output=output, quiet=quiet)
    from tonnage.reports.environment import settings_report
    from tonnage.settings import describe_settings

    session.show(settings_report(tuple(describe_settings(session.settings)), origin=origin))


@commands.command("path", short_help="The home folder")
def path(quiet: options.Quiet = False) -> None:
    """Print the home folder, where imported snapshots live and a tonnage.toml is read."""
    session = open_session(quiet=quiet)
    write_stdout(f"{session.settings.home}\n")
