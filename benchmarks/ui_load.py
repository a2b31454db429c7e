"""The page under load: runs that report, people with the page open, programs that read the API; p95 and memory.

    python benchmarks/ui_load.py --runs 200 --users 50 --calls-per-s 1000 --seconds 20
    python benchmarks/ui_load.py --beside mlflow --beside ray --ray-python /path/of/an/env/bin/python

One server in a process of its own, on this machine alone; the load comes from this process and shares its cores, and
the rate that was reached is printed beside the one asked for. Ends by itself.

`--beside` asks the same of another server after it, with as many people and calls: the list of runs as its own page
fetches it in the place of our home page; one run, its curve and a list in the place of our documents. MLflow has the
same runs with as many points in a SQLite file; a Ray dashboard has as many finished jobs as `--ray-jobs`, since each
takes a second to make. What a page asks for is taken from what the browser asks at each: only the data, no scripts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tonnage.testing.runs import write_run
from tonnage.web.keys import KeyFile, now_utc

READERS = 40  # connections of programs, each with a key of its own: 50 requests a second are one key's limit
PAGE_EVERY_S = 3.0  # as the page's own script asks
REPORT_EVERY_S = 10.0
WARM = 8  # connections
PATIENCE_S = 30.0  # for an answer
UP_S = 300.0  # for a server to begin
STEPS = 10  # points of each run, as `write_run` writes them
Times = dict[str, list[float]]


@dataclass(frozen=True)
class Ask:
    """A request by the name that it is shown under; `{n}` is the number of a run."""

    name: str
    path: str
    body: str | None = None  # JSON: then it is a POST


@dataclass(frozen=True)
class Target:
    """A server that is asked. `page`: what a person's browser asks for again and again; `reads`: what programs do."""

    name: str
    port: int
    pid: int
    page: tuple[Ask, ...]
    reads: tuple[Ask, ...]
    names: tuple[str, ...]  # of runs, for `{n}`
    keys: tuple[str, ...] = ()  # one a connection; none: nobody signs in
    report: Callable[[int], None] | None = None  # what a run reports, by its turn


class Asker:
    """One connection that is kept, and made anew where the server closes it; seconds of each answer by name."""

    def __init__(self, target: Target, key: str | None, times: Times, failed: Times) -> None:
        self.target, self.times, self.failed = target, times, failed
        self.head = f"host: 127.0.0.1:{target.port}\r\n" + (f"x-api-key: {key}\r\n" if key else "")
        self.stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, one: Ask, run: str) -> None:
        began = time.perf_counter()
        try:
            status = await asyncio.wait_for(self._answer(one, run), PATIENCE_S)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.stream, status = None, type(error).__name__
        if status == "200":
            self.times[one.name].append(time.perf_counter() - began)
        else:
            self.failed[f"{one.name}: {status}"].append(time.perf_counter() - began)

    async def _answer(self, one: Ask, run: str) -> str:
        """The status."""
        if self.stream is None:
            self.stream = await asyncio.open_connection("127.0.0.1", self.target.port)
        reader, writer = self.stream
        body = b"" if one.body is None else one.body.replace("{n}", run).encode()
        verb = "GET" if one.body is None else "POST"
        kind = "" if one.body is None else f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"{verb} {one.path.replace('{n}', run)} HTTP/1.1\r\n{self.head}{kind}\r\n".encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        if b"chunked" in fields.get(b"transfer-encoding", b""):
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                await reader.readexactly(size + 2)
            await reader.readuntil(b"\r\n")
        else:
            await reader.readexactly(int(fields[b"content-length"]))
        if fields.get(b"connection") == b"close":
            writer.close()
            self.stream = None
        return head.split(b" ", 2)[1].decode()


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


async def warm(target: Target) -> None:
    """Every request once on each of a few connections, so that no worker's first imports are measured; a request that
    is never answered with 200 ends the benchmark."""
    failed: Times = defaultdict(list)
    keys = [*target.keys[:WARM]] or [None] * WARM
    askers = [Asker(target, key, defaultdict(list), failed) for key in keys]
    for one in (*target.page, *target.reads):
        for _ in range(3):
            failed.clear()
            await asyncio.gather(*(asker.ask(one, target.names[0]) for asker in askers))
            if not failed:
                break
        else:
            raise SystemExit(f"{target.name}: {one.path} is not answered with 200: {', '.join(failed)}")


async def load(target: Target, asked: argparse.Namespace) -> tuple[Times, Times, int]:
    times, failed, reports = defaultdict(list), defaultdict(list), [0]
    until = time.perf_counter() + asked.seconds
    keys: list[str | None] = [*target.keys] or [None] * (asked.users + READERS)
    tasks = []
    for number in range(asked.users):
        user = Asker(target, keys[number], times, failed)

        async def look(_: int, user: Asker = user) -> None:
            for one in target.page:
                await user.ask(one, target.names[0])

        tasks.append(every(PAGE_EVERY_S, until, look, number / asked.users))
    for number in range(READERS):
        reader = Asker(target, keys[asked.users + number], times, failed)

        async def read(turn: int, reader: Asker = reader, number: int = number) -> None:
            what = target.reads[(turn + number) % len(target.reads)]
            await reader.ask(what, target.names[(turn * READERS + number) % len(target.names)])

        if asked.calls_per_s:
            tasks.append(every(READERS / asked.calls_per_s, until, read, number / READERS))
    if target.report is not None:
        tell = target.report

        async def report(turn: int) -> None:
            tell(turn)
            reports[0] += 1

        tasks.append(every(REPORT_EVERY_S / len(target.names), until, report, 0.0))
    await asyncio.gather(*tasks)
    return times, failed, reports[0]


# the servers


@contextmanager
def tonnage_page(asked: argparse.Namespace, place: Path) -> Iterator[Target]:
    home = place / "home"
    folders = [home / "runs" / f"run-{number}" for number in range(asked.runs)]
    for number, folder in enumerate(folders):
        write_run(folder, finished=number % 10 != 0)
    kept = KeyFile(home / "ui" / "keys.json")
    keys = tuple(
        kept.add(f"reader-{number}", "viewer", now=now_utc(), expires_at=None)
        for number in range(asked.users + READERS)
    )

    def report(turn: int) -> None:
        file = folders[turn % len(folders)] / "metrics.jsonl"
        last = json.loads(file.read_text(encoding="utf-8").splitlines()[-1])
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({**last, "step": last["step"] + 1}) + "\n")

    port = free_port()
    command = [sys.executable, "-m", "tonnage", "ui", "--port", str(port), "--behind-proxy", "--folder", str(place),
               "--host-name", "127.0.0.1"]  # fmt: skip
    reads = ("me", "runs/{n}", "runs/{n}/logs?lines=20", "catalog/gpus?gpu=H100:8", "budgets")
    with started(command, {"TONNAGE_HOME": str(home)}, port, "/health") as pid:
        yield Target(
            "tonnage ui", port, pid, page=(Ask("page", "/?fragment=1"),),
            reads=tuple(Ask(one.replace("{n}", "NAME"), f"/api/v1/{one}") for one in reads),
            names=tuple(folder.name for folder in folders), keys=keys, report=report,
        )  # fmt: skip


@contextmanager
def mlflow_ui(asked: argparse.Namespace, place: Path) -> Iterator[Target]:
    """The same runs in a SQLite file, written by MLflow's client; its server as `mlflow server` starts it."""
    store = f"sqlite:///{place}/mlflow.db"
    write = (
        "import sys\nfrom mlflow.tracking import MlflowClient\nfrom mlflow.entities import Metric, Param\n"
        f"client = MlflowClient(tracking_uri={store!r})\nexperiment = client.create_experiment('load')\n"
        f"print(experiment)\nfor number in range({asked.runs}):\n"
        "    run = client.create_run(experiment, run_name=f'run-{number}').info.run_id\n"
        f"    points = [Metric('loss', 1 / (1 + step), 1000 * step, step) for step in range({STEPS})]\n"
        "    client.log_batch(run, metrics=points, params=[Param('model', 'bert'), Param('batch', '32')])\n"
        "    if number % 10:\n        client.set_terminated(run)\n    print(run)\n"
    )
    done = subprocess.run([asked.mlflow_python, "-c", write], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"MLflow cannot write its runs: {done.stderr[-500:]}")
    experiment, *names = done.stdout.split()
    port = free_port()
    command = [asked.mlflow_python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
               "--backend-store-uri", store, "--artifacts-destination", str(place / "artifacts")]  # fmt: skip
    listed = json.dumps({"experiment_ids": [experiment], "max_results": 100})
    search = Ask("page (runs/search)", "/ajax-api/2.0/mlflow/runs/search", listed)
    history = "/api/2.0/mlflow/metrics/get-history?metric_key=loss&run_id={n}"
    with started(command, {"MLFLOW_DISABLE_TELEMETRY": "true"}, port, "/health") as pid:
        yield Target(
            "MLflow UI", port, pid, page=(search,), names=tuple(names),
            reads=(Ask("runs/get", "/api/2.0/mlflow/runs/get?run_id={n}"), Ask("metrics/get-history", history),
                   Ask("experiments/search", "/api/2.0/mlflow/experiments/search?max_results=100")),
        )  # fmt: skip


@contextmanager
def ray_dashboard(asked: argparse.Namespace, place: Path) -> Iterator[Target]:
    """A head node of its own with `--ray-jobs` jobs that have ended; stopped by its processes, not by name.

    Jobs go through the node's agent. Its default port is the same for every head of a machine, and a second head's
    agent then runs without its HTTP server, so this one has a port of its own; on a busy machine the agent takes
    longer to begin than the node waits by default, and the node ends while its dashboard still answers.
    """
    port, own, agent = free_port(), free_port(), free_port()
    ray = str(Path(asked.ray_python).with_name("ray"))
    # AF_UNIX paths are short: not below the temporary folder of a test
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    command = [ray, "start", "--head", "--block", "--port", str(own), "--dashboard-host", "127.0.0.1",
               "--dashboard-port", str(port), "--num-cpus", "2", "--temp-dir", folder, "--include-dashboard", "true",
               "--disable-usage-stats", "--object-store-memory", "80000000",
               "--dashboard-agent-listen-port", str(agent)]  # fmt: skip
    more = {"RAY_AUTH_MODE": "disabled", "RAY_agent_register_timeout_ms": str(int(1000 * UP_S))}
    try:
        yield from _ray_target(asked, port, command, more)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # its last processes may still write while they end
    del place


def _ray_target(asked: argparse.Namespace, port: int, command: list[str], more: dict[str, str]) -> Iterator[Target]:
    with started(command, more, port, "/api/version") as pid:
        names = [_submitted(f"http://127.0.0.1:{port}/api/jobs/", f"job-{number}") for number in range(asked.ray_jobs)]
        yield Target(
            "Ray dashboard", port, pid, names=tuple(names),
            page=(Ask("page (jobs)", "/api/jobs/"), Ask("page (nodes)", "/nodes?view=summary")),
            reads=(Ask("jobs/NAME", "/api/jobs/{n}"), Ask("jobs/NAME/logs", "/api/jobs/{n}/logs"),
                   Ask("version", "/api/version")),
        )  # fmt: skip


def _submitted(url: str, name: str) -> str:
    """A job that ends at once; tried again while the node's agent is not there yet. What Ray last answered is said."""
    asked = json.dumps({"entrypoint": "true", "submission_id": name}).encode()
    until = time.monotonic() + UP_S
    while True:
        try:
            request = urllib.request.Request(url, asked, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                return str(json.load(answer)["submission_id"])
        except OSError as error:
            if time.monotonic() > until:
                said = error.read().decode().strip()[-500:] if isinstance(error, urllib.error.HTTPError) else ""
                raise SystemExit(f"Ray takes no job: {error} {said}") from error
            time.sleep(2.0)


SERVERS = {"mlflow": mlflow_ui, "ray": ray_dashboard}


@contextmanager
def started(command: list[str], more: dict[str, str], port: int, path: str) -> Iterator[int]:
    """A server's process once it answers at `path`; it and its descendants are ended behind the block."""
    with subprocess.Popen(command, env={**os.environ, **more}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as server:  # fmt: skip
        try:
            until = time.monotonic() + UP_S
            while True:
                if server.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"{' '.join(command[:6])} … did not begin within {UP_S:.0f} s")
                with suppress(OSError, urllib.error.URLError), \
                        urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):  # fmt: skip
                    break
                time.sleep(0.2)
            yield server.pid
        finally:
            family = list[psutil.Process]()
            with suppress(psutil.NoSuchProcess):  # it has ended
                top = psutil.Process(server.pid)
                family = [top, *top.children(recursive=True)]
            server.terminate()
            _, left = psutil.wait_procs(family, timeout=15)
            for one in left:  # `ray start --block` does not end by SIGTERM alone
                with suppress(psutil.NoSuchProcess):
                    one.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def used(pid: int) -> tuple[float, float]:
    """Resident megabytes and processor seconds of a process and all below it."""
    top = psutil.Process(pid)
    memory_mb = cpu_s = 0.0
    for one in (top, *top.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            memory_mb += one.memory_info().rss / 1e6
            cpu_s += sum(one.cpu_times()[:2])
    return memory_mb, cpu_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("runs", 200), ("users", 50), ("calls-per-s", 1000), ("seconds", 20), ("ray-jobs", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--beside", choices=sorted(SERVERS), action="append", default=[])
    parser.add_argument("--mlflow-python", default=sys.executable, help="of an environment with mlflow")
    parser.add_argument("--ray-python", default=sys.executable, help="of an environment with ray[default]")
    asked = parser.parse_args()
    for make in (tonnage_page, *(SERVERS[name] for name in dict.fromkeys(asked.beside))):
        with tempfile.TemporaryDirectory() as place, make(asked, Path(place)) as target:
            asyncio.run(warm(target))
            before_mb, began_s = used(target.pid)
            times, failed, reports = asyncio.run(load(target, asked))
            after_mb, ended_s = used(target.pid)
        _show(target, times, failed, asked)
        share = 100 * (ended_s - began_s) / asked.seconds
        print(f"{reports} reports of {len(target.names)} runs; server {before_mb:.0f} -> {after_mb:.0f} MB, "
              f"{share:.0f} % of one core\n")  # fmt: skip
    return 0


def _show(target: Target, times: Times, failed: Times, asked: argparse.Namespace) -> None:
    pages = {one.name for one in target.page}
    calls = sum(len(found) for name, found in times.items() if name not in pages)
    print(target.name)
    print(f"asked {asked.calls_per_s} calls a second, reached {calls / asked.seconds:.0f}; {asked.users} users")
    print(f"{'address':<28} {'answers':>8} {'p50 ms':>8} {'p95 ms':>8}")
    for name, taken in sorted(times.items()):
        found = sorted(taken)
        p50, p95 = (found[int(share * (len(found) - 1))] * 1000 for share in (0.5, 0.95))
        print(f"{name:<28} {len(found):>8} {p50:>8.1f} {p95:>8.1f}")
    for name, taken in sorted(failed.items()):
        print(f"not answered with 200: {len(taken)} of {name}")


if __name__ == "__main__":
    raise SystemExit(main())
