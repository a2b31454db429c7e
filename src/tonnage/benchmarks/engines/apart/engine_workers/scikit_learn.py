"""scikit-learn's HistGradientBoosting."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stdout
from itertools import islice
from typing import Any

from .base import BaseEngine


class _TreeTimes(io.StringIO):
    """Notes when each tree is reported: the estimator prints a line a tree and has no callback."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = time.monotonic()
        self.times: list[float] = []

    def write(self, text: str) -> int:
        if "max depth" in text:  # the line that ends a round
            self.times.append(time.monotonic() - self.begun)
        return len(text)


class ScikitLearnEngine(BaseEngine):
    packages = ("scikit-learn",)

    def start(self) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        regression = self.job["task"] == "regression"
        self._make: Any = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier

    def prepare(self, table: Any) -> None:
        self.table = table

    def fit(self, passes: int) -> list[tuple[int, float]]:
        job = self.job
        given = {
            "max_iter": passes, "max_depth": job["depth"], "max_leaf_nodes": 2 ** job["depth"], "early_stopping": False,
            "max_bins": min(job["bins"], 255), "learning_rate": job["learning_rate"], "random_state": job["seed"],
        }  # fmt: skip
        self._model = self._make(**(given | job["native"]), verbose=2)
        seen = _TreeTimes()
        with redirect_stdout(seen):
            self._model.fit(self.table.features["train"], self.table.target["train"])
        if len(seen.times) < passes:
            raise RuntimeError(f"scikit-learn reported {len(seen.times)} of {passes} rounds")
        return [(place + 1, seconds) for place, seconds in enumerate(seen.times[:passes])]

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        features = self.table.features[part]
        regression = self.job["task"] == "regression"
        staged = self._model.staged_predict(features) if regression else self._model.staged_predict_proba(features)
        every = {place + 1: score for place, score in enumerate(islice(staged, max(passes))) if place + 1 in passes}
        return [every[one][:, 1] if self.job["task"] == "binary" else every[one] for one in passes]
