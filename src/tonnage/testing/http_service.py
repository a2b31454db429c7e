"""A pretended service over HTTP on this machine: what is asked of it, answers that are lost, a clock of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from tonnage.testing.machines import Ticker
from tonnage.values import dataclass

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes

    @property
    def body(self) -> Document:
        """Of JSON; empty where there is none."""
        found: Document = json.loads(self.content) if self.content else {}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class HTTPAnswer:
    """An answer: a document as JSON, or bytes."""

    status: int = 200
    document: Document | None = None
    content: bytes = b""
    headers: Mapping[str, str] | None = None


Fault = Callable[[Asked], HTTPAnswer | None]


class ServedHere(Protocol):
    """A server with a clock."""

    http: ThreadingHTTPServer

    def tick(self) -> None:
        """What happens by itself."""

    def close(self) -> None:
        """Nothing is left running."""


class HttpService(ServedHere, Protocol):
    """`before`: faults instead of an answer; `after`: the request is carried out, and its answer is lost."""

    before: list[Fault]
    after: list[Fault]
    asked: list[Asked]

    def answer(self, asked: Asked) -> HTTPAnswer: ...


S = TypeVar("S", bound=ServedHere)


METHODS: Final = ("GET", "POST", "PUT", "DELETE", "HEAD", "PATCH")


def server_of(service: HttpService) -> ThreadingHTTPServer:
    """A server on a free port that asks the service."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(service))
    http.daemon_threads = True
    return http


def _handler_of(service: HttpService) -> type[_Handler]:
    verbs = {f"do_{method}": _Handler.carry_out for method in METHODS}
    return type("Bound", (_Handler,), {"service": service, **verbs})


def times(number: int, answer: HTTPAnswer, method: str, part: str) -> Fault:
    """The first so many requests of a method whose path has a part are answered so."""
    left = [number]

    def fault(asked: Asked) -> HTTPAnswer | None:
        if asked.method != method or part not in asked.path or not left[0]:
            return None
        left[0] -= 1
        return answer

    return fault


@contextmanager
def running(service: S) -> Iterator[S]:
    """The service with its server and its clock."""
    thread = threading.Thread(target=service.http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    clock = Ticker(service.tick)
    try:
        yield service
    finally:
        clock.stop()
        service.http.shutdown()
        service.http.server_close()
        service.close()


class QuietHandler(BaseHTTPRequestHandler):
    """Answers in one packet, and prints nothing."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together: a second packet would wait 40 ms for the first one's receipt

    def say(
        self, status: int, content: bytes, kind: str = "application/json", headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole answer; nothing happens where the client has left."""
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(BrokenPipeError):
            self.wfile.write(b"" if self.command == "HEAD" else content)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


class _Handler(QuietHandler):
    service: HttpService

    def carry_out(self) -> None:
        """One request, whatever its method."""
        parts, service = urlsplit(self.path), self.service
        asked = Asked(
            method=self.command, path=unquote(parts.path), query=dict(parse_qsl(parts.query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in self.headers.items()}, content=self._content(),
        )  # fmt: skip
        service.asked.append(asked)
        found = next((one for ask in service.before if (one := ask(asked))), None)
        if found is None:
            found = service.answer(asked)
            found = next((one for ask in service.after if (one := ask(asked))), None) or found
        content = json.dumps(found.document).encode() if found.document is not None else found.content
        kind = "application/json" if found.document is not None else "application/octet-stream"
        self.say(found.status, content, kind, found.headers)

    def _content(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content
