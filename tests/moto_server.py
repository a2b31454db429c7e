"""moto's answers in the place of AWS, from a process of its own: its threads must not slow those of a test."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def moto_server() -> Iterator[str]:
    """The address of a server that answers until the block ends."""
    server = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    assert server.stdout is not None
    try:
        port = server.stdout.readline().strip()
        assert port, f"moto's server ended with exit code {server.wait()}"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def reset(endpoint: str) -> None:
    """Everything that the server keeps is gone."""
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST"), timeout=60).close()


def serve() -> None:
    """Answer forever; the port, which the system chooses, is printed when clients can connect."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    server = make_server(
        "127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True,
        request_handler=MotoRequestHandler,
    )  # fmt: skip
    os.environ["MOTO_PORT"] = str(server.server_port)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    serve()
