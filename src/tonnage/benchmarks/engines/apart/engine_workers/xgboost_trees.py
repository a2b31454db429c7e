"""XGBoost, method `hist`."""

from __future__ import annotations

import time
from typing import Any

from .base import BaseEngine

OBJECTIVES = {"binary": "binary:logistic", "multiclass": "multi:softprob", "regression": "reg:squarederror"}


class XGBoostEngine(BaseEngine):
    packages = ("xgboost", "xgboost-cpu")

    def start(self) -> None:
        import xgboost

        self._xgboost: Any = xgboost

    def prepare(self, table: Any) -> None:
        self.table = table
        self._data = self._xgboost.QuantileDMatrix(
            table.features["train"], table.target["train"], max_bin=self.job["bins"], nthread=self.job["threads"]
        )

    def fit(self, passes: int) -> list[tuple[int, float]]:
        job, times = self.job, []

        class BoostingClock(self._xgboost.callback.TrainingCallback):  # type: ignore[misc, name-defined]
            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                del model, epoch, evals_log
                times.append(time.monotonic())
                return False

        given = {
            "objective": OBJECTIVES[job["task"]], "tree_method": "hist", "max_depth": job["depth"],
            "max_bin": job["bins"], "eta": job["learning_rate"], "nthread": job["threads"], "seed": job["seed"],
            "device": "cuda:0" if self.on_gpu else "cpu", "verbosity": 1,
        }  # fmt: skip
        if job["task"] == "multiclass":
            given["num_class"] = self.table.classes
        begun = time.monotonic()
        self._model = self._xgboost.train(given | job["native"], self._data, passes, callbacks=[BoostingClock()])
        return [(place + 1, at - begun) for place, at in enumerate(times)]

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        rows = self._xgboost.DMatrix(self.table.features[part], nthread=self.job["threads"])
        return [self._model.predict(rows, iteration_range=(0, one)) for one in passes]
