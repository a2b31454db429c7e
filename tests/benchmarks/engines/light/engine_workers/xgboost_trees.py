"""The same light engine under another name."""

from .scikit_learn import ScikitLearnEngine as XGBoostEngine

__all__ = ["XGBoostEngine"]
