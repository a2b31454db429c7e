"""The least a window could have cost, had the future been known: an exact search over stretches between changes.

Any plan is: some stretches of living spot are used, on-demand fills some gaps, the rest is waiting. On-demand work
costs the same wherever it is, so what decides is the slack a plan uses (waiting, and d a launch) and its bill

    cost = k·C + k·d·(launches) - (k - 1)·(spot hours used)          where spot does less than all the work

which a dynamic program over (slack used, where the job runs) minimises; on-demand that is running may pause, as waiting
later would. Where spot alone can do all the work, it costs C + d·n with the fewest launches n. A plan that mixes must
then do nearly all of it with fewer launches to be cheaper, which the most spot hours by number of launches mostly rules
out; where they do not, the same program counts launches.
Slack is counted in fractions of a tick that hold d, down to 12 s; a d that fits none is rounded down to 12 s, so the
figure is never above the true optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import floor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.spot_instances.job import TICK_H, SpotJob

Flags = NDArray[np.bool_]
Hours = NDArray[np.float64]
_PARTS: Final = (1, 2, 3, 4, 5, 6, 8, 10)  # of a tick, coarsest that holds the changeover first
_TINY: Final = 1e-9
Stretches = list[tuple[int, tuple[bool, ...]]]  # ticks, and which zones are up


def optimal_costs(job: SpotJob, up: Flags, *, on_window: Callable[[], None] | None = None) -> Hours:
    """The least cost of each window in spot hours; `up[window, tick, zone]`."""
    costs = []
    for window in up:
        costs.append(optimal_cost(job, window))
        if on_window is not None:
            on_window()
    return np.array(costs)


def optimal_cost(job: SpotJob, up: Flags) -> float:
    """The least cost of one window, `up[tick, zone]`."""
    stretches = _stretches(up)
    lengths = _lengths_h(stretches, job)
    spot_h = _most_spot_h(job, stretches, lengths)
    enough = np.flatnonzero(spot_h >= job.work_h - _TINY)
    if not len(enough):
        return _mixed(job, stretches, lengths, None)
    fewest = int(enough[0])
    spot_only = job.work_h + job.changeover_h * fewest
    counts = np.arange(fewest)
    on_demand_h = job.work_h - spot_h[:fewest]
    bounds = (job.price_ratio - 1) * on_demand_h + job.changeover_h * (counts + job.price_ratio)
    worth = np.flatnonzero(bounds < job.changeover_h * fewest - _TINY)
    return min(spot_only, _mixed(job, stretches, lengths, int(worth[-1]))) if len(worth) else spot_only


def _stretches(up: Flags) -> Stretches:
    changes = np.flatnonzero((up[1:] != up[:-1]).any(axis=1)) + 1
    bounds = [0, *changes.tolist(), len(up)]
    return [(end - begin, tuple(up[begin].tolist())) for begin, end in pairwise(bounds)]


def _lengths_h(stretches: Stretches, job: SpotJob) -> list[float]:
    """Hours of each stretch; the deadline may cut the last tick."""
    lengths = [ticks * TICK_H for ticks, _ in stretches]
    lengths[-1] += job.deadline_h - sum(lengths)
    return lengths


def _most_spot_h(job: SpotJob, stretches: Stretches, lengths: list[float]) -> Hours:
    """The most hours of work on spot by number of launches."""
    zones = len(stretches[0][1])
    room = 1 + sum(
        now and not (place and stretches[place - 1][1][zone])
        for place, (_, ups) in enumerate(stretches)
        for zone, now in enumerate(ups)
    )
    idle = np.full(room, -np.inf)
    idle[0] = 0.0
    spots = [np.full(room, -np.inf) for _ in range(zones)]
    for (_, ups), length in zip(stretches, lengths, strict=True):
        idle = np.maximum.reduce([idle, *spots])
        launched = np.full(room, -np.inf)
        launched[1:] = idle[:-1] - job.changeover_h
        spots = [
            np.maximum(spot, launched) + length if now else np.full(room, -np.inf)
            for spot, now in zip(spots, ups, strict=True)
        ]
    return np.asarray(np.maximum.reduce([idle, *spots]))


def _mixed(job: SpotJob, stretches: Stretches, lengths: list[float], most: int | None) -> float:
    """The least cost with on-demand in it, of at most `most` spot launches (None: any number)."""
    unit_h, start = _units(job)
    saved = job.price_ratio - 1.0
    paid = job.price_ratio * job.changeover_h
    size = floor(job.slack_h / unit_h + 1e-6) + 1
    idle = np.full((1 if most is None else most + 1, size), np.inf)
    idle[0, 0] = 0.0
    nowhere = np.full_like(idle, np.inf)
    on_demand, spots = nowhere, [nowhere] * len(stretches[0][1])
    for (_, ups), length in zip(stretches, lengths, strict=True):
        best = np.minimum.reduce([idle, on_demand, *spots])
        launched = _later(best, start) + paid
        counted = launched if most is None else _one_more(launched)
        idle = _later(best, floor(length / unit_h + 1e-6))
        on_demand = np.minimum(on_demand, launched)
        spots = [
            np.minimum(spot, counted) - saved * length if now else nowhere for spot, now in zip(spots, ups, strict=True)
        ]
    return float(job.price_ratio * job.work_h + np.minimum.reduce([idle, on_demand, *spots]).min())


def _units(job: SpotJob) -> tuple[float, int]:
    """Hours a unit of slack, and units a changeover."""
    for parts in _PARTS:
        units = job.changeover_h / TICK_H * parts
        if abs(units - round(units)) < 1e-6:
            return TICK_H / parts, round(units)
    return TICK_H / _PARTS[-1], floor(job.changeover_h / TICK_H * _PARTS[-1])


def _later(costs: Hours, units: int) -> Hours:
    """The same with so much more slack used."""
    if units == 0:
        return costs
    moved = np.full_like(costs, np.inf)
    moved[:, units:] = costs[:, :-units]
    return moved


def _one_more(costs: Hours) -> Hours:
    moved = np.full_like(costs, np.inf)
    moved[1:] = costs[:-1]
    return moved
