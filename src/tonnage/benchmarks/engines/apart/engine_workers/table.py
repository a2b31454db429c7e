"""The rows as the workers read them, and the measures of quality, the same code for every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

PARTS = ("train", "validation", "test")


class BenchTable:
    """Features (float32) and target of the parts; those of a search have no `test`."""

    def __init__(self, folder: Path) -> None:
        parts = [part for part in PARTS if part != "test" or (folder / "test_target.npy").is_file()]
        self.features = {part: np.load(folder / f"{part}_features.npy") for part in parts}
        self.target = {part: np.load(folder / f"{part}_target.npy") for part in parts}

    @property
    def rows(self) -> int:
        return len(self.target["train"])

    @property
    def classes(self) -> int:
        """Classes of a classification: the largest number in any part, and one."""
        return int(max(part.max() for part in self.target.values())) + 1

    def first(self, rows: int) -> BenchTable:
        """The same with the first training rows alone, for a warm-up."""
        short = object.__new__(BenchTable)
        short.features = self.features | {"train": self.features["train"][:rows]}
        short.target = self.target | {"train": self.target["train"][:rows]}
        return short


def auc(target: Any, score: Any) -> float:
    """Area under the ROC curve from the ranks of the scores, ties at their mean rank (Mann-Whitney U).

    Raises ValueError where only one class is there.
    """
    positive = target > 0.5
    count = int(positive.sum())
    if count in (0, len(target)):
        raise ValueError("the AUC needs rows of both classes")
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2.0)[inverse]
    return float((ranks[positive].sum() - count * (count + 1) / 2.0) / (count * (len(target) - count)))


def quality(metric: str, target: Any, score: Any) -> float:
    """The metric of scores: probabilities of the second class, of all classes by column, or predicted values."""
    if metric == "auc":
        return auc(target, score)
    if metric == "rmse":
        return float(np.sqrt(np.mean((np.asarray(score, dtype=np.float64) - target) ** 2)))
    named = (score > 0.5).astype(np.int64) if score.ndim == 1 else score.argmax(axis=1)
    return float(np.mean(named == target.astype(np.int64)))
