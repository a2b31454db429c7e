"""A session of Spark for the engines in it: a cluster of this host with a worker for each of the job's, or one by its
address."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .base import EngineFault
from .cluster_address import must_answer
from .process import fail

EXECUTORS_S = 120.0  # within which all executors must be there
RESIDENT = tuple(f"ProcessTree{what}RSSMemory" for what in ("JVM", "Python", "Other"))
LOOK_S = 1.0  # between two looks whether they still are


def on_this_host(master: str | None) -> bool:
    """Whether everything stays on the loopback address: the cluster of this host, or one that listens there."""
    return master is None or master.removeprefix("spark://").split(":")[0] in ("127.0.0.1", "localhost")


def threads_each(job: dict[str, Any]) -> int:
    return max(int(job["threads"]) // int(job["workers"]), 1)


def local_cluster(job: dict[str, Any]) -> str:
    """A Spark cluster of this host with as many workers as the job has."""
    return f"local-cluster[{job['workers']},{threads_each(job)},{int(job['memory_gib'] * 1024)}]"


def spark_settings(job: dict[str, Any]) -> dict[str, str]:
    """One executor a worker. On a cluster elsewhere Spark chooses the driver's address."""
    memory_mib, each = int(job["memory_gib"] * 1024), threads_each(job)
    given = {
        "spark.driver.memory": f"{memory_mib}m", "spark.executor.memory": f"{memory_mib}m",
        "spark.ui.enabled": "false", "spark.dynamicAllocation.enabled": "false", "spark.locality.wait": "0",
        "spark.scheduler.minRegisteredResourcesRatio": "1", "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.warehouse.dir": str(Path(job["folder"]) / "warehouse"),
    }  # fmt: skip
    if job["master"] is not None:
        given |= {
            "spark.executor.cores": str(each), "spark.cores.max": str(each * job["workers"]),
            "spark.executor.processTreeMetrics.enabled": "true", "spark.executor.heartbeatInterval": "1s",
        }  # fmt: skip
    if on_this_host(job["master"]):
        given |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return given


def open_session(job: dict[str, Any], settings: dict[str, str]) -> tuple[Any, ExecutorWatch]:
    """The session, with all its executors, and the watch over them; what it lays down stays in the job's folder.
    EngineFault where the cluster does not answer, does not take the session or gives it fewer executors."""
    import pyspark

    folder, master = Path(job["folder"]), job["master"]
    if master is not None:
        must_answer("Spark master", master)
    os.environ |= {
        "SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_DIRS": str(folder / "spark"),
        "SPARK_WORKER_DIR": str(folder / "work"),
    }  # fmt: skip
    if on_this_host(master):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master or local_cluster(job)).appName("tonnage-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # Java's own, through py4j
        where = "a Spark of this host" if master is None else f"Spark at {master}"
        version = pyspark.__version__
        raise EngineFault(f"{where} does not start (Spark {version} is here): {_in_a_line(error)}") from error
    session.sparkContext.setLogLevel("ERROR")
    _await_executors(session, job)
    return session, ExecutorWatch(session, job)


def _await_executors(session: Any, job: dict[str, Any]) -> None:
    end = time.monotonic() + EXECUTORS_S
    while (there := sum(one.isActive() for one in executors(session))) < job["workers"]:
        if time.monotonic() > end:
            cores, memory_mib = threads_each(job), int(job["memory_gib"] * 1024)
            raise EngineFault(
                f"Spark gave {there} executors of {job['workers']} in {EXECUTORS_S:g} s: each needs {cores} free cores "
                f"and {memory_mib} MiB with a tenth besides (384 MiB at least) on one of its workers"
            )
        time.sleep(0.1)


def executors(session: Any) -> Iterator[Any]:
    """What Spark says of each executor, also of those that are lost (`ExecutorSummary`); the driver is none."""
    found = session.sparkContext._jsc.sc().statusStore().executorList(False)
    yield from (one for one in map(found.apply, range(found.size())) if one.id() != "driver")


def memory_of_executors(session: Any) -> int:
    """Peak resident bytes of all executors with what they started, as each last said; 0 before the first word.

    Spark counts them by `/proc` where `spark.executor.processTreeMetrics.enabled` is set (`ProcfsMetricsGetter`).
    """
    peaks = [one.peakMemoryMetrics() for one in executors(session)]
    return sum(int(peak.get().getMetricValue(name)) for peak in peaks if peak.isDefined() for name in RESIDENT)


class ExecutorWatch:
    """Ends this process with the reason once an executor is lost, or the driver's Java. Spark would go on with another
    executor in its place, and the figures would be of other work; H2O would wait for its node without end."""

    def __init__(self, session: Any, job: dict[str, Any]) -> None:
        self._session, self._job, self._over = session, job, threading.Event()
        self._java = session.sparkContext._gateway.proc
        threading.Thread(target=self._look, daemon=True).start()

    def end(self) -> None:
        """Before the session is closed, which ends its executors."""
        self._over.set()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                lost = [_said_of(one) for one in executors(self._session) if not one.isActive()]
            except Exception as error:
                if self._java.poll() is None:
                    raise
                ended = f"Java of Spark's driver (process {self._java.pid}) ended with {self._java.returncode}"
                lost = [f"{ended}: {_in_a_line(error)}"]
            if lost and not self._over.is_set():
                fail(self._job, "; ".join(lost))
                os._exit(1)


def _said_of(executor: Any) -> str:
    reason = executor.removeReason()
    why = " ".join(str(reason.get()).split()) if reason.isDefined() else "Spark does not say why"
    return f"executor {executor.id()} of Spark at {executor.hostPort()} was lost: {why}"


def _in_a_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return " ".join(str(error if java is None else java.toString()).split())
