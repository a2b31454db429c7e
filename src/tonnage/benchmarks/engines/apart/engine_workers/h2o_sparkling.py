"""H2O Sparkling Water: H2O nodes inside the executors of Spark, pandas -> Spark -> VectorAssembler -> H2OFrame."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .h2o_models import H2OEngine

# Sparkling Water's proxy reads classes of the JDK that Java 17 keeps closed.
EXPORTS = " ".join(f"--add-exports=java.base/sun.net.www.protocol.{scheme}=ALL-UNNAMED" for scheme in ("http", "https"))


def assembly_jar() -> Path:
    """The Java archive that the Python package carries."""
    import sparkling_water  # the folder of the Python package that holds it

    return next(Path(sparkling_water.__file__).parent.glob("*assembly*.jar"))


def on_this_host(master: str | None) -> bool:
    """Whether everything stays on the loopback address: the cluster of this host, or one that listens there."""
    return master is None or master.removeprefix("spark://").split(":")[0] in ("127.0.0.1", "localhost")


def threads_each(job: dict[str, Any]) -> int:
    return max(int(job["threads"]) // int(job["workers"]), 1)


def local_cluster(job: dict[str, Any]) -> str:
    """A Spark cluster of this host with as many workers as the job has."""
    return f"local-cluster[{job['workers']},{threads_each(job)},{int(job['memory_gib'] * 1024)}]"


def session_settings(job: dict[str, Any], jar: str) -> dict[str, str]:
    """One executor a worker, an H2O node in each. On a cluster elsewhere Spark chooses the driver's address and H2O its
    own, and ports are those that are free there."""
    memory_mib, each = int(job["memory_gib"] * 1024), threads_each(job)
    given = {
        "spark.driver.extraJavaOptions": EXPORTS, "spark.executor.extraJavaOptions": EXPORTS,
        "spark.driver.memory": f"{memory_mib}m", "spark.executor.memory": f"{memory_mib}m",
        "spark.ui.enabled": "false", "spark.jars": jar, "spark.ext.h2o.cluster.size": str(job["workers"]),
        "spark.ext.h2o.nthreads": str(each), "spark.dynamicAllocation.enabled": "false", "spark.locality.wait": "0",
        "spark.scheduler.minRegisteredResourcesRatio": "1", "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.warehouse.dir": str(Path(job["folder"]) / "warehouse"),
    }  # fmt: skip
    if job["master"] is not None:
        given |= {"spark.executor.cores": str(each), "spark.cores.max": str(each * job["workers"])}
    if on_this_host(job["master"]):
        given |= {
            "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
            "spark.ext.h2o.extra.properties": "-web_ip 127.0.0.1", "spark.ext.h2o.base.port": str(job["ports"][0]),
        }  # fmt: skip
    return given


class Engine(H2OEngine):
    packages = ("h2o_pysparkling_3.5", "pyspark")

    def start(self) -> None:
        import pyspark

        folder, master = Path(self.job["folder"]), self.job["master"]
        os.environ |= {
            "SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_LOCAL_DIRS": str(folder / "spark"),
            "SPARK_WORKER_DIR": str(folder / "work"),
        }  # fmt: skip
        if on_this_host(master):
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master or local_cluster(self.job)).appName("tonnage-bench")
        for name, value in session_settings(self.job, str(assembly_jar())).items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("ERROR")
        from pysparkling import H2OConf, H2OContext

        conf = H2OConf().setInternalClusterMode()
        self._context = H2OContext.getOrCreate(conf)
        import h2o

        self._h2o: Any = h2o
        h2o.no_progress()

    def prepare(self, table: Any) -> None:
        from pyspark.ml.feature import VectorAssembler

        self.table = table
        self._h2o.remove_all()
        for part in table.target:
            frame = self.pandas_frame(part)
            frame["row"] = range(len(frame))
            columns = [name for name in frame.columns if name not in ("target", "row")]
            rows = self._spark.createDataFrame(frame).repartition(self.job["workers"])
            vectors = VectorAssembler(inputCols=columns, outputCol="features").transform(rows)
            self.frames[part] = self._context.asH2OFrame(vectors.select("features", "target", "row"))
            if self.job["task"] != "regression":
                self.frames[part]["target"] = self.frames[part]["target"].asfactor()

    def workers(self) -> list[dict[str, Any]]:
        nodes = self._h2o.cluster().nodes
        if len(nodes) != self.job["workers"]:
            raise RuntimeError(f"{len(nodes)} H2O nodes of {self.job['workers']} are in the cluster")
        return [{"rank": place, "pid": node["pid"], "port": int(str(node["ip_port"]).rpartition(":")[2]),
                 "devices": None} for place, node in enumerate(nodes)]  # fmt: skip

    def close(self) -> None:
        self._context.stop()
        self._spark.stop()
