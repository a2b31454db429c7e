"""The page and its keys: `tonnage.open_ui`, `tonnage.make_ui_key`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from getpass import getuser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, MissingExtra, PlanRefused
from tonnage.secret_references import SUCH_AS, read_reference
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.monitoring.audit import AuditFile
    from tonnage.reports.rendering import Report
    from tonnage.web.app import WebServer
    from tonnage.web.keys import ApiKey, KeyFile
    from tonnage.web.oidc import OidcSignIn

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UiOptions(Options):
    """Where the page listens, and how it is protected there."""

    folder: Path = option("--folder", "Where workload files are.", default=Path(), metavar="FOLDER")
    host: str = option("--host", "The address to listen at.", default="127.0.0.1")
    port: int = option("--port", "The port; 0: a free one.", default=8765, least=0, most=65535)
    host_names: tuple[str, ...] = option(
        "--host-name", "A name that clients reach it by; may be repeated.", default=(), metavar="NAME"
    )
    tls_cert: Path | None = option("--tls-cert", "The certificate, PEM.", default=None, metavar="FILE")
    tls_key: Path | None = option("--tls-key", "Its key, PEM.", default=None, metavar="FILE")
    behind_proxy: bool = option(
        "--behind-proxy", "A proxy in front ends TLS; no client reaches the port itself.", default=False
    )
    oidc: Path | None = option("--oidc", "People sign in by the issuer of this file.", default=None, metavar="FILE")
    gateway_key: str | None = option(
        "--gateway-key", f"What gateways ask for their figures: {SUCH_AS}.", default=None, metavar="REF"
    )


def open_ui(
    options: UiOptions | None = None, *, settings: Settings | None = None, say: Callable[[str], None] | None = None,
    on_begin: Callable[[int], None] | None = None,
) -> None:  # fmt: skip
    """Serve the page and the REST API until SIGTERM or SIGINT. `on_begin` is called with the port.

    Raises PlanRefused at an address that others reach without TLS and keys, InputError for a port that is taken and
    files of TLS that cannot be read, MissingExtra.
    """
    for name in ("fastapi", "uvicorn"):
        if find_spec(name) is None:
            raise MissingExtra("the page", "ui")
    asked, settings, say = options or UiOptions(), settings or current_settings(), say or (lambda _: None)
    sign_in = None if asked.oidc is None else _sign_in(asked.oidc)
    _check(asked, _keys(settings))
    import uvicorn

    from tonnage.api.audits import open_audit
    from tonnage.web.app import make_app

    audit = open_audit(settings)
    server = _web_server(asked, settings, sign_in, audit, say)
    scheme, by = "http" if asked.tls_cert is None else "https", "keys" if sign_in is None else "keys and an issuer"
    with _listening(asked) as listening:
        port = int(listening.getsockname()[1])
        config = uvicorn.Config(
            make_app(server), log_level="warning", access_log=False, server_header=False, proxy_headers=False,
            ssl_certfile=asked.tls_cert and str(asked.tls_cert), ssl_keyfile=asked.tls_key and str(asked.tls_key),
        )  # fmt: skip
        audit.append(
            at=datetime.now(UTC), who=f"local:{getuser()}", what="ui started", host=asked.host, port=port,
            encrypted="by this server" if asked.tls_cert else "by a proxy" if asked.behind_proxy else "no",
            sign_in="none: loopback" if server.access.open_here else by,
        )  # fmt: skip
        say(f"{scheme}://{asked.host}:{port} shows runs, plans and prices; Ctrl-C ends it")
        if on_begin is not None:
            on_begin(port)
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            if sign_in is not None:
                sign_in.close()


def _web_server(
    asked: UiOptions, settings: Settings, sign_in: OidcSignIn | None, audit: AuditFile, say: Callable[[str], None]
) -> WebServer:
    """What the page serves, and to whom: open to this machine alone, else to holders of keys and people signed in."""
    from tonnage.gateway.top.keeping import GatewayLooks
    from tonnage.monitoring.audit import LateAudit
    from tonnage.web.access import LOCAL_NAMES, Access
    from tonnage.web.app import WebServer

    alone = asked.host in LOOPBACK and not asked.behind_proxy
    named = frozenset({asked.host.lower(), *(one.lower() for one in asked.host_names), *(LOCAL_NAMES if alone else ())})
    access = Access(keys=_keys(settings), open_here=alone and sign_in is None, hosts=named)
    looks = GatewayLooks(partial(_gateway_key, asked.gateway_key))
    _gateway_key(asked.gateway_key)  # a reference that cannot be read is reported now
    return WebServer(
        settings, asked.folder.resolve(), access, secure=not alone, audit=audit.append,
        audit_later=LateAudit(audit, say).put, gateways=looks, sign_in=sign_in,
    )  # fmt: skip


def make_ui_key(
    name: str, *, role: str = "viewer", days: int | None = None, projects: Sequence[str] = (), service: bool = False,
    settings: Settings | None = None,
) -> str:  # fmt: skip
    """A new key of a person or (`service`) a program, whose secret is given once. `projects`: the role holds for
    runs and budgets of these alone. Raises InputError for an unknown role and a name that is taken."""
    from tonnage.web.keys import ROLES, now_utc

    if role not in ROLES:
        raise InputError(f"no role is named '{role}'", hint=", ".join(ROLES))
    chosen, now = settings or current_settings(), now_utc()
    ends = None if days is None else now + timedelta(days=days)
    made = _keys(chosen).add(
        name, role, now=now, expires_at=ends, projects=tuple(projects) or None,
        holder="service" if service else "person",
    )  # fmt: skip
    said = {"role": role, "projects": list(projects) or None, "ends": None if ends is None else ends.isoformat()}
    _write_down(chosen, "ui key made", name, before=None, after=said)
    return made


def revoke_ui_key(name: str, *, settings: Settings | None = None) -> None:
    """End a key at once. Raises UnknownName."""
    chosen = settings or current_settings()
    _keys(chosen).revoke(name)
    _write_down(chosen, "ui key revoked", name, before="held", after=None)


def _write_down(settings: Settings, what: str, name: str, *, before: object, after: object) -> None:
    """A line of the audit: who sits at this machine did it."""
    from tonnage.api.audits import open_audit
    from tonnage.web.keys import now_utc

    open_audit(settings).append(
        at=now_utc(), who=f"local:{getuser()}", what=what, name=name, before=before, after=after
    )


def ui_keys(*, settings: Settings | None = None) -> Answer[tuple[ApiKey, ...]]:
    """The keys of this home, without their secrets."""
    return Answer(_keys(settings or current_settings()).every(), _report)


def _sign_in(path: Path) -> OidcSignIn:
    """Raises InputError for a file that cannot be used, MissingExtra."""
    from tonnage.web.oidc_file import read_oidc_file

    if find_spec("joserfc") is None:
        raise MissingExtra("signing in by an issuer", "oidc")
    from tonnage.web.oidc import OidcSignIn

    file = read_oidc_file(path)
    secret = None if file.client_secret is None else read_reference(file.client_secret, os.environ, "client_secret")
    return OidcSignIn(file, secret)


def _gateway_key(reference: str | None) -> str | None:
    return None if reference is None else read_reference(reference, os.environ, "--gateway-key")


def _keys(settings: Settings) -> KeyFile:
    from tonnage.web.keys import KeyFile

    return KeyFile(settings.home / "ui" / "keys.json")


def _check(asked: UiOptions, keys: KeyFile) -> None:
    if asked.folder.is_file():
        raise InputError(f"{asked.folder} is a file", hint="--folder names the folder that holds workload files")
    if (asked.tls_cert is None) != (asked.tls_key is None):
        raise InputError("TLS takes a certificate and its key", hint="--tls-cert FILE --tls-key FILE")
    for path in (asked.tls_cert, asked.tls_key):
        if path is not None and not path.is_file():
            raise InputError(f"{path}: no such file")
    if asked.host in LOOPBACK and not asked.behind_proxy:
        return
    if asked.tls_cert is None and not asked.behind_proxy:
        raise PlanRefused(
            f"others could read along at {asked.host}",
            hint="--tls-cert and --tls-key, or --behind-proxy where a proxy in front ends TLS",
        )
    if asked.oidc is None and not keys.every():
        raise PlanRefused(
            f"no one could sign in at {asked.host}",
            hint="`tonnage ui key NAME --role admin` makes a key; --oidc FILE",
        )


def _listening(asked: UiOptions) -> socket.socket:
    family = socket.AF_INET6 if ":" in asked.host else socket.AF_INET
    try:
        return socket.create_server((asked.host, asked.port), family=family, reuse_port=False)
    except OSError as error:
        raise InputError(
            f"{asked.host}:{asked.port} cannot be listened at: {error.strerror}", hint="--port 0 takes a free one"
        ) from error


def _projects(found: Any) -> str:
    return "all" if found is None else ", ".join(found)


def _report(found: tuple[ApiKey, ...]) -> Report:
    from tonnage.reports.listing import Field, Fields, Listing, listing_report

    def day(name: str, words: str) -> Field[ApiKey]:
        return Field(name, lambda one: None if (at := getattr(one, name)) is None else at.isoformat(), title=words)

    fields: Fields[ApiKey] = (
        Field("name", lambda one: one.name, title="key"), Field("role", lambda one: one.role, title="role"),
        Field("projects", lambda one: one.projects, title="projects", json=list, show=_projects),
        Field("holder", lambda one: one.holder, title="of a"),
        day("made_at", "made"), day("expires_at", "ends"), day("used_at", "last used"),
    )  # fmt: skip
    return listing_report(
        Listing(schema="tonnage/ui-keys@1", title="Keys", name="keys", head={}, fields=fields, items=found)
    )
