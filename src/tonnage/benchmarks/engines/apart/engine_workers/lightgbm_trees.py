"""LightGBM."""

from __future__ import annotations

import time
from typing import Any

from .base import BaseEngine

OBJECTIVES = {"binary": "binary", "multiclass": "multiclass", "regression": "regression"}


class LightGBMEngine(BaseEngine):
    packages = ("lightgbm",)

    def start(self) -> None:
        import lightgbm

        self._lightgbm: Any = lightgbm

    def prepare(self, table: Any) -> None:
        self.table = table
        given = {"max_bin": min(self.job["bins"], 255), "num_threads": self.job["threads"], "verbosity": -1}
        self._data = self._lightgbm.Dataset(
            table.features["train"], table.target["train"], params=given | self.job["native"]
        ).construct()  # with all parameters: some of training decide which columns are kept

    def fit(self, passes: int) -> list[tuple[int, float]]:
        job, times = self.job, []

        def clock(environment: Any) -> None:
            del environment
            times.append(time.monotonic())

        given = {
            "objective": OBJECTIVES[job["task"]], "max_depth": job["depth"], "num_leaves": 2 ** job["depth"],
            "max_bin": min(job["bins"], 255), "learning_rate": job["learning_rate"], "num_threads": job["threads"],
            "seed": job["seed"], "verbosity": -1, "device_type": "gpu" if self.on_gpu else "cpu",
        }  # fmt: skip
        if job["task"] == "multiclass":
            given["num_class"] = self.table.classes
        begun = time.monotonic()
        self._model = self._lightgbm.train(given | job["native"], self._data, passes, callbacks=[clock])
        return [(place + 1, at - begun) for place, at in enumerate(times)]

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        features = self.table.features[part]
        return [self._model.predict(features, num_iteration=one, num_threads=self.job["threads"]) for one in passes]
