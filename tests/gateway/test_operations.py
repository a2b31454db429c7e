"""Sign-in, reload, drain, pages and kept answers of a gateway: faults that a reader found, each seen to fail first."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import GatewayHarness, Scripted, chat, play, said

import tonnage
from tonnage.errors import InputError
from tonnage.gateway.file.described import Gateway
from tonnage.gateway.processes import GatewayProcesses
from tonnage.gateway.signing import SignIn
from tonnage.gateway.signing.tokens import SignInError, Token, TokenSigner
from tonnage.gateway.worker import SIZE, Worker, WorkerTask, read_order

PRICE = {"input_usd_per_million": 1, "output_usd_per_million": 2}


def written(folder: Path, **keys: Any) -> Path:
    path = folder / "gateway.yaml"
    path.write_text(json.dumps({
        "deployments": {"a": {"url": "http://127.0.0.1:1/v1", "model": "m", "price": PRICE}},
        "routes": {"chat": {"deployments": ["a"]}}, "store": str(folder / "accounts.db"), **keys,
    }))  # fmt: skip
    return path


def described(folder: Path, **keys: Any) -> Gateway:
    return tonnage.check_gateway(written(folder, **keys)).found


def made(folder: Path, **keys: Any) -> Worker:
    return Worker(WorkerTask(gateway=described(folder, **keys), folder=str(folder), sockets=(), number=0))


class SlowTokens:
    """Tokens that are given once `open` is set."""

    def __init__(self) -> None:
        self.open, self.asked, self.broken = threading.Event(), 0, False

    def __call__(self, _url: str, now_s: float) -> Token:
        self.asked += 1
        self.open.wait(10)
        if self.broken:
            raise SignInError("no token", hint="mend it")
        return Token("t", now_s + 1000.0)


@pytest.mark.parametrize("broken", [False, True])
def test_a_slow_sign_in_holds_up_nobody_else(tmp_path: Path, broken: bool) -> None:
    """While a token is fetched others are answered; all that wait for it share one fetch, and its failure."""

    async def scenario() -> None:
        tokens = SlowTokens()
        tokens.broken = broken
        more = {"other": {"deployments": ["b"]}}
        async with (
            Scripted(always=said()) as one,
            Scripted(always=said()) as other,
            GatewayHarness(tmp_path, {"a": one, "b": other}, route={"deployments": ["a"]}, more=more) as harness,
        ):
            harness.running.signers["a"] = TokenSigner(tokens)
            waiting = [asyncio.ensure_future(harness.ask()) for _ in range(3)]
            while not tokens.asked:
                await asyncio.sleep(0.001)
            assert (await harness.ask(chat(model="other"))).status == 200
            assert not any(one.done() for one in waiting)
            tokens.open.set()
            assert {one.status for one in await asyncio.gather(*waiting)} == {502 if broken else 200}
            assert broken or tokens.asked == 1

    play(scenario())


def test_tokens_are_renewed_without_requests() -> None:
    """An idle deployment has a token that holds; a provider that fails is asked again after a pause."""
    tokens = SlowTokens()
    tokens.open.set()
    signer = TokenSigner(tokens)
    for now_s in (0.0, 1.0, 699.0, 701.0, 702.0):
        signer.renew("https://a.example", now_s)
        signer.wait()
    assert tokens.asked == 2
    tokens.broken = True
    for now_s in (1402.0, 1403.0, 1411.0, 1413.0):
        signer.renew("https://a.example", now_s)
        signer.wait()
    assert tokens.asked == 4


def test_a_reload_that_fails_leaves_what_was(tmp_path: Path) -> None:
    """A signer that cannot be made is told and counted; the next file is followed."""
    worker = made(tmp_path)
    before, (name, one) = worker.running, next(iter(worker.running.gateway.deployments.items()))
    bad = replace(one, sign_in=SignIn(kind="databricks"))
    worker.reload(replace(before.gateway, deployments={name: bad}))
    assert worker.running is before
    assert worker.handler.running is before
    assert 'tonnage_gateway_reloads_total{result="refused"} 1' in page(worker)
    worker.reload(replace(before.gateway, log_days=1))
    assert worker.running.gateway.log_days == 1
    assert 'tonnage_gateway_reloads_total{result="followed"} 1' in page(worker)


def test_orders_that_come_together_are_all_read() -> None:
    """The first one takes from the pipe its own bytes only: what follows is there for the next reader."""
    reads, writes = os.pipe()
    data = b"x" * 20_000
    os.write(writes, (SIZE.pack(len(data)) + data) + SIZE.pack(3) + b"abc")
    assert read_order(reads) == data
    assert read_order(reads) == b"abc"
    os.close(writes)
    assert read_order(reads) is None
    os.close(reads)


def test_nobody_is_let_in_while_workers_end(tmp_path: Path) -> None:
    """When the workers are told to end, the parent listens no more: a new connection is refused, it does not hang."""
    processes = GatewayProcesses(described(tmp_path), tmp_path, lambda: processes.gateway, lambda _: None)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    refused: list[bool] = []

    class Process:
        def terminate(self) -> None:
            with socket.socket() as client:
                refused.append(client.connect_ex(("127.0.0.1", port)) != 0)

        def wait(self, _: float) -> None:
            pass

    class Child:
        process = Process()

    processes._sockets, processes._workers = [listening], [Child()]  # type: ignore[list-item]
    processes._end()
    assert refused == [True]


def test_gauges_of_dead_workers_are_not_counted(tmp_path: Path) -> None:
    """What a killed worker had under way is gone; what it had counted stays counted."""
    worker = made(tmp_path)
    worker.measures.count("tonnage_gateway_gone_total", amount=2)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = {
        "counts": [["tonnage_gateway_gone_total", [], 3]], "times": [], "under_way": {"a": 7}, "at_s": time.time(),
        "gauges": [["tonnage_gateway_under_way", [["deployment", "a"]], 7]],
    }  # fmt: skip
    folder = tmp_path / "measures"
    folder.mkdir()
    (folder / f"{dead.pid}.json").write_text(json.dumps(left))
    text = page(worker)
    assert "tonnage_gateway_gone_total 5" in text
    assert 'tonnage_gateway_under_way{deployment="a"} 0' in text
    status = json.loads(worker._figures("/gateway", [], {})[2])
    assert (status["workers"], status["deployments"]["a"]["under_way"]) == (1, 0)


def page(worker: Worker) -> str:
    return worker._figures("/metrics", [], {})[2].decode()


def test_pages_with_figures_are_for_this_machine_or_for_a_key(tmp_path: Path) -> None:
    """The page's port listens here by default; for others it needs a key, and asks for it."""
    keys = {"a": {"key": "blake2b:" + "0" * 64}}
    assert described(tmp_path, listen={"host": "0.0.0.0", "admin_port": 9}, keys=keys).listen.admin_host == "127.0.0.1"
    with pytest.raises(InputError, match="figures without a key"):
        described(tmp_path, listen={"admin_host": "0.0.0.0", "admin_port": 9})
    (tmp_path / "key").write_text("s3cret")
    worker = made(tmp_path, listen={"admin_host": "0.0.0.0", "admin_port": 9, "admin_key": f"file:{tmp_path / 'key'}"})

    class Exchange:
        method, status = b"GET", 0

        def __init__(self, path: str, key: bytes) -> None:
            self.path, self.headers = path, [(b"authorization", b"Bearer " + key)]

        def answer(self, status: int, _head: bytes, _body: bytes) -> None:
            self.status = status

    for path, key, status in (("/metrics", b"s3cret", 200), ("/metrics", b"wrong", 401), ("/gateway", b"", 401),
                              ("/health", b"", 200)):  # fmt: skip
        exchange = Exchange(path, key)
        asyncio.run(worker._pages_alone(exchange))  # type: ignore[arg-type]
        assert exchange.status == status, path


def test_kept_answers_keep_to_their_residency(tmp_path: Path) -> None:
    """Two keys of one team, one bound to a region: neither is given the other's answer."""

    async def scenario() -> None:
        route = {"deployments": ["us", "eu"], "cache": {"ttl": "1h"}, "rules": [
            {"keys": ["b"], "deployments": ["us", "eu"], "regions": ["eu"]}
        ]}  # fmt: skip
        async with (
            Scripted(always=said("from us")) as us,
            Scripted(always=said("from eu")) as eu,
            GatewayHarness(
                tmp_path, {"us": us, "eu": eu}, route=route, us={"region": "us"}, eu={"region": "eu"},
                keys={"a": {"key": "env:KEY_A"}, "b": {"key": "env:KEY_B"}},
            ) as harness,
        ):  # fmt: skip
            for _ in range(2):
                for key, region in (("secret-a", "us"), ("secret-b", "eu")):
                    answer = await harness.ask(chat(temperature=0), authorization=f"Bearer {key}")
                    assert answer.header("x-tonnage-deployment") == region
            assert (len(us.seen), len(eu.seen)) == (1, 1)

    play(scenario())


def test_headers_that_change_an_answer_are_part_of_its_key(tmp_path: Path) -> None:
    """What is passed on to the upstream distinguishes answers; a trace's id does not."""

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as up,
            GatewayHarness(tmp_path, {"a": up}, route={"cache": {"ttl": "1h"}}) as harness,
        ):
            for headers in ({}, {"anthropic_beta": "x"}, {"anthropic_version": "2023-01-01"}, {"traceparent": "1"}):
                await harness.ask(chat(temperature=0), **headers)
            assert len(up.seen) == 3

    play(scenario())


def test_answers_of_a_fallback_are_not_kept_for_the_route(tmp_path: Path) -> None:
    """Once the route's own deployment is well again, it is asked."""

    async def scenario() -> None:
        from tests.gateway.harness import whole

        route = {"deployments": ["a"], "cache": {"ttl": "1h"}, "fallback": "other", "retry": {"attempts": 1}}
        async with (
            Scripted(whole({}, 500), always=said()) as one,
            Scripted(always=said()) as other,
            GatewayHarness(
                tmp_path, {"a": one, "b": other}, route=route, more={"other": {"deployments": ["b"]}}
            ) as harness,
        ):
            found = [(await harness.ask(chat(temperature=0))).header("x-tonnage-deployment") for _ in range(2)]
            assert found == ["b", "a"]

    play(scenario())


def test_the_end_does_not_wait_for_clients_that_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a byte is closed; one in the middle of its request is waited for and answered."""
    monkeypatch.setattr("tonnage.gateway.proxy.server.FIRST_BYTE_S", 0.0)

    async def scenario() -> None:
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            silent, kept = await asyncio.open_connection("127.0.0.1", harness.port)
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            body = json.dumps(chat()).encode()
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
            assert (await harness.ask()).status == 200  # by now the others are known to the gateway
            draining = asyncio.ensure_future(harness.server.drain(25.0))
            assert await silent.read() == b""
            assert not draining.done()
            writer.write(b"content-length: %d\r\n\r\n%b" % (len(body), body))
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            await draining
            kept.close()
            writer.close()

    play(scenario())
