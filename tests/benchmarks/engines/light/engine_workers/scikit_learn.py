"""A linear score by gradient descent in numpy, for tests of what happens around an engine.

`native: {refused: X}` is refused; `native: {pause_s: X}` waits so long in each pass.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from .base import BaseEngine


class ScikitLearnEngine(BaseEngine):
    packages = ("scikit-learn",)

    def start(self) -> None:
        if "refused" in self.job["native"]:
            raise ValueError(f"refused is {self.job['native']['refused']}, expected nothing")

    def prepare(self, table: Any) -> None:
        self.table = table

    def fit(self, passes: int) -> list[tuple[int, float]]:
        rows, target = self.table.features["train"], self.table.target["train"]
        begun, weights, marks = time.monotonic(), np.zeros(rows.shape[1]), []
        self.kept = []
        for place in range(passes):
            time.sleep(self.job["native"].get("pause_s", 0.0))
            weights = weights - self.job["learning_rate"] * rows.T @ (rows @ weights - (target - 0.5)) / len(rows)
            self.kept.append(weights)
            marks.append((place + 1, time.monotonic() - begun))
        return marks

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        return [self.table.features[part] @ self.kept[one - 1] + 0.5 for one in passes]
