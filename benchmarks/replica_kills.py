"""Requests at replicas that are killed and scaled meanwhile: how many fail (none may), and the memory over time.

    python benchmarks/replica_kills.py [--seconds 60] [--rate 40] [--kill-every 4] [--engine echo|llama.cpp]
                                       [--out FILE]

Starts a service of replicas on free ports: the tests' echo server (100 ms of work a request), or llama.cpp's real
server with a random model of 250 KB (pip install 'tonnage[llama]' gguf). Requests are sent in an open loop. Every few
seconds one replica is killed with SIGKILL; in between the number of replicas goes up and down, and twice all are
replaced (a rolling update). A tenth of the requests streams; those whose stream had begun when its replica was killed
cannot be done again, and are counted apart.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, Final

import httpx
import psutil

from tonnage.scaling.service import ScaledService
from tonnage.serving.engines.engine import EngineCommand
from tonnage.serving.replicas.service import ReplicatedService, Service, serve_replicas

ECHO: Final = Path(__file__).parents[1] / "tests" / "serving" / "replicas" / "echo_server.py"
Render = Callable[[str, int], EngineCommand]


def echo(name: str, port: int) -> EngineCommand:
    del name
    return EngineCommand(
        engine="echo", argv=(sys.executable, str(ECHO), str(port)), host="127.0.0.1", port=port, health="/health"
    )


def llama(folder: Path) -> Render:
    """llama.cpp's server on a random model."""
    from tonnage.testing.tiny_gguf import write_tiny_gguf

    model = write_tiny_gguf(folder / "tiny.gguf")

    def render(name: str, port: int) -> EngineCommand:
        del name
        argv = (sys.executable, "-m", "tonnage.serving.engines.llama_server", "--model", str(model), "--alias", "tiny",
                "--host", "127.0.0.1", "--port", str(port), "--parallel", "4", "--ctx-size", "8192", "--threads", "1",
                "--metrics")  # fmt: skip
        return EngineCommand(engine="llama.cpp", argv=argv, host="127.0.0.1", port=port, health="/health")

    return render


def request(engine: str, number: int) -> tuple[str, dict[str, Any], bool]:
    """Path, body, whether it streams."""
    streams = number % 10 == 0
    if engine == "echo":
        return ("/stream?n=5&s=0.02" if streams else "/work?s=0.1"), {"number": number}, streams
    return "/v1/completions", {"prompt": f"the {number}", "max_tokens": 8, "stream": streams}, streams


async def ask(client: httpx.AsyncClient, engine: str, number: int) -> str:
    """What became of a request: ok, a status, or the name of the fault."""
    path, body, streams = request(engine, number)
    got = 0
    try:
        async with client.stream("POST", path, json=body) as answer:
            async for piece in answer.aiter_bytes():
                got += len(piece)
    except httpx.HTTPError as error:
        return "stream cut off by a kill" if streams and got else f"{type(error).__name__}: {error}"
    return "ok" if answer.status_code == 200 else str(answer.status_code)


async def disturb(service: Service, until_s: float, every_s: float, did: Counter[str]) -> None:
    """Kill, scale and update until the time is over; the scaler's own decisions go on."""
    turn = 0
    while monotonic() < until_s:
        await asyncio.sleep(every_s)
        turn += 1
        ready = [one for one in service.replicas.replicas.values() if one.state == "ready"]
        if turn % 5 == 4:
            wanted = 1 + turn // 5 % service.settings.scaled.most
            did["scaled by hand"] += 1
            service.replicas.scale_to(wanted)
        elif turn % 11 == 10:
            did["rolling updates"] += 1
            await service.replicas.update(service.replicas.render)
        elif ready:
            did["replicas killed"] += 1
            os.kill(ready[turn % len(ready)].running.process.pid, signal.SIGKILL)


async def watch(rows: list[dict[str, float]], service: Service, until_s: float, begin_s: float) -> None:
    process = psutil.Process()
    while monotonic() < until_s:
        rows.append({
            "second": round(monotonic() - begin_s, 1), "rss_mib": round(process.memory_info().rss / 2**20, 2),
            "ready": service.replicas.count("ready"), "draining": service.replicas.count("draining"),
            "waiting": service.balancer.waiting, "tasks": len(asyncio.all_tasks()),
        })  # fmt: skip
        await asyncio.sleep(1.0)


async def measure(asked: argparse.Namespace, folder: Path) -> None:
    begun: asyncio.Future[tuple[Service, int]] = asyncio.get_running_loop().create_future()
    scaled = ScaledService(slots=4, start_up_s=2.0, promise_s=0.5, least=2, most=5)
    work = asyncio.ensure_future(
        serve_replicas(
            ReplicatedService(scaled=scaled, port=0, most_waiting=100_000),
            echo if asked.engine == "echo" else llama(folder), folder,
            lambda text: print(text, file=sys.stderr) if asked.verbose else None,
            on_begin=lambda *found: begun.set_result(found),
        )
    )  # fmt: skip
    service, port = await begun
    while service.replicas.count("ready") < 2:
        await asyncio.sleep(0.05)
    begin_s, rows, did = monotonic(), [], Counter[str]()
    until_s = begin_s + asked.seconds
    watched = asyncio.ensure_future(watch(rows, service, until_s, begin_s))
    disturbed = asyncio.ensure_future(disturb(service, until_s, asked.kill_every, did))
    sent: list[asyncio.Future[str]] = []
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120, limits=limits) as client:
        while (now := monotonic()) < until_s:
            while len(sent) < (now - begin_s) * asked.rate:
                sent.append(asyncio.ensure_future(ask(client, asked.engine, len(sent))))
            await asyncio.sleep(0.01)
        outcomes = Counter(await asyncio.gather(*sent))
    await asyncio.gather(watched, disturbed)
    report(asked, service, outcomes, did, rows)
    service.stop()
    await work


def report(
    asked: argparse.Namespace, service: Service, outcomes: Counter[str], did: Counter[str], rows: list[dict[str, float]]
) -> None:
    counts, sent = service.balancer.counts, sum(outcomes.values())
    failed = sent - outcomes["ok"] - outcomes["stream cut off by a kill"]
    half = rows[len(rows) // 2 :]
    print(json.dumps({
        "engine": asked.engine, "seconds": asked.seconds, "sent": sent, **outcomes, "failed": failed, **did,
        "replicas restarted": service.replicas.restarts, "retried": counts.retried, "waited too long": counts.late,
        "rss_mib after a quarter": rows[len(rows) // 4]["rss_mib"], "rss_mib half way": half[0]["rss_mib"],
        "rss_mib at the end": rows[-1]["rss_mib"],
    }, indent=2))  # fmt: skip
    if asked.out:
        with Path(asked.out).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=40.0)
    parser.add_argument("--kill-every", type=float, default=4.0)
    parser.add_argument("--engine", choices=("echo", "llama.cpp"), default="echo")
    parser.add_argument("--out")
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(asked, Path(folder)))


if __name__ == "__main__":
    main()
