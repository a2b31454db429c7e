"""Spark's own trees (pyspark.ml): pandas -> Spark -> VectorAssembler -> GBT or random forest on the executors.

Spark tells no time of a single tree: the model as a whole is one point of the curve. Source of the parameters: Spark
3.5, «MLlib: Classification and regression».
"""

from __future__ import annotations

import os
import time
from typing import Any

from .base import BaseEngine
from .spark_session import memory_of_executors, open_session, spark_settings


class SparkMLEngine(BaseEngine):
    packages = ("pyspark",)

    def start(self) -> None:
        self._spark, self._watch = open_session(self.job, spark_settings(self.job))

    def prepare(self, table: Any) -> None:
        self.table = table
        self._rows = self._vectors("train").repartition(self.job["workers"] * 2).cache()
        self._rows.count()

    def _vectors(self, part: str) -> Any:
        """A part as Spark takes it: a vector of features, the target, and the place of the row."""
        import pandas
        from pyspark.ml.feature import VectorAssembler

        features = self.table.features[part]
        names = [f"f{place}" for place in range(features.shape[1])]
        frame = pandas.DataFrame(features, columns=names)
        frame["target"] = self.table.target[part].astype("float64")
        frame["row"] = range(len(frame))
        rows = self._spark.createDataFrame(frame)
        return VectorAssembler(inputCols=names, outputCol="features").transform(rows).select(
            "features", "target", "row"
        )  # fmt: skip

    def fit(self, passes: int) -> list[tuple[int, float]]:
        begun = time.monotonic()
        self._model = self._estimator(passes).fit(self._rows)
        return [(passes, time.monotonic() - begun)]

    def _estimator(self, passes: int) -> Any:
        from pyspark.ml import classification, regression

        job = self.job
        given = {
            "featuresCol": "features", "labelCol": "target", "maxDepth": job["depth"], "maxBins": job["bins"],
            "seed": job["seed"] + 1,
        }  # fmt: skip
        numbers = job["task"] == "regression"
        if job["engine"] == "spark-gbt":
            given |= {"maxIter": passes, "stepSize": job["learning_rate"]}
            kind = regression.GBTRegressor if numbers else classification.GBTClassifier
        else:
            given |= {"numTrees": passes}
            kind = regression.RandomForestRegressor if numbers else classification.RandomForestClassifier
        return kind(**(given | job["native"]))

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        """Scores of the whole model, in the order of the rows."""
        import numpy as np
        from pyspark.ml.functions import vector_to_array

        found = self._model.transform(self._vectors(part))
        if self.job["task"] == "regression":
            scores = found.select("row", "prediction").orderBy("row").toPandas()["prediction"].to_numpy()
        else:
            chances = found.select("row", vector_to_array("probability").alias("chances")).orderBy("row").toPandas()
            scores = np.stack(chances["chances"].to_list())
            scores = scores[:, 1] if self.job["task"] == "binary" else scores
        return [scores for _ in passes]

    def workers(self) -> list[dict[str, Any]]:
        """Its executors. RuntimeError where fewer than asked for are there: the figures would be of another work."""
        context = self._spark.sparkContext._jsc.sc()
        own = str(context.env().blockManager().blockManagerId().hostPort())
        infos = [one for one in context.statusTracker().getExecutorInfos() if f"{one.host()}:{one.port()}" != own]
        if len(infos) != self.job["workers"]:
            raise RuntimeError(f"{len(infos)} executors of {self.job['workers']} are in the cluster")
        return [{"rank": place, "pid": os.getpid(), "port": int(one.port()), "devices": None}
                for place, one in enumerate(infos)]  # fmt: skip

    def memory_elsewhere(self) -> int:
        return 0 if self.job["master"] is None else memory_of_executors(self._spark)

    def close(self) -> None:
        self._watch.end()
        self._spark.stop()
