"""Requests passed on to a service: kept connections, the answer's head as soon as it is there, its body piece by piece.

`http.connection` speaks HTTP; `http.pool` waits for whole answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from tonnage.http.client import tls_context
from tonnage.http.connection import Connection, Headers, UpstreamFault, UpstreamTimeouts
from tonnage.http.pool import Endpoint

HOP_BY_HOP: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
_OWN: Final = (b"host", b"content-length", b"expect")  # stated again


class Upstream:
    """Connections to one service, kept and used again."""

    def __init__(self, endpoint: Endpoint, timeouts: UpstreamTimeouts | None = None) -> None:
        self.endpoint, self.timeouts = endpoint, timeouts or UpstreamTimeouts()
        self._authority = endpoint.authority.encode()
        self._path = endpoint.path.encode()
        self._tls = tls_context() if endpoint.secure else None
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] = set()
        self._keeps = True

    @classmethod
    def at(cls, host: str, port: int) -> Upstream:
        """A service on a port, without TLS."""
        return cls(Endpoint(host=host, port=port, secure=False, path=""))

    async def ask(self, method: str, target: bytes, headers: Headers, body: bytes) -> Connection:
        """Send a request; the connection, once the head of its answer is there. Raises UpstreamFault.

        The request is written once, on one connection. Kept ones that the service has closed are left out before that.
        """
        request = self.written(method, target, headers, body)
        return await (self.kept() or await self.connected()).begin(request, method)

    def written(self, method: str, target: bytes, headers: Headers, body: bytes) -> bytes:
        """A request as it goes over the wire."""
        begun = self.begun(method, target, headers)
        if body or method in ("POST", "PUT", "PATCH"):
            return b"%bcontent-length: %d\r\n\r\n%b" % (begun, len(body), body)
        return begun + b"\r\n"

    def begun(self, method: str, target: bytes, headers: Headers) -> bytes:
        """Its first lines, without headers that are of one connection, without its length, without its end."""
        lines = [b"%b %b%b HTTP/1.1\r\nhost: %b\r\n" % (method.encode(), self._path, target, self._authority)]
        for name, value in headers:
            if name not in HOP_BY_HOP and name not in _OWN:
                lines.append(b"%b: %b\r\n" % (name, value))
        return b"".join(lines)

    def kept(self) -> Connection | None:
        """A connection of an earlier request that can carry another one; who takes it sends a request over it."""
        while self._idle:
            found = self._idle.pop()
            if found.usable():
                return found
        return None

    async def connected(self) -> Connection:
        """A new connection. Raises UpstreamFault."""
        loop, to = asyncio.get_running_loop(), self.endpoint
        try:
            async with asyncio.timeout(self.timeouts.connect_s):
                _, made = await loop.create_connection(
                    lambda: Connection(self), to.host, to.port, ssl=self._tls,
                    server_hostname=to.host if self._tls else None,
                )  # fmt: skip
        except (OSError, TimeoutError) as error:
            said = str(error) or f"none in {self.timeouts.connect_s:g} s"
            raise UpstreamFault(f"no connection to {to.authority}: {said}", kind="connect", sent=False) from error
        self._open.add(made)
        return made

    def release(self, connection: Connection) -> None:
        """Its answer was read to the end: it is kept for the next one."""
        if self._keeps:
            self._idle.append(connection)
        else:
            connection.abort()

    def forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close_idle(self) -> None:
        """End connections that nothing waits for; the others end with their answers, as all that are made later do."""
        self._keeps = False
        for one in tuple(self._idle):
            one.abort()
        self._idle.clear()

    def close(self) -> None:
        """End all connections, answers under way included."""
        for one in tuple(self._open):
            one.abort()
        self._idle.clear()
