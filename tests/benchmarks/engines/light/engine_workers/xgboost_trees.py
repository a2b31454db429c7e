"""The same light engine under another name."""

from .scikit_learn import Engine

__all__ = ["Engine"]
