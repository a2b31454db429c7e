"""Rows over a network that fails for a moment are read; one that goes on failing is told with its cause."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tonnage.errors import DataError
from tonnage.recipes import network
from tonnage.recipes.data.reading import read_rows
from tonnage.recipes.network import ATTEMPTS, NetworkTrouble, passing_cause, with_network_retries
from tonnage.runs.spec import DataSource

ROWS = b'{"text": "one"}\n{"text": "two"}\n'


class Server(ThreadingHTTPServer):
    """Answers GET with rows, after `fails` answers of `status`, or of half the rows where that is 200."""

    fails, status, asked = 0, 503, 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(ROWS)))
        self.end_headers()

    def do_GET(self) -> None:
        self.server.asked += 1
        failing = self.server.asked <= self.server.fails
        self.send_response(self.server.status if failing else 200)
        self.send_header("Content-Length", str(len(ROWS)))
        self.end_headers()
        self.wfile.write(ROWS[:20] if failing else ROWS)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    pytest.importorskip("aiohttp", reason="the extra `train`")
    monkeypatch.setattr(network, "FIRST_WAIT_S", 0.001)
    made = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def read(server: Server) -> list[str]:
    url = f"http://me:secretword@127.0.0.1:{server.server_port}/rows.jsonl?sig=signed"
    return list(read_rows(DataSource(location=url, format="jsonl"), name="rows", wanted=None).columns["text"])


@pytest.mark.parametrize("status", [503, 429, 200], ids=["busy", "too many", "cut off"])
def test_a_moment_without_network(server: Server, status: int) -> None:
    """Two answers fail, or end in the middle: the rows are read whole, none twice."""
    server.fails, server.status = 2, status
    assert read(server) == ["one", "two"]


def test_a_network_that_stays_away(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """An error of its own after several tries, with the cause; no secret of the URL is said."""
    server.fails = 10**6
    with pytest.raises(NetworkTrouble, match=rf"cannot be reached after {ATTEMPTS} tries: .*503") as caught:
        read(server)
    said = capsys.readouterr().err + str(caught.value)
    assert "trying again" in said
    assert "secretword" not in said
    assert "signed" not in said


def test_what_is_not_there_is_not_asked_for_again(server: Server) -> None:
    """404 is bad input at once."""
    server.fails, server.status = 10**6, 404
    with pytest.raises(DataError, match="404"):
        read(server)
    assert server.asked < ATTEMPTS


def test_other_errors_pass() -> None:
    """A bug, a bad row, and a hub that is switched off are no trouble of the network."""
    for error in (
        KeyError("x"),
        ValueError("x"),
        FileNotFoundError("x"),
        type("OfflineModeIsEnabled", (OSError,), {})(),
    ):
        assert passing_cause(error) is None
    with pytest.raises(KeyError):
        with_network_retries(lambda: {}["x"], "nothing")
