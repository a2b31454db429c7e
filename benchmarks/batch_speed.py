"""`tonnage batch` beside a plain loop that keeps no record: rows a second, CPU a row, the highest memory.

    python benchmarks/batch_speed.py --rows 20000 --delays 0,0.005,0.05 --rounds 3
    python benchmarks/batch_speed.py --rows 1000000 --delays 0 --rounds 1 --kinds fixed

The service is `tonnage.testing.upstream` in a process of its own. The loop sends the same requests over the same
client, `--concurrency` at a time, and drops the answers. Rounds alternate; read ratios, not figures of one round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tonnage.http.pool import HttpPool, read_endpoint, request_bytes, run_in_loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--delays", default="0,0.005,0.05", help="of one answer, s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument(
        "--kinds", default="loop,found,fixed", help="loop, and batch with its concurrency found or fixed"
    )
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)  # what, source, url: one measurement, in a process
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one[0], Path(given.one[1]), given.one[2], given.concurrency)))
        return
    kinds = given.kinds.split(",")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.jsonl"
        with source.open("w") as stream:
            stream.writelines(row(at) for at in range(given.rows))
        for delay in given.delays.split(","):
            rounds = [compare(source, float(delay), kinds, given.concurrency) for _ in range(given.rounds)]
            report(float(delay), rounds, kinds)


def row(at: int) -> str:
    body = {"model": "tiny", "messages": [{"role": "user", "content": f"text number {at}"}], "max_tokens": 16}
    return json.dumps({"custom_id": f"r{at}", "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n"


def compare(source: Path, delay_s: float, kinds: list[str], concurrency: int) -> dict[str, dict[str, float]]:
    """Each kind once, each in a process of its own, against one service."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["-m", "tonnage.testing.upstream", "--port", str(port), "--delay-s", str(delay_s)]
    service = subprocess.Popen([sys.executable, *words])
    try:
        wait_for(port)
        found = {}
        for kind in kinds:
            one = [sys.executable, __file__, "--concurrency", str(concurrency), "--one", kind, str(source)]
            done = subprocess.run([*one, f"http://127.0.0.1:{port}"], capture_output=True, text=True, check=True)
            found[kind] = json.loads(done.stdout.splitlines()[-1])
        return found
    finally:
        service.kill()
        service.wait()


def measure(kind: str, source: Path, url: str, concurrency: int) -> dict[str, float]:
    began, cpu = time.monotonic(), os.times()
    if kind == "loop":
        seconds = run_in_loop(plain_loop(source, url, concurrency))
        rows = sum(1 for _ in source.open("rb"))
    else:
        import tonnage

        asked = tonnage.BatchOptions(url=url, concurrency=concurrency if kind == "fixed" else None)
        out = source.with_name(f"out-{os.getpid()}.jsonl")
        progress = tonnage.batch(source, out, asked).checked().progress
        seconds, rows = progress.seconds, progress.total
        out.unlink()
    after = os.times()
    return {
        "rows_per_s": rows / seconds, "whole_s": time.monotonic() - began,
        "cpu_us": 1e6 * (after.user + after.system - cpu.user - cpu.system) / rows,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


async def plain_loop(source: Path, url: str, concurrency: int) -> float:
    """Workers that take the next line, send it and parse the answer; seconds."""
    pool, began = HttpPool(read_endpoint(url)), time.monotonic()

    async def work(lines: object) -> None:
        for line in lines:  # type: ignore[attr-defined]
            asked = json.loads(line)
            body = json.dumps(asked["body"]).encode()
            answer = await pool.send(request_bytes(pool.endpoint, asked["url"], body, {}), timeout_s=60)
            json.loads(answer.body)

    with source.open("rb") as lines:
        await asyncio.gather(*(work(lines) for _ in range(concurrency)))
    pool.close()
    return time.monotonic() - began


def report(delay_s: float, rounds: list[dict[str, dict[str, float]]], kinds: list[str]) -> None:
    print(f"answers of {1000 * delay_s:g} ms")
    for kind in kinds:
        rates = sorted(one[kind]["rows_per_s"] for one in rounds)
        cpu, rss = median(one[kind]["cpu_us"] for one in rounds), max(one[kind]["rss_mb"] for one in rounds)
        line = f"  {kind:6} {rates[0]:8,.0f} {median(rates):8,.0f} {rates[-1]:8,.0f} rows/s, {cpu:5,.0f} µs CPU a row, "
        ratios = (
            sorted(one[kind]["rows_per_s"] / one["loop"]["rows_per_s"] for one in rounds) if "loop" in kinds else []
        )
        beside = f", {ratios[0]:.3f} {median(ratios):.3f} {ratios[-1]:.3f} of the loop" if ratios else ""
        print(f"{line}{rss:5,.0f} MB{beside}", flush=True)


def wait_for(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(port)


if __name__ == "__main__":
    main()
