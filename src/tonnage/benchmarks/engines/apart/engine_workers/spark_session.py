"""A session of Spark for the engines in it: a cluster of this host with a worker for each of the job's, or one by its
address."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


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
        given |= {"spark.executor.cores": str(each), "spark.cores.max": str(each * job["workers"])}
    if on_this_host(job["master"]):
        given |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return given


def open_session(job: dict[str, Any], settings: dict[str, str]) -> Any:
    """The session; what it lays down stays in the job's folder."""
    import pyspark

    folder, master = Path(job["folder"]), job["master"]
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
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
