"""Requests passed on to a service: kept connections, the answer's head as soon as it is there, its body piece by piece.

httptools parses, so a streamed answer passes through with some 20 µs of CPU a piece. `http.pool` waits for whole ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from select import POLLIN, poll
from time import monotonic
from typing import Any, Final, Literal

from tonnage.errors import MissingExtra
from tonnage.http.client import tls_context
from tonnage.http.pool import Endpoint
from tonnage.values import dataclass

Headers = Sequence[tuple[bytes, bytes]]
UpstreamFaultKind = Literal["connect", "first-byte", "silence", "closed", "not-http"]
LOOK_AFTER_S: Final = 0.1  # a connection that was idle for so long is looked at before a request goes over it
MOST_UNREAD_BYTES: Final = 1 << 20  # a slow client holds up the service's connection, not this process's memory
_STREAMS: Final = (b"text/event-stream", b"application/x-ndjson", b"application/vnd.amazon.eventstream")
HOP_BY_HOP: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTimeouts:
    """Seconds until there is a connection, until the first byte of an answer, and between two pieces of it."""

    connect_s: float = 5.0
    first_byte_s: float = 600.0
    between_s: float = 600.0


class UpstreamFault(Exception):
    """No whole answer: the service does not listen, is silent, closed the connection, or sent what is no HTTP.

    `sent`: the request may have reached the service, which may have computed its answer. A connection that closes after
    a request was written on it proves nothing: who asks again asks twice, and has to count both.
    """

    def __init__(self, message: str, *, kind: UpstreamFaultKind = "closed", sent: bool = True) -> None:
        super().__init__(message)
        self.kind, self.sent = kind, sent


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
        request = _request(method, self._path + target, headers, body, self._authority)
        while self._idle:
            kept = self._idle.pop()
            if kept.usable():
                return await kept.begin(request, method)
        return await (await self._connect()).begin(request, method)

    async def _connect(self) -> Connection:
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


class Connection(asyncio.Protocol):
    """One connection, one answer at a time: `status` and `headers` after `begin`, then `read` until it gives None."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._fault: UpstreamFault | None = None
        self._done = True
        self._keep: bool | None = None  # None: not known yet, or done
        self._idle_since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        self._allowed: tuple[float, UpstreamFaultKind] = (0.0, "silence")
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    def usable(self) -> bool:
        """Whether a kept connection can carry a request: open, and nothing of the service's waits to be read on it.

        The end of a connection, or bytes that nobody asked for, may have come while the event loop was busy.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if monotonic() - self._idle_since_s < LOOK_AFTER_S:
            return True
        looked = poll()
        looked.register(transport.get_extra_info("socket").fileno(), POLLIN)
        if looked.poll(0):
            self.abort()
            return False
        return True

    async def begin(self, request: bytes, method: str) -> Connection:
        """Raises UpstreamFault: the service closed the connection, said nothing in time, or what is no HTTP."""
        if self._transport is None or self._transport.is_closing():
            raise UpstreamFault("the connection was closed before the request", sent=False)
        self._parser = _httptools().HttpResponseParser(self)
        self._pieces: deque[bytes] = deque()
        self._unread, self._headed, self._done, self._fault = 0, False, False, None
        self._head_only = method == "HEAD"
        self.status, self.headers = 0, []
        self._transport.write(request)
        try:
            while not self._headed:
                await self._wait(self._upstream.timeouts.first_byte_s, "first-byte")
        except asyncio.CancelledError:
            self.abort()
            raise
        except UpstreamFault:
            self.abort()
            raise
        return self

    @property
    def length(self) -> int | None:
        """Bytes of the body as its head states them; None: not stated."""
        stated = next((value for name, value in self.headers if name == b"content-length"), None)
        return None if stated is None else int(stated)

    @property
    def streams(self) -> bool:
        """Whether pieces are to reach the client as they come."""
        kind = next((value for name, value in self.headers if name == b"content-type"), b"")
        return kind.startswith(_STREAMS)

    async def read(self) -> bytes | None:
        """The next piece of the body; None at its end. Raises UpstreamFault where it breaks off."""
        while not self._pieces:
            if self._done:
                self._leave()
                return None
            try:
                await self._wait(self._upstream.timeouts.between_s, "silence")
            except asyncio.CancelledError:
                self.abort()
                raise
        piece = self._pieces.popleft()
        self._unread -= len(piece)
        if self._unread < MOST_UNREAD_BYTES // 2 and self._transport is not None:
            self._transport.resume_reading()
        return piece

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self, timeout_s: float, kind: UpstreamFaultKind) -> None:
        """Until something comes. One timer serves all waits of a connection: a wait that ends in time leaves it be."""
        if self._fault is not None:
            raise self._fault
        loop = asyncio.get_running_loop()
        self._until_s = loop.time() + timeout_s
        self._allowed = (timeout_s, kind)
        if self._timer is not None and self._timer.when() > self._until_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and self._transport is not None:
            self._timer = loop.call_later(timeout_s, self._expire)
        self._waiter = loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._fault is not None and not self._pieces:
            raise self._fault

    def _expire(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._until_s:  # of a later wait than the one that the timer was set for
            self._timer = loop.call_at(self._until_s, self._expire)
            return
        timeout_s, kind = self._allowed
        self._fault = UpstreamFault(f"nothing came for {timeout_s:g} s", kind=kind)
        self.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream: it has write and abort

    def data_received(self, data: bytes) -> None:
        if self._done:
            self.abort()  # bytes nobody asked for
            return
        try:
            self._parser.feed_data(data)
        except _httptools().HttpParserError as error:
            self._fault = UpstreamFault(f"the answer is not HTTP: {error}", kind="not-http")
            self.abort()
        if self._unread > MOST_UNREAD_BYTES and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._upstream.forget(self)
        if not self._done and self._fault is None:
            if self._headed and error is None and not self._framed():
                self._done = True  # an answer without a length ends with its connection
            else:
                self._fault = UpstreamFault(f"the connection was closed: {error or 'end of file'}")
        self._wake()

    # what httptools calls

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headed:  # later ones are trailers
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            self.headers = []  # 1xx: the answer follows
            return
        self.status, self._headed = self._parser.get_status_code(), True
        if self._head_only:
            self._finish(keep=False)

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._unread += len(body)

    def on_message_complete(self) -> None:
        if self._headed and not self._done:
            self._finish(keep=self._parser.should_keep_alive())

    def _finish(self, *, keep: bool) -> None:
        """The answer is whole; its connection is free once its last piece is read."""
        self._done, self._keep = True, keep

    def _leave(self) -> None:
        keep, self._keep = self._keep, None
        if keep is None or self._transport is None or self._transport.is_closing():
            return
        if keep:
            self._idle_since_s = monotonic()
            self._upstream.release(self)
        else:
            self._transport.close()

    def _framed(self) -> bool:
        return any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)


def _request(method: str, target: bytes, headers: Headers, body: bytes, host: bytes) -> bytes:
    lines = [method.encode() + b" " + target + b" HTTP/1.1", b"host: " + host]
    lines += [
        name + b": " + value for name, value in headers
        if name not in HOP_BY_HOP and name not in (b"host", b"content-length", b"expect")
    ]  # fmt: skip
    if body or method in ("POST", "PUT", "PATCH"):
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join([*lines, b"", b""]) + body


@lru_cache(maxsize=1)
def _httptools() -> Any:
    try:
        import httptools
    except ImportError as error:
        raise MissingExtra("passing requests on", "load") from error
    return httptools
