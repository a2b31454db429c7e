"""Lives and absences of spot drawn from a hazard model: its laws for one zone, and whole windows of made-up zones."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tonnage.pricing.renewal import Lifetime, by_age
from tonnage.spot_instances.hazards import AGES_H, Direction, HazardModel
from tonnage.spot_instances.job import TICK_H

if TYPE_CHECKING:  # a plan draws nothing, and `numpy.random` takes long to import
    from numpy.random import Generator

Hours = NDArray[np.float64]
Draw = Callable[["Generator", NDArray[np.intp]], Hours]


def lifetime(side: Direction, deviations: float, times: float = 1.0) -> Lifetime:
    """The law of a zone so many standard deviations from the typical one, its hazard times a factor."""
    return by_age(AGES_H, _hazards(side, deviations, times))


def _hazards(side: Direction, deviations: float, times: float = 1.0) -> tuple[float, ...]:
    factor = exp(side.log_mean + deviations * side.log_spread) * times
    return tuple(factor * value for value in side.per_h)


def mean_h(side: Direction, deviations: float, times: float = 1.0) -> float:
    """Mean hours: ∫ S of a hazard that is constant by bucket."""
    hazards = _hazards(side, deviations, times)
    total, alive = 0.0, 1.0
    for begin, end, hazard in zip(AGES_H, [*AGES_H[1:], float("inf")], hazards, strict=True):
        stays = exp(-hazard * (end - begin))
        total += alive * (1 - stays) / hazard
        alive *= stays
    return total


def draws(side: Direction, nodes: float, factors: Hours) -> Draw:
    """Lifetimes by inverting the cumulative hazard, each zone with its own factor."""
    hazards = np.array(_hazards(side, 0.0, nodes))
    starts = np.array(AGES_H)
    before = np.concatenate([[0.0], np.cumsum(np.diff(starts) * hazards[:-1])])

    def draw(random: Generator, rows: NDArray[np.intp]) -> Hours:
        need = random.exponential(size=len(rows)) / factors[rows]
        place = np.searchsorted(before, need, side="right") - 1
        return np.asarray(starts[place] + (need - before[place]) / hazards[place])

    return draw


def drawn_windows(model: HazardModel, *, ticks: int, count: int, seed: int, nodes: float = 1.0) -> NDArray[np.bool_]:
    """Windows of zones drawn from a model, each met at a random moment of its history; [window, tick, 1]."""
    random = np.random.default_rng(seed)
    up_factor = np.exp(random.normal(size=count) * model.up.log_spread)
    down_factor = np.exp(random.normal(size=count) * model.down.log_spread)
    laws = (draws(model.down, 1.0, down_factor), draws(model.up, nodes, up_factor))
    span_h = ticks * TICK_H
    warm_h = 4 * span_h
    moments = warm_h + np.arange(ticks) * TICK_H
    up = np.zeros((count, ticks, 1), np.bool_)
    for row in range(count):
        clock, state = 0.0, int(random.integers(2))
        where = np.array([row])
        while clock < warm_h + span_h:
            length = float(laws[state](random, where)[0])
            if state:
                up[row, (moments >= clock) & (moments < clock + length), 0] = True
            clock, state = clock + length, 1 - state
    return up
