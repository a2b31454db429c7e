"""H2O AutoML: it searches by itself, on the training rows alone, within the budget that the bench gives every engine.

A share of the training rows is held out for its leaderboard, as trials of the others have it; the validation and test
rows of the bench are not among what it sees. No cross-validation (each model would be trained several times over) and
no stacked ensembles of models. Source of the options: H2O-3 user guide, «AutoML: Automatic Machine Learning».
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from . import h2o_alone, h2o_sparkling
from .h2o_models import H2OEngine
from .table import BenchTable, quality

SORTED_BY = {"auc": "AUC", "rmse": "RMSE", "accuracy": "logloss"}


class AutoML(H2OEngine):
    """A search as the training: `fit` takes models for passes."""

    def warm_up(self) -> None:
        """One small model."""
        self._search(models=1, seconds=None)

    def prepare(self, table: Any) -> None:
        """With the part `held`: a share of the training rows, by the seed of the bench."""
        split = object.__new__(BenchTable)
        order = np.random.default_rng(self.job["seed"]).permutation(table.rows)
        ends = table.rows - round(table.rows * self.job["held_fraction"])
        split.features, split.target = dict(table.features), dict(table.target)
        for part, rows in (("train", order[:ends]), ("held", order[ends:])):
            split.features[part] = table.features["train"][rows]
            split.target[part] = table.target["train"][rows]
        super().prepare(split)

    def fit(self, passes: int) -> list[tuple[int, float]]:
        seconds = self.job["search_s"]
        begun = time.monotonic()
        self._search(models=None if seconds is not None else passes, seconds=seconds)
        taken = time.monotonic() - begun
        return [(len(self._trained()), taken)]

    def _search(self, models: int | None, seconds: float | None) -> None:
        from h2o.automl import H2OAutoML

        train = self.frames["train"]
        columns = [name for name in train.columns if name not in ("target", "row")]
        self._begun_at = time.time()
        given = {
            "max_models": models, "max_runtime_secs": None if seconds is None else max(round(seconds), 1),
            "seed": self.job["seed"] + 1, "nfolds": 0, "sort_metric": SORTED_BY[self.job["metric"]],
            "exclude_algos": ["StackedEnsemble"], "verbosity": None,
        }  # fmt: skip
        self._found = H2OAutoML(**(given | self.job["native"]))
        self._found.train(x=columns, y="target", training_frame=train, validation_frame=self.frames["held"],
                          leaderboard_frame=self.frames["held"])  # fmt: skip
        if self._found.leader is None:
            raise RuntimeError("no model of AutoML came to its end within the budget")
        self._model = self._found.leader

    def _trained(self) -> list[str]:
        """Every model, the best on the rows held out first."""
        board = self._found.leaderboard.as_data_frame(use_multi_thread=False)
        return [str(name) for name in board["model_id"]]

    def known_curve(self) -> list[list[float]] | None:
        """Each time that a better model was done: models so far, seconds, its quality on the validation rows."""
        import h2o

        places = {name: place for place, name in enumerate(self._trained())}
        models = sorted((h2o.get_model(name) for name in places), key=lambda one: one.end_time)
        points, best = [], len(places)
        for number, model in enumerate(models, start=1):
            if places[model.model_id] > best:
                continue
            best, self._model = places[model.model_id], model
            (score,) = self.predict_at([number], "validation")
            seconds = max(model.end_time / 1000.0 - self._begun_at, 0.0)
            points.append([number, seconds, quality(self.job["metric"], self.table.target["validation"], score)])
        self._model = self._found.leader
        return points


class AloneAutoML(AutoML, h2o_alone.H2OAloneEngine):
    """In a Java process of its own."""


class SparklingAutoML(AutoML, h2o_sparkling.SparklingEngine):
    """On the nodes of Sparkling Water."""
