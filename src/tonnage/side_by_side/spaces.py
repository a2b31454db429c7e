"""What a search may change at each engine unless the bench file says otherwise: published spaces.

Rounds and epochs are in none of them: they set what a trial costs, and stay as the file has them. Sources:

- XGBoost, LightGBM, CatBoost, the multi-layer perceptron: AutoGluon, tabular/src/autogluon/tabular/models/{xgboost,
  lgb,catboost,tabular_nn}/hyperparameters/searchspaces.py (read 2026-11-27); of the perceptron layers, width, learning
  rate and weight decay, since the others have no counterpart here. LightGBM's depth is that of XGBoost there: all
  trees here have both a depth and 2^depth leaves.
- scikit-learn: LightGBM's space, whose algorithm HistGradientBoosting follows (its user guide says so), less the share
  of columns.
- H2O: the grids of its AutoML, h2o-automl/src/main/java/ai/h2o/automl/modeling/{GBMStepsProvider,XGBoostSteps}.java
  (read 2026-11-27), without the booster DART; depth 17 there is 16 here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tonnage.side_by_side.spec import EngineKind
from tonnage.trials.parameters import TrialParameter

NATIVE: Final = "native."  # before the engine's own names


def _of(path: str, *choices: Any) -> TrialParameter:
    return TrialParameter(path=path, choices=choices)


def _range(path: str, low: float, high: float, *, log: bool = False, whole: bool = False) -> TrialParameter:
    return TrialParameter(path=path, low=low, high=high, log=log, whole=whole)


_RATE: Final = _range("learning_rate", 5e-3, 0.2, log=True)
_DEPTH: Final = _range("depth", 3, 10, whole=True)
_XGBOOST: Final = (
    _RATE, _DEPTH, _range("native.min_child_weight", 1, 5, whole=True), _range("native.gamma", 0, 5),
    _range("native.subsample", 0.5, 1), _range("native.colsample_bytree", 0.5, 1), _range("native.alpha", 0, 10),
    _range("native.lambda", 0, 10),
)  # fmt: skip
_LIGHTGBM: Final = (
    _RATE, _DEPTH, _range("native.feature_fraction", 0.75, 1), _range("native.min_data_in_leaf", 2, 60, whole=True),
    _range("native.num_leaves", 16, 96, whole=True),
)  # fmt: skip
_SCIKIT_LEARN: Final = (
    _RATE, _DEPTH, _range("native.min_samples_leaf", 2, 60, whole=True),
    _range("native.max_leaf_nodes", 16, 96, whole=True),
)  # fmt: skip
_CATBOOST: Final = (_RATE, _range("depth", 5, 8, whole=True), _range("native.l2_leaf_reg", 1, 5))
_NET: Final = (
    _range("learning_rate", 1e-4, 3e-2, log=True), _range("native.weight_decay", 1e-12, 0.1, log=True),
    _of("hidden", *([width] * layers for layers in (2, 3, 4) for width in (128, 256, 512))),
)  # fmt: skip
_H2O_GBM: Final = (
    _of("depth", *range(3, 17)), _of("learning_rate", 0.001, 0.005, 0.008, 0.01, 0.05, 0.08, 0.1, 0.5, 0.8),
    _of("native.min_rows", 1, 5, 10, 15, 30, 100), _of("native.sample_rate", 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    _of("native.col_sample_rate", 0.4, 0.7, 1.0), _of("native.col_sample_rate_per_tree", 0.4, 0.7, 1.0),
    _of("native.min_split_improvement", 1e-4, 1e-5),
)  # fmt: skip
_H2O_XGBOOST: Final = (
    _of("depth", 3, 6, 9, 12, 15), _of("native.min_rows", 1, 3, 5, 10, 15, 20),
    _of("native.sample_rate", 0.6, 0.8, 1.0), _of("native.col_sample_rate", 0.6, 0.8, 1.0),
    _of("native.col_sample_rate_per_tree", 0.7, 0.8, 0.9, 1.0),
    _of("native.reg_lambda", 0.001, 0.01, 0.1, 1.0, 10.0, 100.0), _of("native.reg_alpha", 0.001, 0.01, 0.1, 0.5, 1.0),
)  # fmt: skip

SPACES: Final[Mapping[EngineKind, tuple[TrialParameter, ...]]] = MappingProxyType({
    "xgboost": _XGBOOST, "lightgbm": _LIGHTGBM, "catboost": _CATBOOST, "scikit-learn": _SCIKIT_LEARN, "pytorch": _NET,
    "pytorch-fsdp": _NET,
    "h2o-gbm": _H2O_GBM, "h2o-xgboost": _H2O_XGBOOST, "sparkling-gbm": _H2O_GBM, "sparkling-xgboost": _H2O_XGBOOST,
})  # fmt: skip


def usual_space(engine: EngineKind, stated: frozenset[str]) -> tuple[TrialParameter, ...]:
    """The engine's space without the keys that the file states: those stay as they are."""
    return tuple(one for one in SPACES.get(engine, ()) if one.path not in stated)
