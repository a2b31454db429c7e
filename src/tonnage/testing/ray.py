"""A real Ray cluster on this machine, for tests and trials: a head that takes no work, and nodes that come and go.

Needs Ray in this Python, or TONNAGE_RAY_PYTHON, a Python that has it and what the supervisor imports. Everything lies
in one folder, listens on this machine, and ends with the `with` block.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from tonnage.errors import TonnageError
from tonnage.testing.slurm import free_ports
from tonnage.values import dataclass

STORE_BYTES: Final = 150 << 20
START_TIMEOUT_S: Final = 180.0
END_TIMEOUT_S: Final = 30.0


def ray_python() -> str | None:
    """A Python with Ray; None where there is none."""
    return os.environ.get("TONNAGE_RAY_PYTHON") or (sys.executable if find_spec("ray") else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRayCluster:
    """One that runs."""

    folder: Path
    address: str  # of the dashboard
    gcs: str
    environ: dict[str, str]
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    gone: list[subprocess.Popen[bytes]] = field(default_factory=list)  # that were shut down

    def ask(self, path: str) -> Any:
        """What the dashboard says."""
        return httpx.get(self.address + path, trust_env=False, timeout=30.0).raise_for_status().json()

    def living(self) -> int:
        """Nodes that Ray counts, the head among them."""
        found = self.ask("/api/v0/nodes?detail=1")["data"]["result"]["result"]
        return sum(one["state"] == "ALIVE" for one in found)

    def add_node(self, *, cpus: int = 2, gpus: int = 8) -> subprocess.Popen[bytes]:
        """Another node; it may be used when this comes back."""
        wanted = self.living() + 1
        words = ("--address", self.gcs, "--num-cpus", str(cpus), "--num-gpus", str(gpus))
        node = start(self.folder / f"node-{len(self.nodes)}.log", self.environ, *words)
        self.nodes.append(node)
        wait_until(lambda: self.living() >= wanted, f"the node does not join: {self.folder}")
        return node

    def lose_node(self, node: subprocess.Popen[bytes]) -> None:
        """All of it at once, as when its machine has no power any more."""
        end_at_once(node)
        self.nodes.remove(node)

    def shut_down(self, node: subprocess.Popen[bytes]) -> None:
        """Ask its Ray to end, as `ray stop` does: what the node's work does then is its own."""
        for one in psutil.Process(node.pid).children():
            if one.name() == "raylet":
                one.terminate()
        self.nodes.remove(node)
        self.gone.append(node)

    def node_of(self, pid: int) -> subprocess.Popen[bytes]:
        """The node below which a process is."""
        above = {one.pid for one in psutil.Process(pid).parents()}
        return next(one for one in self.nodes if one.pid in above)


@contextmanager
def ray_cluster(folder: Path, *, nodes: int = 1, environ: dict[str, str] | None = None) -> Iterator[StartedRayCluster]:
    """Start it. TonnageError where that fails."""
    python = ray_python()
    if python is None:
        raise TonnageError("there is no Ray here", hint="pip install 'tonnage[ray]', or TONNAGE_RAY_PYTHON")
    gcs, dashboard, agent = free_ports(3)
    env = {
        **os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_MEMORY_MONITOR": "1",
        "RAY_memory_monitor_refresh_ms": "0", "PATH": f"{Path(python).parent}:{os.environ.get('PATH', '')}",
        "MLFLOW_TRACKING_URI": "none", **(environ or {}),
    }  # fmt: skip
    env.pop("PYTHONPATH", None)  # of the client; the run's code is sent
    folder.mkdir(parents=True, exist_ok=True)
    temp = Path("/tmp") / f"tonnage-ray-{gcs}"
    head = start(
        folder / "head.log", env, "--head", "--port", str(gcs), "--dashboard-host", "127.0.0.1", "--dashboard-port",
        str(dashboard), "--dashboard-agent-listen-port", str(agent), "--num-cpus", "0", "--temp-dir", str(temp),
    )  # fmt: skip
    host = socket.gethostbyname(socket.gethostname())
    found = StartedRayCluster(folder=folder, address=f"http://127.0.0.1:{dashboard}", gcs=f"{host}:{gcs}", environ=env)
    try:
        wait_until(lambda: head.poll() is None and _answers(found), f"Ray does not start: {folder / 'head.log'}")
        for _ in range(nodes):
            found.add_node()
        yield found
    finally:
        for process in [*found.gone, *found.nodes, head]:
            end_at_once(process)
        subprocess.run(["rm", "-rf", str(temp)], check=False)


def start(log: Path, env: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
    """`ray start`, which stays."""
    python = ray_python()
    assert python is not None
    command = [str(Path(python).parent / "ray"), "start", "--block", "--disable-usage-stats"]
    with log.open("ab") as out:
        return subprocess.Popen(
            [*command, "--object-store-memory", str(STORE_BYTES), *words], env=env, stdout=out, stderr=out,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip


def end_at_once(process: subprocess.Popen[bytes]) -> None:
    """A process and everything below it."""
    with suppress(psutil.NoSuchProcess):
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none tells another of its end
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    one.send_signal(number)
        psutil.wait_procs(family, timeout=END_TIMEOUT_S)
    process.wait(END_TIMEOUT_S)


def wait_until(true: Any, said: str) -> None:
    """TonnageError where it does not come so far in time."""
    until = time.monotonic() + START_TIMEOUT_S
    while not true():
        if time.monotonic() > until:
            raise TonnageError(said, hint="its log says why")
        time.sleep(0.1)


def _answers(found: StartedRayCluster) -> bool:
    try:
        return found.living() > 0
    except httpx.HTTPError:
        return False
