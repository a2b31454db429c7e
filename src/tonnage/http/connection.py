"""One connection to a service: a request goes out; the head of its answer is there as soon as it has come, its body
piece by piece.

httptools parses. A coroutine waits with `begin` and `read`; what must cost less is called instead, with `send`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from select import POLLIN, poll
from time import monotonic
from typing import Any, Final, Literal, Protocol

from tonnage.errors import MissingExtra
from tonnage.values import dataclass

Headers = Sequence[tuple[bytes, bytes]]
UpstreamFaultKind = Literal["connect", "first-byte", "silence", "closed", "not-http"]
LOOK_AFTER_S: Final = 0.1  # a connection that was idle for so long is looked at before a request goes over it
MOST_UNREAD_BYTES: Final = 1 << 20  # a slow client holds up the service's connection, not this process's memory
_STREAMS: Final = (b"text/event-stream", b"application/x-ndjson", b"application/vnd.amazon.eventstream")


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


class ConnectionOwner(Protocol):
    """Who keeps connections."""

    timeouts: UpstreamTimeouts

    def release(self, connection: Connection) -> None:
        """Its answer was read to the end: it can carry another request."""

    def forget(self, connection: Connection) -> None:
        """It is closed."""


class Connection(asyncio.Protocol):
    """One connection, one answer at a time: `status` and `headers` after `begin`, then `read` until it gives None.

    `done`: the answer is whole; `fault`: it never will be.
    """

    __slots__ = (
        "_allowed", "_extra", "_head_only", "_headed", "_heard", "_idle_since_s", "_keep", "_loop", "_parser",
        "_paused", "_pieces", "_timer", "_timer_s", "_transport", "_unread", "_until_s", "_upstream", "_waiter", "done",
        "fault", "headers", "status",
    )  # fmt: skip

    def __init__(self, upstream: ConnectionOwner) -> None:
        self._upstream = upstream
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._heard: Callable[[], None] | None = None
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._paused = False
        self._headed = self._head_only = False
        self._extra = False  # the service wrote more than its answer: nothing that follows could be trusted
        self.fault: UpstreamFault | None = None
        self.done = True
        self._keep: bool | None = None  # None: not known yet, or done
        self._idle_since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = self._until_s = 0.0
        self._allowed: tuple[float, UpstreamFaultKind] = (0.0, "silence")
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    def usable(self) -> bool:
        """Whether a kept connection can carry a request: open, and nothing of the service's waits to be read on it.

        The end of a connection, or bytes without a request, may have come while the event loop was busy.
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
        self._write(request, head_only=method == "HEAD")
        return await self.headed()

    def send(self, request: bytes, heard: Callable[[], None]) -> None:
        """Write a request on a connection that is `usable`; `heard` is called when the head of its answer is there, at
        each piece, at its end and at a fault, until `call_no_more`."""
        self._write(request)
        self._heard = heard
        self._allow(self._upstream.timeouts.first_byte_s, "first-byte")

    def call_no_more(self) -> None:
        """What comes from now on is waited for: `headed`, `read`."""
        self._heard = None

    async def headed(self) -> Connection:
        """Once the head of the answer is there. Raises UpstreamFault."""
        try:
            while not self._headed:
                await self._wait(self._upstream.timeouts.first_byte_s, "first-byte")
        except (asyncio.CancelledError, UpstreamFault):
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
        for name, value in self.headers:
            if name == b"content-type":
                return value.startswith(_STREAMS)
        return False

    @property
    def unread(self) -> int:
        """Bytes of the body that are here."""
        return self._unread

    async def read(self) -> bytes | None:
        """The next piece of the body; None at its end. Raises UpstreamFault where it breaks off."""
        while not self._pieces:
            if self.done:
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

    def taken(self) -> bytes:
        """All of the body that is here."""
        pieces = self.pieces()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def pieces(self) -> Sequence[bytes]:
        """The same as it came; at the end of the answer the connection is free for another request."""
        found = list(self._pieces)
        self._pieces.clear()
        self._unread = 0
        if self.done:
            self._leave()
        return found

    def pause(self) -> None:
        """Read nothing more until `resume`: who is written to is slow."""
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        self._paused = False
        if self._transport is not None and not self.done:
            self._allow(self._upstream.timeouts.between_s, "silence")
            self._transport.resume_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _write(self, request: bytes, *, head_only: bool = False) -> None:
        assert self._transport is not None
        if self._parser is None:
            self._parser = _httptools().HttpResponseParser(self)
        self._headed = self.done = False
        self._head_only = head_only
        self.headers = []
        self._transport.write(request)

    async def _wait(self, timeout_s: float, kind: UpstreamFaultKind) -> None:
        """Until something comes."""
        if self.fault is not None:
            raise self.fault
        self._allow(timeout_s, kind)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self.fault is not None and not self._pieces:
            raise self.fault

    def _allow(self, timeout_s: float, kind: UpstreamFaultKind) -> None:
        """What comes must come in time. One timer serves all waits of a connection: a wait that ends leaves it be."""
        self._until_s = until_s = self._loop.time() + timeout_s
        self._allowed = (timeout_s, kind)
        if self._timer is not None:
            if self._timer_s <= until_s:
                return
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._timer, self._timer_s = self._loop.call_later(timeout_s, self._expire), until_s

    def _expire(self) -> None:
        self._timer = None
        if self._paused or (self._waiter is None and self._heard is None):
            return
        if self._loop.time() < self._until_s:  # of a later wait than the one that the timer was set for
            self._timer, self._timer_s = self._loop.call_at(self._until_s, self._expire), self._until_s
            return
        timeout_s, kind = self._allowed
        self.fault = UpstreamFault(f"nothing came for {timeout_s:g} s", kind=kind)
        self.abort()
        self._wake()

    def _wake(self) -> None:
        if self._heard is not None:
            if self._headed or self.fault is not None:
                self._heard()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream: it has write and abort
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        if self.done:
            self.abort()  # bytes without a request
            return
        try:
            self._parser.feed_data(data)
        except _httptools().HttpParserError as error:
            self.fault = UpstreamFault(f"the answer is not HTTP: {error}", kind="not-http")
            self.abort()
        if self._unread > MOST_UNREAD_BYTES and self._transport is not None:
            self._transport.pause_reading()
        if self._heard is None:
            self._wake()
            return
        between_s = self._upstream.timeouts.between_s
        self._until_s, self._allowed = self._loop.time() + between_s, (between_s, "silence")
        if self._headed or self.fault is not None:
            self._heard()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._upstream.forget(self)
        if not self.done and self.fault is None:
            if self._headed and error is None and not self._framed():
                self.done = True  # an answer without a length ends with its connection
            else:
                self.fault = UpstreamFault(f"the connection was closed: {error or 'end of file'}")
        self._wake()

    # what httptools calls

    def on_message_begin(self) -> None:
        self._extra = self._headed

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headed:  # later ones are trailers
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._extra:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.headers = []  # 1xx: the answer follows
            return
        self.status, self._headed = status, True
        if self._head_only:
            self._finish(keep=False)

    def on_body(self, body: bytes) -> None:
        if not self._extra:
            self._pieces.append(body)
            self._unread += len(body)

    def on_message_complete(self) -> None:
        if self._headed and not self.done:
            self._finish(keep=self._parser.should_keep_alive())

    def _finish(self, *, keep: bool) -> None:
        """The answer is whole; its connection is free once its last piece is read."""
        self.done, self._keep = True, keep

    def _leave(self) -> None:
        keep, self._keep = self._keep, None
        self._heard = None
        if keep is None or self._transport is None or self._transport.is_closing():
            return
        if keep and not self._extra:
            self._idle_since_s = monotonic()
            self._upstream.release(self)
        else:
            self._transport.close()

    def _framed(self) -> bool:
        return any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)


@lru_cache(maxsize=1)
def _httptools() -> Any:
    try:
        import httptools
    except ImportError as error:
        raise MissingExtra("passing requests on", "load") from error
    return httptools
