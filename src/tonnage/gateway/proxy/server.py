"""The gateway's HTTP/1.1: one protocol on httptools, since an ASGI server costs as much a request as all the rest here.

A request is read whole, with limits on its size and its pace; its answer is whole or a stream. Requests that a client
sends ahead wait their turn. Measured by `benchmarks/gateway.py`.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import httptools

from tonnage.gateway.proxy.request_heads import LastHead, RequestHead

if TYPE_CHECKING:
    from tonnage.gateway.proxy.asked import GatewayRequest

HEADERS_S: Final = 10.0  # from the first byte of a request, or from the connection, to the end of its headers
BODY_SILENCE_S: Final = 30.0
IDLE_S: Final = 120.0
FIRST_BYTE_S: Final = 0.5  # at the end a client that has just connected is waited for so long
REUSE_S: Final = 1.0  # and one that had an answer lately: its next request may be on its way
MOST_HEADER_BYTES: Final = 64 << 10
MOST_AHEAD: Final = 16  # requests that one connection may send before the first is answered
_LINES: Final = {one.value: b"HTTP/1.1 %d %s\r\n" % (one.value, one.phrase.encode()) for one in HTTPStatus}
LINGER_S: Final = 30.0  # how long what follows a refused request is read and thrown away: a reset would eat the answer
MOST_LINGERING_BYTES: Final = 256 << 20
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class ClientExchange:
    """A request, and the way its answer goes. `gone`: its client has closed the connection."""

    __slots__ = ("_chunked", "_connection", "asked", "begun", "body", "head", "headers", "method", "path", "query")

    def __init__(self, connection: _ClientConnection, head: RequestHead, body: bytes) -> None:
        self._connection, self.head, self.body = connection, head, body
        self.method, self.path, self.query, self.headers = head.method, head.path, head.query, head.headers
        self.begun = self._chunked = False
        self.asked: GatewayRequest | None = None  # what it asks for, once that is read

    @property
    def gone(self) -> bool:
        return self._connection.transport is None

    def abort(self) -> None:
        """Close the connection at once."""
        self._connection.abort()

    def failed(self) -> None:
        """Answer for a fault of ours, while it is handled."""
        self._connection.failed(self)

    def answer(self, status: int, head: bytes, body: bytes, *, close: bool = False) -> None:
        """A whole answer. `head`: header lines, each with its line end."""
        self.begun = True
        connection = self._connection
        keep = self.head.keep and not close and not connection.server.draining
        more = b"" if keep else b"connection: close\r\n"
        sent = b"" if self.method == b"HEAD" else body
        connection.write(b"%b%bcontent-length: %d\r\n%b\r\n%b" % (_line(status), head, len(body), more, sent))
        connection.answered(keep)

    def begin(self, status: int, head: bytes) -> None:
        """The head of a stream; a client of HTTP/1.0 reads it to the end of the connection."""
        self.begun, self._chunked = True, not self.head.old
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b"connection: close\r\n"
        self._connection.write(b"%b%b%b\r\n" % (_line(status), head, framing))

    async def piece(self, data: bytes) -> None:
        """A piece of a stream; waits while the client is slow."""
        full = self.put(data)
        if full is not None:
            await full

    def put(self, data: bytes) -> asyncio.Future[None] | None:
        """A piece of a stream; what ends when a slow client can take more."""
        connection = self._connection
        connection.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        return None if connection.transport is None else connection.full

    def end(self, last: bytes = b"", *, whole: bool = True) -> None:
        """The end of a stream. One that is not whole ends with its connection, so that the client knows."""
        if last:
            self._connection.write(b"%x\r\n%b\r\n" % (len(last), last) if self._chunked else last)
        if whole and self._chunked:
            self._connection.write(b"0\r\n\r\n")
        self._connection.answered(self.head.keep and whole and self._chunked and not self._connection.server.draining)


Handler = Callable[[ClientExchange], Awaitable[None]]
ExpressHandler = Callable[[ClientExchange], bool]


class ProxyServer:
    """Connections of one listening socket. `most_bytes`: of a request's body.

    `express` is offered each request before `handle` gets a task for it: True where it answers by itself.
    """

    def __init__(self, handle: Handler, most_bytes: int, express: ExpressHandler | None = None) -> None:
        self.handle, self.most_bytes, self.express = handle, most_bytes, express
        self.draining = False
        self.connections: set[_ClientConnection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, sock: Any) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _ClientConnection(self, loop), sock=sock, backlog=2048)

    def sweep(self) -> None:
        """Let clients go that are too slow, or idle: once a second."""
        now = monotonic()
        for one in tuple(self.connections):
            one.check(now)

    async def drain(self, timeout_s: float) -> None:
        """Take no more connections, answer what is under way, for so long at most."""
        self.draining = True
        if self._server is not None:
            self._server.close()
        until = monotonic() + timeout_s
        while self.connections and monotonic() < until:
            for one in tuple(self.connections):
                one.close_if_idle()
            await asyncio.sleep(0.02)
        for one in tuple(self.connections):
            one.abort()


_LIMITS_S: Final = {"fresh": HEADERS_S, "headers": HEADERS_S, "idle": IDLE_S, "body": BODY_SILENCE_S, "end": LINGER_S}


class _ClientConnection(asyncio.Protocol):
    """One client: requests in turn."""

    __slots__ = (
        "_ahead", "_body", "_busy", "_expects", "_headers", "_last", "_lingering", "_loop", "_parsed", "_parser",
        "_refusal", "_since_s", "_size", "_task", "_url", "_waits", "full", "server", "transport",
    )  # fmt: skip

    def __init__(self, server: ProxyServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server, self._loop = server, loop
        self.transport: asyncio.Transport | None = None
        self.full: asyncio.Future[None] | None = None  # the client reads slower than we write
        self._ahead: deque[ClientExchange] = deque()
        self._busy = False  # a request is under way
        self._task: asyncio.Task[None] | None = None  # that carries it, where one does
        self._last = LastHead()
        self._parsed: tuple[RequestHead, int] | None = None  # and the bytes of its body
        self._parser: Any = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._waits = (
            "idle"  # for: "fresh" the first byte, "idle" the next request, "headers", "body", "end" of what goes
        )
        self._since_s = monotonic()
        self._expects = False
        self._refusal: tuple[int, bytes] | None = None  # of a request whose turn has not come
        self._lingering = 0  # bytes thrown away

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # of a stream
        self._parser = httptools.HttpRequestParser(self)
        self._waits = "fresh"
        self.server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._waits == "end":
            self._lingering += len(data)
            if self._lingering > MOST_LINGERING_BYTES:
                self.abort()
            return
        begins = self._waits != "body" and self._waits != "headers"  # a request, with these bytes
        if begins and (known := self._last.matched(data, self.server.most_bytes)) is not None:
            self._since_s = monotonic()
            self._waits = "idle"
            self._take(*known)
            return
        self._parsed = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, b"this is no place for another protocol")
        except httptools.HttpParserCallbackError as error:
            found = error.__context__
            self._refuse(*(found.args if isinstance(found, _Refusal) else (400, b"the request cannot be read")))
        except httptools.HttpParserError:
            self._refuse(400, b"this is no HTTP request")
        if self._waits == "body":
            self._since_s = monotonic()
        elif begins and self._parsed is not None and self._waits == "idle":
            self._last.remember(self._parsed[0], data, self._parsed[1])

    def connection_lost(self, _: Exception | None) -> None:
        self.transport = None
        self.resume_writing()
        self.server.connections.discard(self)
        self._ahead.clear()

    def pause_writing(self) -> None:
        self.full = self._loop.create_future()

    def resume_writing(self) -> None:
        if self.full is not None:
            if not self.full.done():
                self.full.set_result(None)
            self.full = None

    # what httptools calls

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body, self._size = b"", [], [], 0
        self._expects = False
        self._waits, self._since_s = "headers", monotonic()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._waits == "body":  # a trailer: counted with the body, and no header
            self._size += len(name) + len(value)
            if self._size > self.server.most_bytes:
                raise _Refusal(413, b"a request has at most %d bytes" % self.server.most_bytes)
            return
        name = name.lower()
        self._headers.append((name, value))
        self._count(len(name) + len(value))
        if name == b"expect":
            if value.lower() != b"100-continue":
                raise _Refusal(417, b"nothing can be expected here but 100-continue")
            self._expects = True
        elif name == b"content-length" and (not value.isdigit() or int(value) > self.server.most_bytes):
            raise _Refusal(413, b"a request has at most %d bytes" % self.server.most_bytes)

    def on_headers_complete(self) -> None:
        self._waits, self._size = "body", 0
        if self._expects and not self._busy:
            self._continue()

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > self.server.most_bytes:
            raise _Refusal(413, b"a request has at most %d bytes" % self.server.most_bytes)
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._waits, self._since_s, self._expects = "idle", monotonic(), False
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        parser = self._parser
        head = RequestHead(
            parser.get_method(), self._url, self._headers, keep=parser.should_keep_alive(),
            old=parser.get_http_version() == "1.0",
        )  # fmt: skip
        self._body = []
        self._parsed = (head, len(body))
        self._take(head, body)

    # requests

    def _take(self, head: RequestHead, body: bytes) -> None:
        """A whole request: it is answered, or waits for its turn."""
        exchange = ClientExchange(self, head, body)
        if not self._busy:
            self._start(exchange)
            return
        self._ahead.append(exchange)
        if len(self._ahead) >= MOST_AHEAD and self.transport is not None:
            self.transport.pause_reading()

    def _start(self, exchange: ClientExchange) -> None:
        self._busy = True
        express = self.server.express
        if express is not None:
            try:
                if express(exchange):
                    return
            except Exception:
                self.failed(exchange)
                return
        self._task = self._loop.create_task(self._run(exchange))

    async def _run(self, exchange: ClientExchange) -> None:
        try:
            await self.server.handle(exchange)
        except Exception:
            self.failed(exchange)

    def failed(self, exchange: ClientExchange) -> None:
        """A fault of ours, which must not leave the client waiting: this is the last place that can say so."""
        traceback.print_exc(file=sys.stderr)
        if exchange.begun:
            self.abort()
        else:
            body = _ERROR % (b"the gateway failed", 500)
            exchange.answer(500, b"content-type: application/json\r\n", body, close=True)

    # answers

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def _continue(self) -> None:
        """Tell a client that waits for it to send its body; not in the middle of an earlier answer."""
        self._expects, self._since_s = False, monotonic()
        if self._parser.get_http_version() != "1.0":
            self.write(_CONTINUE)

    def answered(self, keep: bool) -> None:
        """The answer of the request under way is whole."""
        self._busy, self._task, self._since_s = False, None, monotonic()
        if not keep:
            if self.transport is not None:
                self.transport.close()
        elif self._ahead:
            if self.transport is not None:
                self.transport.resume_reading()
            self._start(self._ahead.popleft())
        elif self._refusal is not None:
            self._say(*self._refusal)
        elif self._expects and self._waits == "body":
            self._continue()

    def check(self, now_s: float) -> None:
        """Too slow with its headers or its body, or idle for long."""
        if self._busy:
            return
        if now_s - self._since_s > _LIMITS_S[self._waits]:
            self.abort()

    def close_if_idle(self) -> None:
        if self._busy or self.transport is None:
            return
        waited_s = monotonic() - self._since_s
        late = {"fresh": waited_s > FIRST_BYTE_S, "idle": waited_s > REUSE_S, "end": True}
        if late.get(self._waits, False):
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > MOST_HEADER_BYTES:
            raise _Refusal(431, b"the headers have over %d bytes" % MOST_HEADER_BYTES)

    def _refuse(self, status: int, why: bytes) -> None:
        """A request that is not read to its end; while an earlier one is under way it is answered after that."""
        self._waits = "end"
        if not self._busy:
            self._say(status, why)
        else:
            self._refusal = (status, why)

    def _say(self, status: int, why: bytes) -> None:
        """Answer, close our side, and let the client send the rest: it may read only when it has sent everything."""
        transport = self.transport
        if transport is None:
            return
        self._since_s, self._refusal = monotonic(), None
        body = _ERROR % (why, status)
        transport.write(b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                        % (_line(status), len(body), body))  # fmt: skip
        transport.write_eof()


class _Refusal(Exception):
    """(status, words): raised inside the parser, which wraps it."""


_ERROR: Final = b'{"error":{"message":"%b","type":"invalid_request_error","param":null,"code":"%d"}}'


def _line(status: int) -> bytes:
    return _LINES.get(status) or b"HTTP/1.1 %d -\r\n" % status
