"""A real Spark standalone cluster on this machine, for tests and trials: a master, workers with pretended GPUs, and one
for drivers.

Needs Java 8 to 17, and pyspark in this Python, or TONNAGE_SPARK_HOME, the folder of a Spark 3.5. Everything lies in one
folder, listens on 127.0.0.1, and ends with the `with` block. `python -m tonnage.testing.spark FOLDER` starts one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from tonnage.errors import TonnageError
from tonnage.testing.ray import end_at_once, wait_until
from tonnage.testing.slurm import free_ports
from tonnage.values import dataclass

MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
DRIVER_GIB: Final = 4  # of drivers in trials: the worker for drivers alone has room for one
END_S: Final = 15.0
JOINED: Final = "Successfully registered with master"


def spark_home() -> str | None:
    """The folder of a Spark, with Java beside it; None where there is none."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return None
    if home := os.environ.get("TONNAGE_SPARK_HOME"):
        return home
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else str(Path(found.origin).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkCluster:
    """One that runs."""

    folder: Path
    home: str
    address: str
    rest: str
    web: str
    environ: dict[str, str]
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)  # by their name
    gone: list[subprocess.Popen[bytes]] = field(default_factory=list)  # that were shut down

    def page(self) -> dict[str, Any]:
        """What the master says."""
        found: dict[str, Any] = httpx.get(f"{self.web}/json/", trust_env=False, timeout=30.0).raise_for_status().json()
        return found

    def living(self) -> int:
        """Workers that the master counts."""
        return sum(one["state"] == "ALIVE" for one in self.page()["workers"])

    def drivers(self, *, run: str) -> list[str]:
        """Ids of drivers of a run that live."""
        return [one["id"] for one in self.page()["activedrivers"] if str(one["mainclass"]).endswith(f".{run}")]

    def add_worker(self, name: str, *, cores: int, memory_gib: int, gpus: int) -> None:
        """Another worker; it may be used when this comes back."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        script = folder / "gpus.sh"
        listed = json.dumps({"name": "gpu", "addresses": [str(number) for number in range(gpus)]})
        script.write_text(f"#!/bin/sh\necho '{listed}'\n")
        script.chmod(0o755)
        options = (f"-Dspark.worker.resource.gpu.amount={gpus} -Dspark.worker.resource.gpu.discoveryScript={script}"
                   if gpus else "")  # fmt: skip
        words = ("--host", "127.0.0.1", "--webui-port", "0", "-c", str(cores), "-m", f"{memory_gib}G",
                 "-d", str(folder), self.address)  # fmt: skip
        env = {**self.environ, "SPARK_WORKER_OPTS": options}
        self.workers[name] = start(self.home, folder / "worker.log", env, WORKER, *words)
        log = folder / "worker.log"
        wait_until(lambda: JOINED in log.read_text(encoding="utf-8", errors="replace"), f"it does not join: {log}")

    def lose_worker(self, name: str) -> None:
        """All of it at once, as when its machine has no power any more."""
        process = self.workers.pop(name)
        family = family_of(self.folder / name, process.pid)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: none tells another of its end
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    one.send_signal(number)
        psutil.wait_procs([one for one in family if one.pid != process.pid], timeout=END_S)
        process.wait(END_S)

    def shut_down(self, name: str) -> None:
        """Ask it to end, as `stop-worker.sh` does: what its executors' work does then is its own."""
        process = self.workers.pop(name)
        process.terminate()
        self.gone.append(process)

    def worker_of(self, pid: int) -> str:
        """The worker whose executor or driver has started a process."""
        for name in self.workers:
            if pid in {one.pid for one in family_of(self.folder / name, self.workers[name].pid)}:
                return name
        raise LookupError(pid)


def family_of(folder: Path, pid: int) -> list[psutil.Process]:
    """A worker, and all that it has started: sessions of their own too, by the folder that their Java works in."""
    found = {pid: psutil.Process(pid)}
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if Path(one.cwd()).is_relative_to(folder):
                found[one.pid] = one
                found |= {below.pid: below for below in one.children(recursive=True)}
    return list(found.values())


@contextmanager
def spark_cluster(
    folder: Path, *, workers: Mapping[str, Mapping[str, int]], environ: Mapping[str, str] | None = None
) -> Iterator[SparkCluster]:
    """Start it; `workers`: cores, memory_gib and gpus of each. TonnageError where that fails."""
    home = spark_home()
    if home is None:
        raise TonnageError(
            "there is no Spark here", hint="pip install 'tonnage[spark]' and Java 17, or TONNAGE_SPARK_HOME"
        )
    port, web, rest = free_ports(3)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "conf").mkdir(exist_ok=True)
    env = {
        **os.environ, "SPARK_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_DAEMON_MEMORY": "256m", "MLFLOW_TRACKING_URI": "none", **(environ or {}),
    }  # fmt: skip
    env.pop("PYTHONPATH", None)  # of the client; the run's code is sent
    options = f"-Dspark.master.rest.enabled=true -Dspark.master.rest.port={rest} -Dspark.worker.timeout=15"
    words = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web))
    master = start(home, folder / "master.log", {**env, "SPARK_MASTER_OPTS": options}, MASTER, *words)
    found = SparkCluster(folder=folder, home=home, address=f"spark://127.0.0.1:{port}", environ=env,
                         rest=f"http://127.0.0.1:{rest}", web=f"http://127.0.0.1:{web}")  # fmt: skip
    try:
        wait_until(lambda: master.poll() is None and _answers(found), f"Spark does not start: {folder / 'master.log'}")
        for name, has in workers.items():
            found.add_worker(name, **has)
        yield found
    finally:
        for name in list(found.workers):
            found.lose_worker(name)
        for process in [*found.gone, master]:
            end_at_once(process)


def start(home: str, log: Path, env: Mapping[str, str], *words: str) -> subprocess.Popen[bytes]:
    """A daemon of Spark, in the foreground."""
    with log.open("ab") as out:
        return subprocess.Popen(
            [f"{home}/bin/spark-class", *words], env=dict(env), stdout=out, stderr=out, stdin=subprocess.DEVNULL,
            cwd=log.parent, start_new_session=True,
        )  # fmt: skip


def _answers(found: SparkCluster) -> bool:
    try:
        return found.living() >= 0
    except httpx.HTTPError:
        return False


def main(words: Sequence[str]) -> None:
    """A cluster to try by hand, until it is ended."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    usual = {"edge": {"cores": 2, "memory_gib": 8, "gpus": 0}} | {
        name: {"cores": 2, "memory_gib": 3, "gpus": 8} for name in ("one", "two")
    }
    with spark_cluster(Path(words[0]).resolve(), workers=usual) as trial, suppress(KeyboardInterrupt):
        sys.stdout.write(f'address = "{trial.address}"\nrest = "{trial.rest}"\nweb = "{trial.web}"\n')
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
