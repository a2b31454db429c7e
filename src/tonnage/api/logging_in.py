"""A server that this user asks: `tonnage.log_in`, `tonnage.log_out`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tonnage.api.answers import Answer
from tonnage.errors import InputError, PlanRefused
from tonnage.login import KeptLogin, forget_login, keep_login
from tonnage.reports.blocks import Page, Pairs
from tonnage.reports.rendering import Report
from tonnage.settings import Settings, current_settings

if TYPE_CHECKING:
    from tonnage.reports.rendering import Report


def log_in(
    url: str, key: str | None = None, *, key_from: str | None = None, settings: Settings | None = None
) -> Answer[dict[str, Any]]:
    """Ask the server who the key is of, and keep both at home for `tonnage.Client`. The answer is the server's `me`.

    `key_from`: a reference to the key, which is kept in its place and read again with each client.

    Raises InputError for what is no address, PlanRefused for a key sent unencrypted over a network, SourceError where
    the server does not answer, and what it says of a key that it does not take; nothing is kept then.
    """
    from tonnage.client import Client

    check_server(url)
    if key is not None and key_from is not None:
        raise InputError("a key and a reference to one are given", hint="one of them")
    made = KeptLogin(server=url.rstrip("/"), key=key, key_from=key_from)
    secret, parts = made.secret(), urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1") and secret is not None:
        raise PlanRefused(f"others could read the key on its way to {parts.hostname}", hint="https://...")
    with Client(made.server, secret) as client:
        found = client.read("me")
    keep_login(made, settings or current_settings())
    return Answer({**found, "server": made.server}, _report)


def check_server(url: str) -> None:
    """InputError for what is no address of a server."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise InputError(f"'{url[:200]}' is not an address of a server", hint="https://tonnage.example")


def log_out(*, settings: Settings | None = None) -> bool:
    """Forget the server and its key; whether there was one."""
    return forget_login(settings or current_settings())


def _report(found: dict[str, Any]) -> Report:
    projects = "all" if found["projects"] is None else ", ".join(found["projects"])
    rows = (("server", found["server"]), ("name", found["name"]), ("role", found["role"]), ("projects", projects))
    return Report(
        page=lambda: Page(title="Logged in", blocks=(Pairs(rows=rows),)), document=lambda: found,
        columns=tuple(name for name, _ in rows), rows=lambda: [[text for _, text in rows]],
    )  # fmt: skip
