"""At which level an interval must be taken so that it holds what its sources could not have predicted of one another.

Quantiles of pooled residuals say what a further row of the same sources does. A source that is new errs in its own
way, more than that where sources are few and differ, less where the sources that are left err more than those with
most rows. So the level is calibrated (Loh 1987, JASA 82:155, «Calibrating confidence coefficients», with whole sources
in place of a bootstrap): each source is held against the interval of the others, and the level is the least at which
those intervals hold the share that is asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Column: TypeAlias = NDArray[np.float64]

FEWEST_SOURCES: Final = 3  # two do not show how sources differ
FEWEST_ROWS: Final = 50.0  # as many of equal weight tell the share that is held to 6 points
LEVELS: Final = np.linspace(0.50, 0.99, 50)  # tried; 0.99 where none holds enough
_ROUNDING: Final = 1e-12


def calibrated_level(
    values: Sequence[float], weights: Sequence[float], sources: Sequence[Hashable], wanted: float
) -> float | None:
    """The least of `LEVELS` at which central intervals made without a source hold `wanted` of the weight, all sources
    together. None where there are fewer than three sources, or rows that weigh no more than 50 equal ones.

    What is held grows with the level, since the intervals of one source lie inside one another. A further row is one
    of n + 1, of which `wanted` are to be held.

    >>> calibrated_level([0.0, 0.1, -0.1] * 2, [1.0] * 6, ["a", "a", "a", "b", "b", "b"], 0.8) is None
    True
    """
    codes = {source: code for code, source in enumerate(dict.fromkeys(sources))}
    total, squared = float(np.sum(weights)), float(np.sum(np.square(weights)))
    if len(codes) < FEWEST_SOURCES or total**2 < FEWEST_ROWS * squared:
        return None
    wanted = wanted * total * (1.0 + squared / total**2)
    order = np.argsort(np.asarray(values), kind="stable")
    residuals = np.asarray(values, dtype=np.float64)[order]
    shares = np.asarray(weights, dtype=np.float64)[order]
    source = np.array([codes[one] for one in sources])[order]
    parts = [_Held(residuals, shares, source == code) for code in range(len(codes))]
    low, high = 0, len(LEVELS) - 1
    while low < high:
        middle = (low + high) // 2
        if sum(part.weight_inside(float(LEVELS[middle])) for part in parts) >= wanted - _ROUNDING:
            high = middle
        else:
            low = middle + 1
    return float(LEVELS[low])


class _Held:
    """One source's rows against the interval of all others; residuals come in ascending order."""

    def __init__(self, residuals: Column, weights: Column, held: NDArray[np.bool_]) -> None:
        self._own, self._own_weights = residuals[held], weights[held]
        self._others = residuals[~held]
        self._reached = np.cumsum(weights[~held])

    def weight_inside(self, level: float) -> float:
        """Weight of the held rows that a central interval of `level` holds. A prediction lies in its own interval."""
        tail = (1.0 - level) / 2.0 * self._reached[-1]
        last = len(self._others) - 1
        above = np.searchsorted(self._reached, self._reached[-1] - tail - _ROUNDING)
        below = np.searchsorted(self._reached, tail + _ROUNDING)
        low, high = min(self._others[min(below, last)], 0.0), max(self._others[min(above, last)], 0.0)
        return float(self._own_weights[(self._own >= low) & (self._own <= high)].sum())
