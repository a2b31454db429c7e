"""`python -m tonnage.serving.encoder SERVICE.json`: serve until SIGTERM or SIGINT, then finish what was taken."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from typing import Any, Final

from tonnage.errors import MissingExtra, TonnageError
from tonnage.serving.encoder.building import build_app
from tonnage.serving.encoder.service import EncoderService, load_service
from tonnage.serving.listening import listening_socket

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
    listening = listening_socket(service.host, service.port)  # before the model loads: a taken port is known at once
    app = build_app(service)
    server = uvicorn.Server(uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=GRACE_S, lifespan="on", backlog=BACKLOG,
        server_header=False, date_header=False,
    ))  # fmt: skip
    app.ending = lambda: server.should_exit
    for number in (signal.SIGTERM, signal.SIGINT):  # the server raises what ended it once more: it has been obeyed
        signal.signal(number, lambda *_: None)
    server.run(sockets=[listening])


if __name__ == "__main__":
    sys.exit(main())
