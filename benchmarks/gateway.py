"""CPU of a request through the gateway, everything on, beside nginx's proxy_pass and litellm's proxy, in turns.

    python benchmarks/gateway.py --rounds 3 --litellm /path/to/its/bin/litellm

All pass the same 990-byte chat to one small upstream and its answer back; `wrk` asks. nginx only passes; the gateway
checks a key, bounds and holds the cost in a budget, writes its journal, settles, counts. CPU is that of the process
that passes, from the operating system. Without nginx or litellm the rival is left out, and said; litellm is not asked
64 at a time, where it answers nothing within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import psutil

from tonnage.api.gateway import gateway_key

CONCURRENCY = (1, 8, 64)
SECONDS = 4
Round = tuple[float, float, float]
CHAT = {"model": "chat", "max_tokens": 64, "messages": [{"role": "user", "content": "hello there " * 72}]}


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


def wait_for(port: int, seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on {port} after {seconds:g} s")


@contextmanager
def running(command: list[str], port: int, **environment: str) -> Iterator[psutil.Process]:
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        time.sleep(1.0)
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(90)


def nginx(folder: Path, upstream: int, stack: ExitStack) -> tuple[int, list[psutil.Process]]:
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(
        f"worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
        "events { worker_connections 1024; }\n"
        f"http {{ access_log off; upstream up {{ server 127.0.0.1:{upstream}; keepalive 128; }}\n"
        f" server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://up; proxy_http_version 1.1;"
        ' proxy_set_header Connection ""; proxy_buffering off; } } }\n'
    )
    parent = stack.enter_context(running(["nginx", "-c", str(config)], port))
    return port, parent.children()


def gateway(folder: Path, upstream: int, stack: ExitStack, hashed: str) -> tuple[int, list[psutil.Process]]:
    port = free_port()
    price = {"input_usd_per_million": 1.0, "output_usd_per_million": 2.0}
    file = folder / "gateway.yaml"
    file.write_text(json.dumps({
        "listen": {"port": port},
        "deployments": {"up": {"url": f"http://127.0.0.1:{upstream}/v1", "model": "tiny", "price": price}},
        "routes": {"chat": {"deployments": ["up"]}}, "keys": {"me": {"key": hashed, "team": "a"}},
        "budgets": [{"of": "total", "usd": 100_000, "per": "day"}, {"of": "team:a", "usd": 100_000}],
        "limits": [{"of": "key:me", "requests_per_minute": 1_000_000}],
    }))  # fmt: skip
    command = [sys.executable, "-m", "tonnage", "gateway", str(file)]
    parent = stack.enter_context(running(command, port, TONNAGE_HOME=str(folder)))
    return port, parent.children()


def litellm(folder: Path, upstream: int, stack: ExitStack, program: str, key: str) -> tuple[int, list[psutil.Process]]:
    port = free_port()
    file = folder / "litellm.yaml"
    parameters = {"model": "openai/tiny", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
    file.write_text(json.dumps({
        "model_list": [{"model_name": "chat", "litellm_params": parameters}], "general_settings": {"master_key": key},
    }))  # fmt: skip
    parent = stack.enter_context(running([program, "--config", str(file), "--port", str(port)], port))
    return port, [parent, *parent.children(recursive=True)]


def cpu_s(processes: list[psutil.Process]) -> float:
    """Seconds of all threads that live, to the nanosecond: `times` counts hundredths of a second, which is coarse for
    a stream of a thousand events. Source: Linux, Documentation/scheduler/sched-stats.rst."""
    found = [file for one in processes for file in Path(f"/proc/{one.pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in found) / 1e9


def measured(port: int, processes: list[psutil.Process], script: Path, at_once: int) -> Round:
    """(CPU in microseconds a request, requests a second, p99 in milliseconds). SystemExit for answers with errors."""
    before = cpu_s(processes)
    command = ["wrk", "-t1", f"-c{at_once}", f"-d{SECONDS}", "-s", str(script), "--latency"]
    said = subprocess.run(
        [*command, f"http://127.0.0.1:{port}/v1/chat/completions"], capture_output=True, text=True, check=True
    ).stdout
    spent = cpu_s(processes) - before
    if "Non-2xx" in said:
        raise SystemExit(f"port {port} answered with errors:\n{said}")
    found = re.search(r"(\d+) requests in", said)
    late = re.search(r"99%\s+([\d.]+)(us|ms|s)", said)
    assert found is not None
    assert late is not None
    scale = {"us": 1e-3, "ms": 1.0, "s": 1e3}[late[2]]
    return 1e6 * spent / int(found[1]), int(found[1]) / SECONDS, float(late[1]) * scale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--litellm", help="the program of litellm's proxy")
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is needed: apt-get install wrk")
    key, hashed = gateway_key()
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder, upstream = Path(scratch), free_port()
        script = folder / "post.lua"
        headers = f'wrk.headers["authorization"]="Bearer {key}"\nwrk.headers["content-type"]="application/json"\n'
        script.write_text(f'wrk.method="POST"\n{headers}wrk.body={json.dumps(json.dumps(CHAT))}\n')
        command = [sys.executable, "-m", "tonnage.testing.upstream", "--port", str(upstream)]
        stack.enter_context(running(command, upstream))
        doors = {}
        if shutil.which("nginx"):
            doors["nginx"] = nginx(folder, upstream, stack)
        else:
            print("nginx is left out: apt-get install nginx-light")
        doors["tonnage"] = gateway(folder, upstream, stack, hashed)
        if given.litellm:
            doors["litellm"] = litellm(folder, upstream, stack, given.litellm, key)
        else:
            print("litellm is left out: --litellm")
        found: dict[tuple[str, int], list[Round]] = {}
        for _ in range(given.rounds):
            for at_once in CONCURRENCY:
                for name, (port, processes) in doors.items():
                    if name == "litellm" and at_once > 8:
                        continue
                    found.setdefault((name, at_once), []).append(measured(port, processes, script, at_once))
        show(found, {name: processes for name, (_, processes) in doors.items()})


def show(found: dict[tuple[str, int], list[Round]], doors: dict[str, list[psutil.Process]]) -> None:
    print("door      at once  CPU us a request (min to max)  x nginx  requests/s  p99 ms")
    for (name, at_once), rounds in sorted(found.items(), key=lambda one: (one[0][1], one[0][0])):
        costs = [one[0] for one in rounds]
        base = found.get(("nginx", at_once))
        ratio = "" if base is None else f"{median(costs) / median([one[0] for one in base]):7.2f}"
        print(
            f"{name:9} {at_once:7}  {median(costs):9.0f} ({min(costs):.0f} to {max(costs):.0f})".ljust(50)
            + f"{ratio:>7}  {median([one[1] for one in rounds]):10.0f}  {median([one[2] for one in rounds]):6.2f}"
        )
    for name, processes in doors.items():
        resident = sum(one.memory_info().rss for one in processes) / 1e6
        print(f"{name}: {resident:.0f} MB resident")


if __name__ == "__main__":
    main()
