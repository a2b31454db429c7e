"""What a job believes about its zone: hypotheses with weights, sharpened by what it has seen of spot itself.

A hypothesis is a pair of factors on the model's hazards (up, down). Ages are counted from the changes the job saw; of
the first run only how long it has gone on is known, so its age follows the law of a run met at a random moment.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.spot_instances.engine import Flags
from tonnage.spot_instances.hazards import AGES_H, BUCKETS, Direction, HazardModel
from tonnage.spot_instances.job import TICK_H
from tonnage.values import dataclass

Array = NDArray[np.float64]
Index = NDArray[np.int32]
UP_POINTS: Final = (-3.2, -2.0, -1.2, -0.4, 0.4, 1.2)  # standard deviations from the mean of the log factor
DOWN_POINTS: Final = (-1.8, -0.6, 0.6, 1.8)
_FLOOR: Final = 0.02  # weight kept for each point whatever the model says
_TAIL_H: Final = 400.0
_NEVER: Final = 1e-290


@dataclass(frozen=True, slots=True, kw_only=True)
class HazardSide:
    """One direction of the hypotheses: hazards [point, bucket], prior log weights, and tables by age in ticks."""

    per_h: Array  # [point, bucket]
    log_prior: Array  # [point]
    stay: Array  # [point, age]: log chance that a run whose start was seen lasts to this age
    leave: Array  # [point, age]: log chance that it then ends
    first_stay: Array  # the same of the first run, by the time since the start
    first_leave: Array
    bucket: Index  # [age]: of a run whose start was seen
    first_bucket: Index  # [age]: the middle one of what the first run may be in
    mean_h: Array  # [point]


def hypotheses(model: HazardModel, ticks: int) -> tuple[HazardSide, HazardSide]:
    """The sides up and down, with tables for `ticks` ticks."""
    return _side(model.up, UP_POINTS, ticks), _side(model.down, DOWN_POINTS, ticks)


def _side(direction: Direction, points: tuple[float, ...], ticks: int) -> HazardSide:
    places = np.array(points)
    prior = np.exp(-(places**2) / 2)
    prior = prior / prior.sum() + _FLOOR
    factors = np.exp(direction.log_mean + direction.log_spread * places)
    per_h = factors[:, None] * np.array(direction.per_h)[None, :]
    count = int(_TAIL_H / TICK_H) + ticks
    ages_h = np.arange(count) * TICK_H
    buckets = np.searchsorted(AGES_H, ages_h + 1e-9, side="right") - 1
    hazard = per_h[:, buckets] * TICK_H
    survive = np.concatenate([np.zeros((len(places), 1)), -np.cumsum(hazard, axis=1)], axis=1)
    alive = np.exp(survive)
    rest = np.maximum(_rest(alive, per_h[:, -1]), _NEVER)
    first_stay = np.log(rest / rest[:, :1])
    ends = np.clip(1.0 - rest[:, 1:] / rest[:, :-1], 1e-12, 1.0)
    return HazardSide(
        per_h=per_h,
        log_prior=np.log(prior / prior.sum()),
        stay=survive[:, : ticks + 1],
        leave=np.log(-np.expm1(-hazard))[:, : ticks + 1],
        first_stay=first_stay[:, : ticks + 1],
        first_leave=np.log(ends)[:, : ticks + 1],
        bucket=buckets[: ticks + 1].astype(np.int32),
        first_bucket=_middle_bucket(rest[len(places) // 2], buckets, ticks),
        mean_h=rest[:, 0] * TICK_H,
    )


def _rest(alive: Array, last_per_h: Array) -> Array:
    """Σ of `alive` from each age on, with the exponential tail behind the table."""
    tail = alive[:, -1] / np.maximum(-np.expm1(-last_per_h * TICK_H), 1e-9)
    return np.asarray(np.cumsum(alive[:, :-1][:, ::-1], axis=1)[:, ::-1] + tail[:, None])


def _middle_bucket(rest: Array, buckets: NDArray[np.intp], ticks: int) -> Index:
    """For each time since the start: the bucket of the median age, the ages weighing as they survive."""
    places = [int(np.searchsorted(-rest, -rest[seen] / 2)) for seen in range(ticks + 1)]
    return np.array([buckets[min(place, len(buckets) - 1)] for place in places], np.int32)


class ZoneBelief:
    """Weights of the hypotheses and the age of the current run, of every zone of every window."""

    def __init__(self, model: HazardModel, windows: int, zones: int, ticks: int) -> None:
        self.up_side, self.down_side = hypotheses(model, ticks)
        shape = (windows, zones)
        self.age = np.zeros(shape, np.int32)  # ticks since the current run began (or since the start)
        self.first = np.ones(shape, np.bool_)
        self.was_up = np.zeros(shape, np.bool_)
        self.log_up = np.broadcast_to(self.up_side.log_prior, (*shape, len(UP_POINTS))).copy()
        self.log_down = np.broadcast_to(self.down_side.log_prior, (*shape, len(DOWN_POINTS))).copy()
        self.started = False

    def see(self, up: Flags) -> None:
        """Take in one tick."""
        if not self.started:
            self.started, self.was_up = True, up.copy()
            return
        changed = up != self.was_up
        if changed.any():
            self._close(changed & self.was_up, self.log_up, self.up_side)
            self._close(changed & ~self.was_up, self.log_down, self.down_side)
        self.age = np.where(changed, 0, self.age + 1).astype(np.int32)
        self.first &= ~changed
        self.was_up = up.copy()

    def _close(self, ended: Flags, log: Array, side: HazardSide) -> None:
        """A run has ended: its length is evidence."""
        age, first = self.age[ended], self.first[ended][:, None]
        known = (side.stay[:, age] + side.leave[:, age]).T
        met = (side.first_stay[:, age] + side.first_leave[:, age]).T
        log[ended] += np.where(first, met, known)

    def weights(self, rows: NDArray[np.intp], zone: NDArray[np.intp]) -> tuple[Array, Array]:
        """Posterior weights up [n, point] and down [n, point], the current run so far included."""
        age, first = self.age[rows, zone], self.first[rows, zone]
        up = self.was_up[rows, zone]
        return (
            _normal(self.log_up[rows, zone] + _so_far(self.up_side, age, first, up)),
            _normal(self.log_down[rows, zone] + _so_far(self.down_side, age, first, ~up)),
        )

    def bucket(self, rows: NDArray[np.intp], zone: NDArray[np.intp]) -> Index:
        """State number: 0 .. BUCKETS - 1 up, then down."""
        age, first = self.age[rows, zone], self.first[rows, zone]
        up = self.was_up[rows, zone]
        here = [np.where(first, side.first_bucket[age], side.bucket[age]) for side in (self.up_side, self.down_side)]
        return np.where(up, here[0], BUCKETS + here[1]).astype(np.int32)


def _so_far(side: HazardSide, age: Index, first: Flags, mine: Flags) -> Array:
    log = np.where(first[:, None], side.first_stay[:, age].T, side.stay[:, age].T)
    return np.where(mine[:, None], log, 0.0)


def _normal(log: Array) -> Array:
    weights = np.exp(log - log.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
