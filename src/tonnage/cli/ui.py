"""`tonnage ui`, and its keys."""

from __future__ import annotations

from typing import Annotated

import typer

from tonnage import api
from tonnage.api.pages import UiOptions
from tonnage.cli.declared import Commands, QuietSession, ReportSession
from tonnage.cli.streams import write_stdout

commands = Commands(
    no_args_is_help=False, rich_markup_mode=None, invoke_without_command=True,
    help="Open a page on runs, services, prices and plans; keys for its API.",
)  # fmt: skip


@commands.callback()
def ui(
    context: typer.Context,
    asked: UiOptions,
    *,
    session: QuietSession,
) -> None:
    """Serve the page and the REST API (/api/v1) until Ctrl-C.

    On this machine alone there is no sign-in. At another address it starts only with TLS (or --behind-proxy) and keys:
    `tonnage ui key NAME` makes one.
    """
    if context.invoked_subcommand is not None:
        return
    api.open_ui(asked, settings=session.settings, say=session.say)


@commands.command("key", short_help="Make a key for a person or a program")
def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is.", show_default=False)],
    role: Annotated[str, typer.Option("--role", help="viewer, operator or admin.")] = "viewer",
    days: Annotated[int | None, typer.Option("--days", help="It ends after so many days.", min=1, max=3650)] = None,
    project: Annotated[
        list[str] | None,
        typer.Option("--project", help="Its role holds for this project alone; may be repeated.", metavar="NAME"),
    ] = None,
    service: Annotated[bool, typer.Option("--service", help="Of a program: it signs no browser in.")] = False,
    *,
    session: QuietSession,
) -> None:
    """Print a new key, once: only its hash is kept.

    A viewer reads; an operator also plans, stops and resumes runs; an admin sees audit and settings too. With --project
    it sees runs and budgets of these projects alone, and nothing that is of all of them.
    """
    made = api.make_ui_key(
        name, role=role, days=days, projects=project or (), service=service, settings=session.settings
    )
    write_stdout(f"{made}\n")


@commands.command("keys", short_help="List the keys: role, end, last use")
def keys(
    *,
    session: ReportSession,
) -> None:
    """List the keys of this home; their secrets are kept nowhere."""
    session.show_answer(api.ui_keys(settings=session.settings))


@commands.command("revoke", short_help="End a key at once")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name.", show_default=False)],
    *,
    session: QuietSession,
) -> None:
    """End a key, and the sessions of browsers that showed it."""
    api.revoke_ui_key(name, settings=session.settings)
    session.say(f"{name} is let in no more")
