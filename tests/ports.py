"""Ports for servers that take no socket from their caller."""

from __future__ import annotations

import random
import socket
from typing import Final

CHOSEN: Final = range(10_000, 32_000)  # below those that a system gives to whoever asks for any
_choice: Final = random.Random()  # of its own: tests seed the shared one alike in each process


def free_port() -> int:
    """One that nothing listens on; nobody else is given it meanwhile, but a test that happens to draw the same."""
    while True:
        port = _choice.choice(CHOSEN)
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
