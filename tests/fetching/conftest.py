"""A web server on this machine that can be told to misbehave, and short ways to fetch from it."""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tonnage.fetching import Fetched, FetchRequest, ProgressWatcher, fetch, partial

PART_BYTES = 64 * 1024
NOW = datetime(2026, 12, 1, tzinfo=UTC)


@dataclass
class Served:
    """One file of the server and its manners."""

    body: bytes
    etag: str | None = None
    ranges: bool = True
    honours_if_range: bool = True
    length: int | None = None  # a lie about the length
    announces_length: bool = True
    cuts: list[int] = field(default_factory=list)  # for the next answers: connection shut after so many bytes
    refusals: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # the next answers, before any other
    headers: dict[str, str] = field(default_factory=dict)
    location: str | None = None
    on_body: Callable[[int], None] | None = None  # told how many bodies were asked for, before one is sent
    block_s: float = 0.0  # pause after each 16 KiB
    bodies: int = 0

    def __post_init__(self) -> None:
        if self.etag is None:
            self.etag = f'"{hashlib.md5(self.body).hexdigest()}"'


class Shop:
    """The server: `shop.files[path]`, what was asked for in `shop.asked`."""

    def __init__(self) -> None:
        self.files: dict[str, Served] = {}
        self.asked: Counter[str] = Counter()
        self.ranges: list[tuple[str, str]] = []
        self.sent_bytes = 0
        self.seen_headers: list[dict[str, str]] = []
        self.lock = threading.Lock()
        shop = self

        class Handler(_Handler):
            owner = shop

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def put(self, path: str, body: bytes, **manners: Any) -> str:
        """Serve `body`; the URL."""
        self.files[path] = Served(body, **manners)
        return f"{self.url}{path}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that was killed is part of the play; anything else is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Shop

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        shop = self.owner
        with shop.lock:
            shop.asked[path] += 1
            shop.seen_headers.append(dict(self.headers))
            if self.headers.get("Range"):
                shop.ranges.append((path, self.headers["Range"]))
            served = shop.files.get(path)
            refusal = served.refusals.pop(0) if served is not None and served.refusals else None
        if served is None:
            return self._short(404, {})
        if refusal is not None:
            return self._short(*refusal)
        if served.location is not None:
            return self._short(302, {"Location": served.location, **served.headers})
        return self._file(served)

    def _short(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": "0", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _file(self, served: Served) -> None:
        asked = self.headers.get("Range")
        probe = asked == "bytes=0-0"
        if self.command == "GET" and not probe:
            with self.owner.lock:
                served.bodies += 1
                number = served.bodies
            if served.on_body is not None:
                served.on_body(number)
        body, status = served.body, 200
        held = self.headers.get("If-Range") in (None, served.etag) or not served.honours_if_range
        headers = dict(served.headers)
        if asked and served.ranges and held and body:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last), len(body) - 1) if last else len(body) - 1
            headers["Content-Range"] = f"bytes {start}-{end}/{len(body)}"
            body, status = body[start : end + 1], 206
        if served.etag:
            headers["ETag"] = served.etag
        if served.announces_length:
            lie = served.length is not None and status == 200
            headers["Content-Length"] = str(served.length if lie else len(body))
        else:
            headers["Connection"] = "close"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self._send(served, body, probe=probe)

    def _send(self, served: Served, body: bytes, *, probe: bool) -> None:
        with self.owner.lock:
            cut = served.cuts.pop(0) if served.cuts and not probe else None
        whole = len(body) if cut is None else min(cut, len(body))
        try:
            for at in range(0, whole, 16 * 1024):
                block = body[at : min(at + 16 * 1024, whole)]
                self.wfile.write(block)
                with self.owner.lock:
                    self.owner.sent_bytes += len(block)
                if served.block_s:
                    threading.Event().wait(served.block_s)
        except (BrokenPipeError, ConnectionResetError):  # the reader went away
            self.close_connection = True
        if cut is not None or not served.announces_length or served.length is not None:
            self.close_connection = True


@pytest.fixture
def shop() -> Iterator[Shop]:
    """A web server for one test."""
    one = Shop()
    yield one
    one.close()


@pytest.fixture
def content() -> bytes:
    """Bytes of a file of several ranges, the last one shorter."""
    return random.Random(7).randbytes(10 * PART_BYTES + 12_345)


@pytest.fixture
def fetch_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Fetched]:
    """`fetch_here(source, ..., to="out")`: fetch with small ranges, short waits and a cache of this test's own."""
    monkeypatch.setattr("tonnage.fetching.file_transfer.Partial", SmallParts)

    def run(
        *sources: str, to: str | tuple[str, ...] = "out", watcher: ProgressWatcher | None = None, **more: Any
    ) -> Fetched:
        free = {"free": more.pop("free")} if "free" in more else {}
        targets = (to,) if isinstance(to, str) else to
        request = FetchRequest(
            sources=sources,
            targets=tuple(one if "://" in one else str(tmp_path / one) for one in targets),
            first_wait_s=0.01,
            cache=tmp_path / "cache",
            now=NOW,
            **more,
        )
        return fetch(request, watcher, **free)

    return run


class SmallParts(partial.Partial):
    """Ranges of 64 KiB, so that small files have many."""

    def __init__(self, folder: Path, file: Any) -> None:
        super().__init__(folder, file, part_bytes=PART_BYTES)
