"""`tonnage gateway top`: what happened between two looks at a gateway's status page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.harness import GatewayHarness, Scripted, chat, play, said

import tonnage
from tonnage.errors import InputError
from tonnage.gateway.file.reading import key_hash
from tonnage.gateway.measures import BUCKETS_S
from tonnage.gateway.money.sql_store import AccountsError
from tonnage.gateway.status import status_document, worker_state
from tonnage.gateway.top.keeping import NoGateway, look, status_url
from tonnage.gateway.top.rates import happened, quantile_s
from tonnage.gateway.top.report import top_report


async def status(harness: GatewayHarness, at_s: float) -> dict[str, Any]:
    """The page of a gateway with one worker, as `Worker` makes it."""
    await harness.book.flush()
    one = {**harness.measures.document(), **worker_state(harness.running, harness.handler.attempts, 3), "at_s": at_s}
    document = status_document(harness.running, at_s, [one], [one], await harness.book.states(), {})
    found: dict[str, Any] = json.loads(json.dumps(document))
    return found


def test_what_happened_between_two_looks(tmp_path: Path) -> None:
    """Requests, tokens and dollars of the interval alone; budgets as they stand; circuits; hits of the cache."""

    async def scenario() -> None:
        keys = {"web": {"key": "env:KEY_A", "team": "web"}, "idle": {"key": "env:KEY_B"}}
        budgets = [{"usd": 1.0, "per": "day"}]
        async with (
            Scripted(always=said()) as one,
            Scripted(always=said()) as other,
            GatewayHarness(
                tmp_path, {"a": one, "b": other}, route={"cache": {}}, keys=keys, budgets=budgets
            ) as harness,
        ):
            now_s = harness.book.now()
            await harness.ask(authorization="Bearer secret-a")
            before = await status(harness, now_s)
            for _ in range(2):
                await harness.ask(authorization="Bearer secret-a")
            for _ in range(4):
                await harness.ask(chat(temperature=0), authorization="Bearer secret-a")
            for _ in range(5):
                harness.running.healths["b"].begin()
                harness.running.healths["b"].fail(1e12)
            found = happened(before, await status(harness, now_s + 2.0))
        a, b = found.deployments
        assert (a.name, a.requests_per_s, a.circuit, a.in_flight) == ("a", 1.5, "closed", 0)
        assert a.output_tokens_per_s == 3 * 4 / 2.0
        assert a.usd_per_hour == pytest.approx(3 * (7 * 1 + 4 * 2) / 1e6 / 2.0 * 3600)
        assert a.first_byte_p50_s is not None
        assert (b.requests_per_s, b.circuit, b.first_byte_p95_s) == (0.0, "open", None)
        (route,) = found.routes
        assert (route.requests_per_s, route.cache_hit_share) == (3.0, 0.75)
        assert [(one.name, one.requests_per_s) for one in found.keys] == [("web", 3.0), ("idle", 0.0)]
        assert found.waiting == 3
        assert found.keys[0].usd_per_hour == pytest.approx(a.usd_per_hour)
        (budget,) = found.budgets
        assert budget.left == 10**12 - 4 * 15 * 10**6
        shown = top_report(found, "name")
        assert [one["name"] for one in shown.document()["keys"]] == ["idle", "web"]
        assert shown.document()["allowances"][0]["left"] == "0.99994"

    play(scenario())


def test_unknown_accounts_are_said(tmp_path: Path) -> None:
    """Where the store does not answer, budgets are not known, and nothing else suffers."""

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as one,
            GatewayHarness(tmp_path, {"a": one}, budgets=[{"usd": 1.0}]) as harness,
        ):
            page = await status(harness, 1.0)
            lost = status_document(harness.running, 2.0, [], [], AccountsError("the store is away"), {})
            found = happened(page, lost)
            assert found.budgets == ()
            assert found.accounts == "the store is away"
            assert found.workers == 0

    play(scenario())


def test_quantiles_of_buckets() -> None:
    """Linear within a bucket; nothing is unknown; beyond the last bound no more than the bound is known."""
    assert quantile_s([0.0] * (len(BUCKETS_S) + 1), 0.5) is None
    counts = [0.0] * (len(BUCKETS_S) + 1)
    counts[2] = 4.0  # 0.0003 to 0.001 s
    assert quantile_s(counts, 0.5) == pytest.approx(0.00065)
    counts[-1] = 4.0
    assert quantile_s(counts, 0.95) == BUCKETS_S[-1]


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [(401, b"", "asks for the key"), (404, b"{}", "shows no figures"), (200, b"<html>", "shows no figures")],
)
def test_what_is_no_gateway_is_said(code: int, body: bytes, said: str) -> None:
    """Each with what to do next."""
    with answering(code, body) as url, httpx.Client(trust_env=False) as client, pytest.raises(NoGateway, match=said):
        look(client, url, None)


def test_nobody_there(tmp_path: Path) -> None:
    """A file whose gateway does not run: the address and how to start it, exit 1; a wrong sort is bad input."""
    path = tmp_path / "gateway.yaml"
    price = {"input_usd_per_million": 1, "output_usd_per_million": 2}
    deployments = {"a": {"url": "http://127.0.0.1:1/v1", "model": "m", "price": price}}
    listen = {"host": "0.0.0.0", "port": 1, "admin_port": 1}
    key = {"key": key_hash("x")}
    file = {
        "deployments": deployments,
        "routes": {"chat": {"deployments": ["a"]}},
        "listen": listen,
        "keys": {"a": key},
    }
    path.write_text(json.dumps(file))
    with pytest.raises(NoGateway, match=r"no gateway answers at http://127\.0\.0\.1:1") as error:
        next(tonnage.gateway_top(path))
    assert error.value.exit_code == 1
    assert "tonnage gateway FILE" in (error.value.hint or "")
    with pytest.raises(InputError, match="nothing is sorted by 'size'"):
        next(tonnage.gateway_top(path, tonnage.GatewayTopOptions(sort="size")))
    found = tonnage.check_gateway(path).found
    assert status_url(found) == "http://127.0.0.1:1"


def test_whether_an_own_machine_pays(tmp_path: Path) -> None:
    """Its tokens at the cheapest price that a route beside it could buy them for, over what its hour costs."""

    async def scenario() -> None:
        own = {"price": None, "own": {"usd_per_hour": 0.5, "input_tokens_per_s": 100, "output_tokens_per_s": 10}}
        dear = {"price": {"input_usd_per_million": 900.0, "output_usd_per_million": 900.0}}
        async with (
            Scripted(always=said()) as mine, Scripted() as bought, Scripted() as dearer, Scripted() as apart,
            GatewayHarness(
                tmp_path, {"mine": mine, "bought": bought, "dearer": dearer, "apart": apart}, mine=own, dearer=dear,
                apart={"price": {"input_usd_per_million": 0.001, "output_usd_per_million": 0.001}},
                route={"deployments": ["mine", "bought", "dearer"]}, more={"other": {"deployments": ["apart"]}},
            ) as harness,
        ):  # fmt: skip
            before = await status(harness, 100.0)
            for _ in range(10):
                await harness.ask()
            rows = {one.name: one for one in happened(before, await status(harness, 110.0)).deployments}
            hourly_usd = 360 * 10 * (7 * 1e-6 + 4 * 2e-6)  # 7 and 4 tokens a request, at 1 and 2 USD a million
            assert rows["mine"].pays == pytest.approx(hourly_usd / 0.5)
            assert [rows[name].pays for name in ("bought", "dearer", "apart")] == [None] * 3

    play(scenario())
