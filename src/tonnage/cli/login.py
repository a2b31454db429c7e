"""`tonnage login`, `tonnage logout`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tonnage import api
from tonnage.cli.declared import QuietSession, ReportSession
from tonnage.errors import InputError
from tonnage.secret_references import SUCH_AS


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the server is.", show_default=False)],
    key: Annotated[
        str | None,
        typer.Option("--key", help=f"The key: {SUCH_AS}. [default: asked for]", metavar="REF"),
    ] = None,
    open_server: Annotated[bool, typer.Option("--no-key", help="The server asks for no key.")] = False,
    *,
    session: ReportSession,
) -> None:
    """Keep a server and its key at home, for `tonnage.Client`, once the server has taken it.

    Of a key that `--key` refers to the reference is kept, and the key is read again for each client. One that is typed
    (or comes on standard input) is kept as it is, in a file for you alone. TONNAGE_SERVER and TONNAGE_KEY go before
    what is kept.
    """
    api.check_server(url)
    typed = None if open_server or key is not None else _typed()
    session.show_answer(api.log_in(url, typed, key_from=None if open_server else key, settings=session.settings))


def logout(*, session: QuietSession) -> None:
    """Forget the server and the key that `tonnage login` kept."""
    there = api.log_out(settings=session.settings)
    session.say("the server and its key are forgotten" if there else "there was no login")


def _typed() -> str:
    from getpass import getpass

    found = (getpass("Key: ") if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not found:
        raise InputError("no key was given", hint="--key env:NAME, or --no-key where the server asks for none")
    return found
