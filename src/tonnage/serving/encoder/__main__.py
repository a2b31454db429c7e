"""`python -m tonnage.serving.encoder SERVICE.json`: serve until SIGTERM or SIGINT, then finish what was taken."""

from __future__ import annotations

import importlib
import signal
import socket
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.serving.encoder.service import EncoderService, load_service

if TYPE_CHECKING:
    from tonnage.serving.encoder.app import App

BACKLOG: Final = 2048
GRACE_S: Final = 60


def main() -> int:
    """Exit codes as the command line's: 2 for a service that cannot be used."""
    try:
        serve(load_service(Path(sys.argv[1])))
    except TonnageError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        print(f"error: {error}{hint}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


def serve(service: EncoderService) -> None:
    """Load, measure, listen. Raises InputError for a model or a port that cannot be used."""
    try:
        uvicorn: Any = importlib.import_module("uvicorn")
    except ImportError as error:
        raise MissingExtra("an encoder server", "serve") from error
    listening = _listen(service)
    app = _app(service)
    server = uvicorn.Server(uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_S, lifespan="on", backlog=BACKLOG,
        server_header=False, date_header=False,
    ))  # fmt: skip
    app.ending = lambda: server.should_exit
    for number in (signal.SIGTERM, signal.SIGINT):  # the server raises what ended it once more: it has been obeyed
        signal.signal(number, lambda *_: None)
    server.run(sockets=[listening])


def _app(service: EncoderService) -> App:
    """The application. Where the model cannot be loaded, its fallback serves alone, and every answer says so."""
    from tonnage.serving.encoder.app import App
    from tonnage.serving.encoder.caching import open_cache
    from tonnage.serving.encoder.engine import Encoder
    from tonnage.serving.encoder.versions import Versions

    load = partial(Encoder, cache=open_cache(service.cache_items, service.cache_url))
    fallback = None if service.fallback is None else load(replace(service, model=service.fallback))
    try:
        first = load(service)
    except InputError as error:
        if fallback is None:
            raise
        print(f"the fallback serves alone: {error}", file=sys.stderr, flush=True)  # noqa: T201
        first = fallback
    return App(Versions(first, load), fallback=fallback)


def _listen(service: EncoderService) -> socket.socket:
    """The port, taken before the model loads: one that is in use is known at once."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((service.host, service.port))
    except OSError as error:
        raise InputError(f"port {service.port} of {service.host} is taken", hint="name another: --port") from error
    return made


if __name__ == "__main__":
    sys.exit(main())
