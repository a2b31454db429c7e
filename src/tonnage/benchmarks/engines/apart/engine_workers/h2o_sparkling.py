"""H2O Sparkling Water: H2O nodes inside the executors of Spark, pandas -> Spark -> VectorAssembler -> H2OFrame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .h2o_models import H2OEngine
from .spark_session import memory_of_executors, on_this_host, open_session, spark_settings, threads_each

# Sparkling Water's proxy reads classes of the JDK that Java 17 keeps closed.
EXPORTS = " ".join(f"--add-exports=java.base/sun.net.www.protocol.{scheme}=ALL-UNNAMED" for scheme in ("http", "https"))


def assembly_jar() -> Path:
    """The Java archive that the Python package carries."""
    import sparkling_water  # the folder of the Python package that holds it

    return next(Path(sparkling_water.__file__).parent.glob("*assembly*.jar"))


def session_settings(job: dict[str, Any], jar: str) -> dict[str, str]:
    """An H2O node in each executor; on a cluster elsewhere H2O chooses its address and ports that are free there."""
    given = spark_settings(job) | {
        "spark.driver.extraJavaOptions": EXPORTS, "spark.executor.extraJavaOptions": EXPORTS, "spark.jars": jar,
        "spark.ext.h2o.cluster.size": str(job["workers"]), "spark.ext.h2o.nthreads": str(threads_each(job)),
    }  # fmt: skip
    if on_this_host(job["master"]):
        given |= {
            "spark.ext.h2o.extra.properties": "-web_ip 127.0.0.1", "spark.ext.h2o.base.port": str(job["ports"][0]),
        }  # fmt: skip
    return given


class SparklingEngine(H2OEngine):
    packages = ("h2o_pysparkling_3.5", "pyspark")

    def start(self) -> None:
        self._spark, self._watch = open_session(self.job, session_settings(self.job, str(assembly_jar())))
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

    def memory_elsewhere(self) -> int:
        return 0 if self.job["master"] is None else memory_of_executors(self._spark)

    def close(self) -> None:
        self._watch.end()
        self._context.stop()
        self._spark.stop()
