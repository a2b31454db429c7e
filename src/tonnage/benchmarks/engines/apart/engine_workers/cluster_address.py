"""Whether anything answers at a cluster's address, asked before an engine waits for it for minutes."""

from __future__ import annotations

import socket

from .base import EngineFault

ANSWER_S = 5.0


def host_and_port(address: str) -> tuple[str, int]:
    """Where a cluster listens.

    >>> host_and_port("spark://head:7077"), host_and_port("10.0.0.4:6379"), host_and_port("ray://[::1]:10001")
    (('head', 7077), ('10.0.0.4', 6379), ('::1', 10001))
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def must_answer(what: str, address: str) -> None:
    """EngineFault where nothing takes a connection at the address, or at any of several, within `ANSWER_S` each."""
    why = ""
    for place in address.rpartition("://")[2].split(","):
        try:
            socket.create_connection(host_and_port(place), timeout=ANSWER_S).close()
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
        else:
            return
    raise EngineFault(f"no {what} answers at {address}: {why}")
