"""XGBoost on Ray Train (`XGBoostTrainer`): each worker makes histograms of its rows, which they sum (rabit)."""

from __future__ import annotations

from typing import Any

from . import xgboost_trees
from .ray_training import RayEngine


class RayXGBoostLearner(xgboost_trees.XGBoostEngine):
    """XGBoost on one share, within the communicator that Ray Train has opened."""

    def begin(self) -> None:
        self.start()

    def together(self) -> None:
        """Wait for the others."""
        import numpy as np

        self._xgboost.collective.allreduce(np.zeros(1), self._xgboost.collective.Op.SUM)

    def model(self) -> bytes:
        """The trees, in XGBoost's own binary form."""
        return bytes(self._model.save_raw("ubj"))

    def restore(self, table: Any, model: bytes) -> None:
        """To predict with what another process trained."""
        self.table = table
        self._model = self._xgboost.Booster(model_file=bytearray(model))


class RayXGBoostEngine(RayEngine):
    packages = ("ray", "xgboost", "xgboost-cpu")
    trainer = "ray.train.xgboost:XGBoostTrainer"
    learner = RayXGBoostLearner

    def _take(self, model: Any) -> None:
        self._alone = RayXGBoostLearner(self.job)
        self._alone.begin()
        self._alone.restore(self.table, model)

    def predict_at(self, passes: list[int], part: str) -> list[Any]:
        return self._alone.predict_at(passes, part)
