"""The socket that a server listens on."""

from __future__ import annotations

import socket

from tonnage.errors import InputError


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket bound to the address; InputError where it is taken. Port 0: any."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise InputError(
            f"port {port} of {host} cannot be listened on: {error.strerror}", hint="name another: --port"
        ) from error
    return found
