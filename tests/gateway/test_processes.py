"""A gateway as its users start it: four workers, killed again and again under load, and the money is right."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

import httpx
import psutil
import pytest
from tests.ports import free_port

from tonnage.gateway.money.shared_accounts import SharedAccounts
from tonnage.testing.upstream import PretendedUpstream

CAP_USD = 0.05


def started(folder: Path, url: str, port: int, *, host: str | None = None, **keys: object) -> subprocess.Popen[bytes]:
    """`host`: the name that its machine has; None: this one's."""
    price = {"input_usd_per_million": 1.0, "output_usd_per_million": 2.0}
    file = folder / "gateway.yaml"
    file.write_text(json.dumps({
        "listen": {"port": port, "workers": 4, "drain": "5s"},
        "deployments": {"a": {"url": f"{url}/v1", "model": "tiny", "price": price}},
        "routes": {"chat": {"deployments": ["a"]}}, **keys,
    }))  # fmt: skip
    environment = {**os.environ, "TONNAGE_HOME": str(folder)}
    named = [] if host is None else ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', host]
    command = [*named, sys.executable, "-m", "tonnage", "gateway", str(file)]
    process = subprocess.Popen(command, env=environment)
    for _ in range(200):
        try:
            if httpx.get(f"http://127.0.0.1:{port}/ready", timeout=1).status_code == 200:
                return process
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the gateway is not ready after 20 s")


def workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    found = []
    for one in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if "tonnage.gateway.worker" in " ".join(one.cmdline()):
                found.append(one)
    return found


@pytest.mark.slow
def test_kills_under_load_leave_the_money_right(tmp_path: Path) -> None:
    """Twenty kills of workers while sixteen clients ask at a cap: never passed at any look, nothing held at the end,
    every answer that a client got is in the ledger with the upstream's own count."""
    port, answered, stop = free_port(), Counter[int](), threading.Event()
    asked = {"model": "chat", "max_tokens": 16, "messages": [{"role": "user", "content": "one two three"}]}

    def client() -> None:
        with httpx.Client() as session:
            while not stop.is_set():
                try:
                    found = session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=asked, timeout=10)
                except httpx.TransportError:
                    answered[0] += 1  # its worker was killed
                else:
                    answered[found.status_code] += 1

    with PretendedUpstream(delay_s=0.005) as upstream:
        process = started(tmp_path, upstream.url, port, budgets=[{"usd": CAP_USD, "per": "ever"}])
        accounts = SharedAccounts(str(tmp_path / "gateway" / "accounts.db"))
        accounts.open()
        clients = [threading.Thread(target=client) for _ in range(16)]
        for one in clients:
            one.start()
        random = Random(5)
        for _ in range(20):
            time.sleep(0.3 + random.random() / 2)
            living = workers(process)
            if living:
                random.choice(living).send_signal(signal.SIGKILL)
            for state in accounts.states():
                assert state.committed + state.leased <= CAP_USD * 1e12
        stop.set()
        for one in clients:
            one.join()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process = started(tmp_path, upstream.url, port)  # brings in what the last kills left
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    (state,) = accounts.states()
    rows = accounts.attempts()
    assert state.leased == 0
    assert state.committed == sum(row["usd_pico"] for row in rows)
    whole = [row for row in rows if row["outcome"] == "ok"]
    assert {(row["input_tokens"], row["output_tokens"]) for row in whole} == {(9, 4)}
    assert len({row["id"] for row in rows}) == len(rows)
    # an answer that was on its way when its worker was killed is in the ledger and not with its client
    assert answered[200] <= len(whole) <= answered[200] + answered[0]
    assert answered[200] > 100


class Crowd:
    """Clients of their own connections, which ask, leave in the middle of streams, and count what they were told."""

    def __init__(self, port: int, clients: int) -> None:
        self.port, self.clients, self.stop = port, clients, threading.Event()
        self.statuses: Counter[int] = Counter()  # 0: the connection broke; -1: the client left
        self.thread = threading.Thread(target=lambda: asyncio.run(self._ask()))

    async def _ask(self) -> None:
        await asyncio.gather(*(self._client(number) for number in range(self.clients)))

    async def _client(self, number: int) -> None:
        random, turn = Random(number), 0
        while not self.stop.is_set():
            turn += 1
            mark = "once-500" if random.random() < 0.05 else "fine"
            leaves = random.random() < 0.2
            said = {"role": "user", "content": f"{number}-{turn} {mark} three"}
            asked = {"model": "chat", "max_tokens": 16, "stream": leaves, "messages": [said]}
            try:
                status = await asyncio.wait_for(self._once(json.dumps(asked).encode(), leaves), 20)
            except (OSError, asyncio.IncompleteReadError, IndexError, TimeoutError):
                status = 0
            self.statuses[status] += 1
            await asyncio.sleep(0 if status == 200 else 0.2)

    async def _once(self, body: bytes, leaves: bool) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
            writer.write(head % (len(body), body))
            status = int((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])
            if leaves and status == 200:
                return -1
            whole = await reader.read()
            return status if status != 200 or whole.endswith(b"}") else 0
        finally:
            writer.transport.abort()


@pytest.mark.slow
def test_a_thousand_at_once_never_pass_a_cap(tmp_path: Path) -> None:
    """A thousand clients at a cap, one request in twenty retried, a fifth left in the middle, twenty kills: at no
    look is the cap passed, nothing is held at the end, and the ledger has the upstream's own counts, once."""
    cap_usd, port = 0.08, free_port()
    with PretendedUpstream(delay_s=0.05) as upstream:
        price = {"input_usd_per_million": 1.0, "output_usd_per_million": 2.0}
        each = {"url": f"{upstream.url}/v1", "model": "tiny", "price": price}
        keys = {
            "budgets": [{"usd": cap_usd, "per": "ever"}], "deployments": {"a": each, "b": each},
            "routes": {"chat": {"deployments": ["a", "b"]}},
        }  # fmt: skip
        process = started(tmp_path, upstream.url, port, **keys)
        accounts = SharedAccounts(str(tmp_path / "gateway" / "accounts.db"))
        accounts.open()
        crowd, random, looks = Crowd(port, 1000), Random(5), []
        crowd.thread.start()
        for _ in range(20):
            until = time.monotonic() + 0.5 + random.random() / 2
            while time.monotonic() < until:
                looks += [state.committed + state.leased for state in accounts.states()]
                time.sleep(0.01)
            if living := workers(process):
                random.choice(living).send_signal(signal.SIGKILL)
        crowd.stop.set()
        crowd.thread.join()
        for _ in range(2):  # the second one brings in what the last kills left
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            process = started(tmp_path, upstream.url, port, **keys)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    (state,), rows = accounts.states(), accounts.attempts()
    assert cap_usd * 0.95e12 < max(looks) <= cap_usd * 1e12  # it was reached, and not passed
    assert state.leased == 0
    assert state.committed == sum(row["usd_pico"] for row in rows) <= cap_usd * 1e12
    assert len({row["id"] for row in rows}) == len(rows)
    outcomes = Counter(row["outcome"] for row in rows)
    whole = [row for row in rows if row["outcome"] == "ok" and not row["estimated"]]
    assert {(row["input_tokens"], row["output_tokens"]) for row in whole} <= {(9, 4), (9, 16)}
    # what was under way in a killed worker may have reached the upstream, or not yet
    assert len(rows) - outcomes["gateway killed"] <= sum(upstream.seen.values()) <= len(rows)
    assert crowd.statuses[200] <= len(whole)
    assert min(crowd.statuses[200], crowd.statuses[429], crowd.statuses[-1], outcomes["status-500"]) > 20, (
        crowd.statuses
    )


@pytest.mark.slow
def test_two_hosts_share_a_cap_in_postgresql(tmp_path: Path) -> None:
    """Two gateways, each with a home and a name of its machine of its own, draw from one budget in PostgreSQL while
    the workers of both are killed and one host goes as a whole: at no look it is passed; what the lost host held is
    brought in when it is back, nothing is held then, and the ledger is what was committed."""
    if subprocess.run(["unshare", "--uts", "true"], check=False, capture_output=True).returncode:
        pytest.skip("names of machines cannot be changed here")
    server = pytest.importorskip("pgserver").get_server(tmp_path / "pg")
    hosts, ports, stop = ("host-a", "host-b"), (free_port(), free_port()), threading.Event()
    answered: Counter[tuple[str, int]] = Counter()
    asked = {"model": "chat", "max_tokens": 16, "messages": [{"role": "user", "content": "one two three"}]}

    def start(number: int) -> subprocess.Popen[bytes]:
        home = tmp_path / hosts[number]
        home.mkdir(exist_ok=True)
        return started(
            home, upstream.url, ports[number], host=hosts[number], store=server.get_uri(),
            budgets=[{"usd": CAP_USD, "per": "ever"}],
        )  # fmt: skip

    def client(number: int) -> None:
        with httpx.Client() as session:
            while not stop.is_set():
                try:
                    found = session.post(
                        f"http://127.0.0.1:{ports[number]}/v1/chat/completions", json=asked, timeout=10
                    )
                except httpx.TransportError:
                    answered[hosts[number], 0] += 1
                    time.sleep(0.05)
                else:
                    answered[hosts[number], found.status_code] += 1

    with PretendedUpstream(delay_s=0.005) as upstream:
        gateways = [start(0), start(1)]
        accounts = SharedAccounts(server.get_uri())
        accounts.open()
        clients = [threading.Thread(target=client, args=(number % 2,)) for number in range(12)]
        for one in clients:
            one.start()
        random = Random(7)
        for turn in range(12):
            time.sleep(0.2 + random.random() / 3)
            if turn == 6:  # a host goes, all at once
                gone = psutil.Process(gateways[0].pid)
                for one_process in (gone, *gone.children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one_process.kill()
                gateways[0].wait()
            living = workers(gateways[turn % 2]) if gateways[turn % 2].poll() is None else []
            if living:
                with contextlib.suppress(psutil.NoSuchProcess):
                    random.choice(living).send_signal(signal.SIGKILL)
            for state in accounts.states():
                assert state.committed + state.leased <= CAP_USD * 1e12
        stop.set()
        for one in clients:
            one.join()
        gateways[0] = start(0)
        for _ in range(2):  # a second start brings in what the last kills left
            for number, process in enumerate(gateways):
                process.send_signal(signal.SIGTERM)
                assert process.wait(30) == 0
                gateways[number] = start(number)
        for process in gateways:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    (state,) = accounts.states()
    rows = accounts.attempts()
    accounts.close()
    assert all(answered[host, 200] > 0 for host in hosts)
    assert state.leased == 0
    assert state.committed == sum(row["usd_pico"] for row in rows) <= CAP_USD * 1e12
    assert {(row["input_tokens"], row["output_tokens"]) for row in rows if row["outcome"] == "ok"} == {(9, 4)}
    answers = answered["host-a", 200] + answered["host-b", 200]
    assert sum(row["outcome"] == "ok" for row in rows) >= answers
    assert sum(upstream.seen.values()) <= len(rows)


@pytest.mark.slow
def test_a_restart_and_a_reload_fail_no_request(tmp_path: Path) -> None:
    """SIGHUP and SIGUSR2 under load fail nothing, and after the latter all workers are others; the killed parent's
    workers end by themselves."""
    port, statuses, stop = free_port(), Counter[int](), threading.Event()
    asked = {"model": "chat", "max_tokens": 4, "messages": []}

    def client() -> None:
        with httpx.Client() as session:
            while not stop.is_set():
                found = session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=asked, timeout=10)
                statuses[found.status_code] += 1

    with PretendedUpstream(delay_s=0.002) as upstream:
        process = started(tmp_path, upstream.url, port)
        clients = [threading.Thread(target=client) for _ in range(4)]
        for one in clients:
            one.start()
        for _ in range(5):
            time.sleep(0.3)
            process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        before = {one.pid for one in workers(process)}
        process.send_signal(signal.SIGUSR2)
        until = time.monotonic() + 60
        while before & {one.pid for one in workers(process)}:
            assert time.monotonic() < until
            time.sleep(0.2)
        stop.set()
        for one in clients:
            one.join()
        assert set(statuses) == {200}
        orphans = workers(process)
        assert len(orphans) == 4
        process.kill()
        process.wait()
        _, alive = psutil.wait_procs(orphans, timeout=15)
        assert not alive


@pytest.mark.slow
def test_keys_are_repeated_over_workers_and_a_restart(tmp_path: Path) -> None:
    """Forty requests with ten keys over four workers, a killed gateway and a new one: ten reach the upstream."""
    with PretendedUpstream(delay_s=0.005) as upstream:
        port = free_port()

        def answered(number: int) -> httpx.Response:
            body = {"model": "chat", "max_tokens": 4, "messages": [{"role": "user", "content": f"say {number}"}]}
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            while (found := httpx.post(url, json=body, headers={"Idempotency-Key": f"k{number}"})).status_code == 409:
                time.sleep(0.02)
            return found

        gateway = started(tmp_path, upstream.url, port, budgets=[{"usd": 1}])
        try:
            first = [answered(number) for number in range(10)]
            assert [one.status_code for one in first] == [200] * 10
            for _ in range(3):
                assert [answered(number).content for number in range(10)] == [one.content for one in first]
            for one in [*workers(gateway), psutil.Process(gateway.pid)]:
                one.kill()
            gateway.wait(10)
            gateway = started(tmp_path, upstream.url, port, budgets=[{"usd": 1}])
            again = [answered(number) for number in range(10)]
            assert {one.headers["idempotent-replayed"] for one in again} == {"true"}
            assert sum(upstream.seen.values()) == 10
        finally:
            gateway.terminate()
            gateway.wait(20)
        accounts = SharedAccounts(str(tmp_path / "gateway" / "accounts.db"))
        accounts.open()
        assert len(accounts.attempts()) == 10
        accounts.close()
