"""The page under load: runs that report, people with the page open, programs that read the API; p95 and memory.

    python benchmarks/ui_load.py --runs 200 --users 50 --calls-per-s 1000 --seconds 20

One server in a process of its own, on this machine alone; the load comes from this process and shares its cores, and
the rate that was reached is printed beside the one asked for. Ends by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil

from tonnage.testing.runs import write_run
from tonnage.web.keys import KeyFile, now_utc

READERS = 40  # connections of programs, each with a key of its own: 50 requests a second are one key's limit
PAGE_EVERY_S = 3.0  # as the page's own script asks
REPORT_EVERY_S = 10.0
READ = ("me", "runs/run-{}", "runs/run-{}/logs?lines=20", "catalog/gpus?gpu=H100:8", "budgets")
Times = dict[str, list[float]]


class Asker:
    """One connection that is kept; seconds of each answer by address."""

    def __init__(self, port: int, key: str, times: Times, failed: Times) -> None:
        self.port, self.key, self.times, self.failed = port, key, times, failed
        self.stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str, name: str) -> None:
        if self.stream is None:
            self.stream = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.stream
        began = time.perf_counter()
        writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: {self.key}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        await reader.readexactly(int(fields[b"content-length"]))
        ok = head.split(b" ", 2)[1] == b"200"
        (self.times if ok else self.failed)[name].append(time.perf_counter() - began)


async def every(period_s: float, until: float, ask: Callable[[int], Awaitable[None]], place: float) -> None:
    """Ask once a period from `place` of the first one on; what is late is asked at once."""
    began = time.perf_counter() + place * period_s
    number = 0
    while (at := began + number * period_s) < until:
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        if time.perf_counter() > until:
            return
        await ask(number)
        number += 1


async def load(port: int, keys: list[str], folders: list[Path], asked: argparse.Namespace) -> tuple[Times, Times, int]:
    times, failed, reports = defaultdict(list), defaultdict(list), [0]
    until = time.perf_counter() + asked.seconds
    tasks = []
    for number in range(asked.users):
        user = Asker(port, keys[number], times, failed)

        async def look(_: int, user: Asker = user) -> None:
            await user.get("/?fragment=1", "page")

        tasks.append(every(PAGE_EVERY_S, until, look, number / asked.users))
    for number in range(READERS):
        reader = Asker(port, keys[asked.users + number], times, failed)

        async def read(turn: int, reader: Asker = reader, number: int = number) -> None:
            what = READ[(turn + number) % len(READ)]
            run = (turn * READERS + number) % asked.runs
            await reader.get(f"/api/v1/{what.format(run)}", what.format("NAME"))

        if asked.calls_per_s:
            tasks.append(every(READERS / asked.calls_per_s, until, read, number / READERS))

    async def report(turn: int) -> None:
        file = folders[turn % len(folders)] / "metrics.jsonl"
        last = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({**last, "step": last["step"] + 1}) + "\n")
        reports[0] += 1

    tasks.append(every(REPORT_EVERY_S / len(folders), until, report, 0.0))
    await asyncio.gather(*tasks)
    return times, failed, reports[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("runs", 200), ("users", 50), ("calls-per-s", 1000), ("seconds", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place) / "home"
        folders = [home / "runs" / f"run-{number}" for number in range(asked.runs)]
        for number, folder in enumerate(folders):
            write_run(folder, finished=number % 10 != 0)
        kept = KeyFile(home / "ui" / "keys.json")
        keys = [
            kept.add(f"reader-{number}", "viewer", now=now_utc(), expires_at=None)
            for number in range(asked.users + READERS)
        ]
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "tonnage", "ui", "--port", str(port), "--behind-proxy", "--folder", place,
                   "--host-name", "127.0.0.1"]  # fmt: skip
        environment = {**os.environ, "TONNAGE_HOME": str(home)}
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as server:
            try:
                _wait(port)
                watched = psutil.Process(server.pid)
                before_mb, began_s = watched.memory_info().rss / 1e6, sum(watched.cpu_times()[:2])
                times, failed, reports = asyncio.run(load(port, keys, folders, asked))
                cpu_s = sum(watched.cpu_times()[:2]) - began_s
                after_mb = watched.memory_info().rss / 1e6
            finally:
                server.terminate()
    _show(times, failed, asked)
    print(f"{reports} reports of {asked.runs} runs; server {before_mb:.0f} -> {after_mb:.0f} MB, "
          f"{100 * cpu_s / asked.seconds:.0f} % of one core")  # fmt: skip
    return 0


def _wait(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the server did not begin within 30 s")


def _show(times: Times, failed: Times, asked: argparse.Namespace) -> None:
    calls = sum(len(found) for name, found in times.items() if name != "page")
    print(f"asked {asked.calls_per_s} calls a second, reached {calls / asked.seconds:.0f}; {asked.users} users")
    print(f"{'address':<28} {'answers':>8} {'p50 ms':>8} {'p95 ms':>8} {'refused':>8}")
    for name in sorted({*times, *failed}):
        found = sorted(times.get(name, []))
        p50, p95 = ((found[int(share * (len(found) - 1))] * 1000 if found else float("nan")) for share in (0.5, 0.95))
        print(f"{name:<28} {len(found):>8} {p50:>8.1f} {p95:>8.1f} {len(failed.get(name, [])):>8}")


if __name__ == "__main__":
    raise SystemExit(main())
