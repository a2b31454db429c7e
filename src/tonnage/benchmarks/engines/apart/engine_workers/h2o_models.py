"""What H2O alone and H2O on Spark share: models, their own scores on the way, predictions."""

from __future__ import annotations

import re
from typing import Any

from .base import BaseEngine

SCORES = 10  # times that H2O scores the validation rows on the way, within its training time
SCORED = {"auc": "validation_auc", "rmse": "validation_rmse", "accuracy": "validation_classification_error"}
_DURATION = re.compile(r"(?:(\d+) min\s*)?([\d.]+) sec")


def duration_s(text: str) -> float:
    """Seconds of a duration as H2O prints it.

    >>> duration_s(" 1.204 sec"), duration_s(" 1 min  2.500 sec")
    (1.204, 62.5)
    """
    found = _DURATION.search(text)
    if found is None:
        raise ValueError(f"H2O printed the duration '{text}'")
    return 60.0 * int(found[1] or 0) + float(found[2])


class H2OEngine(BaseEngine):
    """Trains through the Python client; `frames` holds an H2OFrame a part."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__(job)
        self.frames: dict[str, Any] = {}

    def fit(self, passes: int) -> list[tuple[int, float]]:
        import time

        begun = time.monotonic()
        self._model = self._estimator(passes)
        columns = [name for name in self.frames["train"].columns if name not in ("target", "row")]
        self._model.train(x=columns, y="target", training_frame=self.frames["train"],
                          validation_frame=self.frames["validation"])  # fmt: skip
        return [(passes, time.monotonic() - begun)]

    def _estimator(self, passes: int) -> Any:
        from h2o.estimators import H2OGradientBoostingEstimator, H2OXGBoostEstimator

        job = self.job
        given = {
            "ntrees": passes, "max_depth": job["depth"], "learn_rate": job["learning_rate"], "seed": job["seed"] + 1,
            "score_tree_interval": max(passes // SCORES, 1), "stopping_rounds": 0,
        }  # fmt: skip
        if job["engine"].endswith("gbm"):
            return H2OGradientBoostingEstimator(**(given | {"nbins": job["bins"]} | job["native"]))
        backend = {"backend": "gpu", "gpu_id": 0} if self.on_gpu else {"backend": "cpu"}
        return H2OXGBoostEstimator(
            **(given | {"max_bins": job["bins"], "tree_method": "hist"} | backend | job["native"])
        )

    def known_curve(self) -> list[list[float]] | None:
        history = self._model.scoring_history()
        name, metric = SCORED[self.job["metric"]], self.job["metric"]
        points = []
        for row in history.to_dict("records"):
            if row["number_of_trees"] > 0 and row[name] == row[name]:
                value = 1.0 - row[name] if metric == "accuracy" else row[name]
                points.append([int(row["number_of_trees"]), duration_s(row["duration"]), float(value)])
        return points

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        del passes  # the whole model: the way there is in its scoring history
        frame = self.frames[part]
        found = self._model.predict(frame).as_data_frame(use_multi_thread=False)
        if "row" in frame.columns:  # Spark deals rows out in an order of its own
            order = frame["row"].as_data_frame(use_multi_thread=False)["row"].argsort()
            found = found.iloc[order.to_numpy()]
        if self.job["task"] == "regression":
            return [found["predict"].to_numpy()]
        classes = found.drop(columns="predict").to_numpy()
        return [classes[:, 1] if self.job["task"] == "binary" else classes]

    def pandas_frame(self, part: str) -> Any:
        """A part as pandas, the target in its own column."""
        import pandas

        features = self.table.features[part]
        frame = pandas.DataFrame(features, columns=[f"f{place}" for place in range(features.shape[1])])
        frame["target"] = self.table.target[part]
        return frame
