"""One search for every fit: parameters that bring predictions nearest to measured rows, inside their ranges.

It moves one parameter after the other by a factor that shrinks (Hooke and Jeeves 1961). Losses here are sums of
absolute errors that stop growing at `CAP`: they have creases and plateaus, on which searches by gradient stall.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Final, Protocol

import numpy as np

from tonnage.sizing.assumption_table import Assumption
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

CAP: Final = 0.7  # log error beyond which a row counts no more: a misread row must not pull a parameter

Values = Mapping[str, float]


class CaseBatch(Protocol):
    """Measured rows laid out once, so that one evaluation of the formulas predicts them all."""

    def log_errors(self, values: Values) -> Array:
        """log(predicted / measured) of every case under these parameters; NaN where nothing is predicted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSchedule:
    """How a search moves.

    `factors`: up and down, the largest first. `rounds`: at most this many over all parameters with each factor (None:
    as many as help). `least_gain`: what a move must win of the loss to be kept; `least_round_gain`: what a round must
    win to be followed by another with its factor. `leaps`: after a round all parameters move together as far again as
    the round has moved them, since parameters that trade against one another lie in a narrow valley.
    """

    factors: tuple[tuple[float, float], ...]
    rounds: int | None = None
    least_gain: float = 0.0
    least_round_gain: float = 0.0
    leaps: bool = False


def log_factors(*steps: float) -> tuple[tuple[float, float], ...]:
    """Factors that move a logarithm up and down by each step.

    >>> [round(up * down, 12) for up, down in log_factors(0.4, 0.2)]
    [1.0, 1.0]
    """
    return tuple((math.exp(step), math.exp(-step)) for step in steps)


def fit_values(
    batch: CaseBatch,
    parameters: Sequence[Assumption],
    begin: Values,
    *,
    weights: Array,
    schedule: SearchSchedule,
    rounded: float = 0.0,
    penalty: Callable[[Values], float] = lambda _: 0.0,
) -> dict[str, float]:
    """The values of `parameters` with the least misfit to a batch, and least `penalty`, found from `begin`."""
    return search(
        lambda values: misfit(batch.log_errors(values), weights, rounded=rounded) + penalty(values),
        begin,
        parameters,
        schedule,
    )


def misfit(errors: Array, weights: Array, *, rounded: float = 0.0) -> float:
    """Weighted sum of absolute log errors, each at most `CAP`, which one that is not known counts.

    Below `rounded` an error counts as its square: a search by coordinates stalls on sharp creases.
    """
    size = np.sqrt(errors**2 + rounded**2) if rounded else np.abs(errors)
    return float(np.sum(weights * np.minimum(np.nan_to_num(size, nan=CAP), CAP)))


def search(
    loss: Callable[[Values], float], begin: Values, parameters: Sequence[Assumption], schedule: SearchSchedule
) -> dict[str, float]:
    """The values of `parameters` inside their ranges where moves of `schedule` no longer lower the loss. The same
    arguments give the same values."""
    loss = _remembered(loss)
    values = {one.name: one.inside(begin[one.name]) for one in parameters}
    best = loss(values)
    for factors in schedule.factors:
        for _ in count() if schedule.rounds is None else range(schedule.rounds):
            before, at_first = values, best
            values, best = _round(loss, values, best, parameters, factors, schedule.least_gain)
            if schedule.leaps and best < at_first:
                leap = {one.name: one.inside(values[one.name] ** 2 / before[one.name]) for one in parameters}
                found = loss(leap)
                if found < best - schedule.least_gain:
                    values, best = leap, found
            if at_first - best <= schedule.least_round_gain:
                break
    return values


def _remembered(loss: Callable[[Values], float]) -> Callable[[Values], float]:
    """`loss`, worked out once for the same values: where no move helps a round tries those of the one before again."""
    found: dict[tuple[float, ...], float] = {}

    def remembered(values: Values) -> float:
        key = tuple(values.values())
        if key not in found:
            found[key] = loss(values)
        return found[key]

    return remembered


def _round(
    loss: Callable[[Values], float],
    values: dict[str, float],
    best: float,
    parameters: Iterable[Assumption],
    factors: tuple[float, float],
    least_gain: float,
) -> tuple[dict[str, float], float]:
    """Each parameter in turn up, or else down, where that lowers the loss."""
    for one in parameters:
        for factor in factors:
            trial = {**values, one.name: one.inside(values[one.name] * factor)}
            found = loss(trial)
            if found < best - least_gain:
                values, best = trial, found
                break
    return values, best


def shared_weights(keys: Sequence[object]) -> Array:
    """A weight for each row: those that share a key weigh as the square root of their number together, since many rows
    of one table are no independent evidence.

    >>> shared_weights(["a", "a", "a", "a", "b"]).tolist()
    [0.5, 0.5, 0.5, 0.5, 1.0]
    """
    counts: dict[object, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return np.array([1.0 / math.sqrt(counts[key]) for key in keys])
