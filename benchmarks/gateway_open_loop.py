"""What the gateway adds to each request at 1,000 a second, everything on: beside no proxy and beside nginx, in turns.

    python benchmarks/gateway_open_loop.py --rate 1000 --seconds 15 --rounds 3

Requests for embeddings go out when they are due (`tonnage bench serve`, constant arrivals), straight to a small
upstream, through nginx's proxy_pass and through the gateway with a key, budgets, a limit, its journal and its ledger.
Client, upstream and proxy share the machine: the percentiles hold all three.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import gateway as doors_of

SHOWN = ("p50", "p95", "p99")


def percentiles(port: int, key: str, *, rate: float, seconds: float, folder: Path) -> dict[str, float]:
    """Milliseconds from when a request was due to its whole answer. SystemExit where one failed or was sent late."""
    command = [sys.executable, "-m", "tonnage", "bench", "serve", f"http://127.0.0.1:{port}", "--protocol",
               "openai-embeddings", "--model", "chat", "--rate", f"{rate:g}", "--arrivals", "constant", "--duration",
               f"{seconds:g}s", "--input-tokens", "32", "--api-key-env", "DOOR_KEY", "-o", "json", "-q"]  # fmt: skip
    environment = os.environ | {"DOOR_KEY": key, "TONNAGE_HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found = json.loads(done.stdout) if done.stdout.startswith("{") else None
    if done.returncode or found is None:
        raise SystemExit(f"port {port}: exit code {done.returncode}\n{done.stdout[-500:]}{done.stderr[-500:]}")
    return {name: 1e3 * found["latency_s"][name] for name in SHOWN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    key, hashed = doors_of.gateway_key()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder, upstream = Path(scratch), doors_of.free_port()
        command = [sys.executable, "-m", "tonnage.testing.upstream", "--port", str(upstream)]
        stack.enter_context(doors_of.running(command, upstream))
        ports, workers = {"none": upstream}, []
        if shutil.which("nginx"):
            ports["nginx"] = doors_of.nginx(folder, upstream, stack)[0]
        else:
            print("nginx is left out: apt-get install nginx-light")
        ports["tonnage"], workers = doors_of.gateway(folder, upstream, stack, hashed)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in ports}
        for _ in range(given.rounds):
            for name, port in ports.items():
                found[name].append(
                    percentiles(port, key, rate=given.rate, seconds=given.seconds, folder=folder / "client")
                )
        middle = {name: {at: median([one[at] for one in rounds]) for at in SHOWN} for name, rounds in found.items()}
        print(f"{given.rate:g} requests a second, {given.rounds} rounds of {given.seconds:g} s; ms, and what is added")
        for name, values in middle.items():
            added = (
                "" if name == "none" else "   +" + " / ".join(f"{values[at] - middle['none'][at]:.2f}" for at in SHOWN)
            )
            print(f"{name:8} " + "  ".join(f"{at} {values[at]:6.2f}" for at in SHOWN) + added)
        resident = sum(one.memory_info().rss for one in workers) / 1e6
        print(f"tonnage: {resident:.0f} MB resident, its parent apart")


if __name__ == "__main__":
    sys.exit(main())
