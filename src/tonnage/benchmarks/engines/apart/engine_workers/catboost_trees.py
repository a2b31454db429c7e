"""CatBoost."""

from __future__ import annotations

import time
from typing import Any

from .base import BaseEngine

LOSSES = {"binary": "Logloss", "multiclass": "MultiClass", "regression": "RMSE"}


class CatBoostEngine(BaseEngine):
    packages = ("catboost",)

    def start(self) -> None:
        import catboost

        self._catboost: Any = catboost

    def prepare(self, table: Any) -> None:
        self.table = table
        self._data = self._catboost.Pool(
            table.features["train"], table.target["train"], thread_count=self.job["threads"]
        )

    def fit(self, passes: int) -> list[tuple[int, float]]:
        job, times = self.job, []

        class IterationClock:
            def after_iteration(self, info: Any) -> bool:
                del info
                times.append(time.monotonic())
                return True

        given = {
            "iterations": passes, "depth": job["depth"], "border_count": job["bins"] - 1, "verbose": False,
            "learning_rate": job["learning_rate"], "thread_count": job["threads"], "random_seed": job["seed"],
            "loss_function": LOSSES[job["task"]], "allow_writing_files": False,
            "task_type": "GPU" if self.on_gpu else "CPU",
        }  # fmt: skip
        self._model = self._catboost.CatBoost(given | job["native"])
        begun = time.monotonic()
        self._model.fit(self._data, callbacks=None if self.on_gpu else [IterationClock()])
        if self.on_gpu:  # CatBoost takes no callbacks on GPUs: only the end is known
            return [(passes, time.monotonic() - begun)]
        return [(place + 1, at - begun) for place, at in enumerate(times)]

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        kind = "RawFormulaVal" if self.job["task"] == "regression" else "Probability"
        rows, threads = self.table.features[part], self.job["threads"]
        scores = [
            self._model.predict(rows, prediction_type=kind, ntree_end=one, thread_count=threads) for one in passes
        ]
        return [score[:, 1] for score in scores] if self.job["task"] == "binary" else scores
