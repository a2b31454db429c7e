"""A predicted figure with its 80 % interval and where it comes from."""

from __future__ import annotations

from collections.abc import Iterable
from math import exp, hypot, log
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tonnage.values import dataclass

Array = NDArray[np.float64]
Num = float | Array  # formulas take one candidate or a column of candidates alike
Basis = Literal["computed", "measured", "assumed"]


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, ascending. `np.unique` without an index asked for imports `numpy.ma`, which takes as long as
    planning a training.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    return np.asarray(np.unique(values, return_index=True)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A prediction: the value, an 80 % interval around it, and its basis. The unit is in the name that holds it."""

    value: float
    low: float
    high: float
    basis: Basis = "computed"

    def scaled(self, factor: float) -> Figure:
        """The same figure in another unit, or for `factor` times the work (factor >= 0)."""
        return Figure(value=self.value * factor, low=self.low * factor, high=self.high * factor, basis=self.basis)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Relative 80 % interval of a kind of prediction: low = value x low_factor, high = value x high_factor."""

    low_factor: float
    high_factor: float

    def above(self, value: float, floor: float) -> Spread:
        """The same interval of `value`, cut where it would pass the least that is possible."""
        least = min(1.0, floor / value)
        return Spread(low_factor=max(self.low_factor, least), high_factor=max(self.high_factor, 1.0))

    def beside(self, other: Spread, share: float) -> Spread:
        """The same interval where a `share` of the figure goes with something unknown by `other`, independently."""
        low = hypot(log(self.low_factor), share * log(other.low_factor))
        high = hypot(log(self.high_factor), share * log(other.high_factor))
        return Spread(low_factor=exp(-low), high_factor=exp(high))

    def around(self, value: float, basis: Basis = "computed") -> Figure:
        return Figure(value=value, low=value * self.low_factor, high=value * self.high_factor, basis=basis)


def column(value: Num, rows: int) -> Array:
    """`value` as a column of `rows` float64 entries."""
    filled = np.empty(rows)
    filled[:] = value
    return filled


def add_figures(figures: Iterable[Figure | None]) -> Figure | None:
    """The sum, its interval as wide as if all were off together; None where one is not known, 0 of no figures."""
    known = []
    for figure in figures:
        if figure is None:
            return None
        known.append(figure)
    return Figure(
        value=sum(one.value for one in known),
        low=sum(one.low for one in known),
        high=sum(one.high for one in known),
        basis="assumed" if any(one.basis == "assumed" for one in known) else "computed",
    )
