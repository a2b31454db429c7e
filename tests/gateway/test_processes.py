"""A gateway as its users start it: four workers, killed again and again under load, and the money is right."""

from __future__ import annotations

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

from tonnage.gateway.money.shared_accounts import SharedAccounts
from tonnage.testing.upstream import PretendedUpstream

CAP_USD = 0.05


def started(folder: Path, url: str, port: int, **keys: object) -> subprocess.Popen[bytes]:
    price = {"input_usd_per_million": 1.0, "output_usd_per_million": 2.0}
    file = folder / "gateway.yaml"
    file.write_text(json.dumps({
        "listen": {"port": port, "workers": 4, "drain": "5s"},
        "deployments": {"a": {"url": f"{url}/v1", "model": "tiny", "price": price}},
        "routes": {"chat": {"deployments": ["a"]}}, **keys,
    }))  # fmt: skip
    environment = {**os.environ, "TONNAGE_HOME": str(folder)}
    process = subprocess.Popen([sys.executable, "-m", "tonnage", "gateway", str(file)], env=environment)
    for _ in range(200):
        try:
            if httpx.get(f"http://127.0.0.1:{port}/ready", timeout=1).status_code == 200:
                return process
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("the gateway is not ready after 20 s")


def free_port() -> int:
    import socket

    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [
        one for one in psutil.Process(process.pid).children() if "tonnage.gateway.worker" in " ".join(one.cmdline())
    ]


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


@pytest.mark.slow
def test_a_restart_and_a_reload_fail_no_request(tmp_path: Path) -> None:
    """SIGHUP under load fails nothing; the killed parent's workers end by themselves."""
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
