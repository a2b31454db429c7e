"""Many requests at a time over kept connections: one event loop, httptools, some 40 µs of CPU a request.

httpx costs 10 to 40 times as much a request, which a load generator would measure along with the service.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from time import perf_counter
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from tonnage.errors import InputError, MissingExtra
from tonnage.http.client import USER_AGENT, tls_context
from tonnage.http.urls import without_secrets
from tonnage.values import dataclass

T = TypeVar("T")
FaultKind = Literal["connect", "timeout", "closed", "not-http", "too-large"]
LARGEST_ANSWER_BYTES: Final = 256 * 2**20
OnBody = Callable[[bytes, float], None]  # a piece of the body, and when it came (`time.perf_counter`, s)


class ExchangeFault(Exception):
    """A request that got no whole answer. `sent`: the request may have reached the server."""

    def __init__(self, kind: FaultKind, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.kind, self.sent = kind, sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a service listens: `path` is what its URL has before the path of a call, without a slash at its end."""

    host: str
    port: int
    secure: bool
    path: str

    @property
    def authority(self) -> str:
        """The `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.path}"


def read_endpoint(url: str) -> Endpoint:
    """The endpoint of a base URL. InputError for another scheme, a missing host, an invalid port, a password.

    >>> read_endpoint("http://localhost:8000/v1/").path
    '/v1'
    """
    shown = without_secrets(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InputError(f"'{shown}' is not a URL: {error}", hint="write it as http://localhost:8000") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"'{shown}' is not a URL of a service", hint="write it as http://localhost:8000")
    if parts.username or parts.query or parts.fragment:
        raise InputError(f"'{shown}': a base URL has no user, query or fragment", hint="keys go into --api-key-env")
    secure = parts.scheme == "https"
    return Endpoint(
        host=parts.hostname, port=port or (443 if secure else 80), secure=secure, path=parts.path.rstrip("/")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """A whole answer. Times are of `time.perf_counter`, in seconds (the clock of uvloop counts whole milliseconds);
    header names are in lower case."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes
    sent_s: float
    first_byte_s: float  # of the body; of the headers where it is empty
    last_byte_s: float

    def header(self, name: str) -> str | None:
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")


def request_bytes(
    endpoint: Endpoint, path: str, body: bytes | None, headers: Mapping[str, str], method: str = "POST"
) -> bytes:
    """A request as it goes over the wire. ValueError for a header that holds a line break."""
    lines = [f"{method} {endpoint.path}{path} HTTP/1.1", f"Host: {endpoint.authority}", f"User-Agent: {USER_AGENT}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError("a header holds a line break")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


class HttpPool:
    """Connections to one endpoint, kept and used again. Use it inside one event loop, and `close` it there."""

    def __init__(self, endpoint: Endpoint, *, connect_timeout_s: float = 10.0) -> None:
        _httptools()
        self.endpoint = endpoint
        self._connect_timeout_s = connect_timeout_s
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._tls = tls_context() if endpoint.secure else None

    async def send(self, request: bytes, *, timeout_s: float, on_body: OnBody | None = None) -> HttpAnswer:
        """Send a request, wait for its whole answer. `on_body` is called with each piece of the body as it arrives.

        Raises ExchangeFault. A kept connection that the server had closed meanwhile is replaced by a new one, once.
        """
        kept = self._take_kept()
        if kept is not None:
            try:
                return await kept.exchange(request, timeout_s, on_body)
            except ExchangeFault as fault:
                if fault.kind != "closed" or kept.answered:
                    raise
        return await (await self._connect()).exchange(request, timeout_s, on_body)

    def close(self) -> None:
        for one in tuple(self._open):
            one.abort()
        self._idle.clear()

    def release(self, connection: _Connection) -> None:
        """A connection whose answer is whole, to be used again."""
        self._idle.append(connection)

    def forget(self, connection: _Connection) -> None:
        """A connection that is closed."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def _take_kept(self) -> _Connection | None:
        return self._idle.pop() if self._idle else None

    async def _connect(self) -> _Connection:
        loop, to = asyncio.get_running_loop(), self.endpoint
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, made = await loop.create_connection(
                    lambda: _Connection(self, loop), to.host, to.port, ssl=self._tls,
                    server_hostname=to.host if self._tls else None,
                )  # fmt: skip
        except TimeoutError as error:
            raise ExchangeFault("connect", f"no connection in {self._connect_timeout_s:g} s", sent=False) from error
        except OSError as error:  # refused, unreachable, unknown host; TLS errors are OSErrors too
            raise ExchangeFault("connect", str(error) or type(error).__name__, sent=False) from error
        self._open.add(made)
        return made


class _Connection(asyncio.Protocol):
    """One connection, one exchange at a time."""

    def __init__(self, pool: HttpPool, loop: asyncio.AbstractEventLoop) -> None:
        self._pool, self._loop = pool, loop
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[HttpAnswer] | None = None
        self._parser: Any = None
        self.answered = False  # the exchange that goes on, or the last one, got at least a byte

    async def exchange(self, request: bytes, timeout_s: float, on_body: OnBody | None) -> HttpAnswer:
        self.answered = False
        if self._transport is None or self._transport.is_closing():
            raise ExchangeFault("closed", "the kept connection was closed", sent=False)
        self._parser = _httptools().HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self._size, self._first_s, self._headed = 0, 0.0, False
        self._on_body = on_body
        self._waiter = self._loop.create_future()
        self._sent_s = perf_counter()
        self._transport.write(request)
        handle = self._loop.call_later(timeout_s, self._expire, timeout_s)
        try:
            return await self._waiter
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            handle.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # of a stream: it has write and abort

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.abort()  # bytes without a request
            return
        self._now_s, self.answered = perf_counter(), True
        try:
            self._parser.feed_data(data)
        except _httptools().HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, _TooLarge):
                self._fail("too-large", f"the answer is over {LARGEST_ANSWER_BYTES:,} bytes")
            else:
                self._fail("not-http", f"the answer is not HTTP: {error}")
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._pool.forget(self)
        if self._waiter is None or self._waiter.done():
            return
        if self._headed and error is None and not self._framed():
            self._now_s = perf_counter()
            self._finish()  # an answer without a length ends with its connection
        else:
            self._fail("closed", str(error) if error else "the connection was closed")

    # what httptools calls

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self._headed = True
        else:  # 1xx: the answer follows
            self._headers = {}

    def on_body(self, body: bytes) -> None:
        if not self._size:
            self._first_s = self._now_s
        self._size += len(body)
        if self._size > LARGEST_ANSWER_BYTES:
            raise _TooLarge
        self._pieces.append(body)
        if self._on_body is not None:
            self._on_body(body, self._now_s)

    def on_message_complete(self) -> None:
        if not self._headed:
            return
        keep = self._parser.should_keep_alive()
        self._finish()
        if keep:
            self._pool.release(self)
        elif self._transport is not None:
            self._transport.close()

    # inside

    def _framed(self) -> bool:
        return b"content-length" in self._headers or b"transfer-encoding" in self._headers

    def _finish(self) -> None:
        if self._waiter is None or self._waiter.done():
            return
        self._waiter.set_result(
            HttpAnswer(
                status=self._parser.get_status_code(), headers=self._headers, body=b"".join(self._pieces),
                sent_s=self._sent_s, first_byte_s=self._first_s or self._now_s, last_byte_s=self._now_s,
            )
        )  # fmt: skip

    def _fail(self, kind: FaultKind, message: str) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ExchangeFault(kind, message, sent=True))

    def _expire(self, timeout_s: float) -> None:
        self._fail("timeout", f"no whole answer in {timeout_s:g} s")
        self.abort()


class _TooLarge(Exception):
    """Raised inside the parser, which wraps it."""


def run_in_loop(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine in an event loop of its own: uvloop where it exists (not on Windows)."""
    if sys.platform == "win32":
        return asyncio.run(work)
    try:
        import uvloop
    except ImportError as error:
        work.close()
        raise MissingExtra("sending many requests at a time", "load") from error
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _httptools() -> Any:
    try:
        import httptools
    except ImportError as error:
        raise MissingExtra("sending many requests at a time", "load") from error
    return httptools
