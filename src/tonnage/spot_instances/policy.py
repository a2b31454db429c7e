"""The policy `tonnage`: at each tick the choice with the least expected bill, over all it may believe of its zone.

What a choice is worth is a stochastic dynamic program over time left, slack, and the age of spot's current run.
Backwards from the deadline in steps of time: V(time left, slack, where the job runs, age bucket up or down) is the
least expected bill from there on, if the hazards were known. Waiting and starting use slack; running does not. Ages
move through the buckets as a chain (a step leaves a bucket of width w with chance step/w). All hypotheses about the
zone are solved side by side. The rules of the engine (net, guard) hold here too.
"""

from __future__ import annotations

from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.spot_instances.belief import DOWN_POINTS, UP_POINTS, ZoneBelief, hypotheses
from tonnage.spot_instances.engine import IDLE, ON_DEMAND, TINY, Moment, Places
from tonnage.spot_instances.hazards import AGES_H, BUCKETS, HazardModel
from tonnage.spot_instances.job import TICK_H, SpotJob
from tonnage.values import dataclass

Bills = NDArray[np.float64]
_DOWN: Final = 1e9  # ranks zones that are down behind all that are up


class TonnagePolicy:
    """Weighs the values of every hypothesis by what the job has seen (Bayes), and takes the cheapest choice."""

    def __init__(self, model: HazardModel) -> None:
        self.model = model
        self._solved: tuple[SpotJob, Values] | None = None

    def start(self, job: SpotJob, windows: int, zones: int) -> None:
        """Solve the program once a job and forget what was seen."""
        if self._solved is None or self._solved[0] != job:
            self._solved = (job, solve_hypotheses(job, self.model))
        self.values = self._solved[1]
        self.belief = ZoneBelief(self.model, windows, zones, job.ticks)

    def choose(self, moment: Moment) -> Places:
        """Stay on a living spot; else compare waiting, spot and on-demand."""
        self.belief.see(moment.up)
        chosen = moment.place.copy()
        asks = moment.running & ~moment.final & (moment.place < 0) & (moment.starting_h <= TINY)
        asks &= moment.slack_h >= moment.job.guard_h - TINY
        rows = np.flatnonzero(asks)
        if len(rows):
            chosen[rows] = self._best(moment, rows)
        return chosen

    def _best(self, moment: Moment, rows: NDArray[np.intp]) -> Places:
        """The cheapest choice; spot means the zone in which a launch has the least expected bill."""
        zone, (wait, spot, launch, stay) = self._zone(moment, rows)
        on_demand = np.where(moment.place[rows] == ON_DEMAND, stay, launch)
        spot = np.where(moment.up[rows, zone], spot, np.inf)
        best = np.where(on_demand < wait - TINY, ON_DEMAND, IDLE)
        return np.where(spot <= np.minimum(wait, on_demand), zone, best).astype(np.int16)

    def _zone(self, moment: Moment, rows: NDArray[np.intp]) -> tuple[NDArray[np.intp], tuple[Bills, ...]]:
        """The zone to think of and its bills: the cheapest that is up, else the one that went last."""
        bills, scores = [], []
        for zone in range(moment.up.shape[1]):
            bills.append(self._bills(moment, rows, np.full(len(rows), zone)))
            scores.append(np.where(moment.up[rows, zone], bills[-1][1], _DOWN + self.belief.age[rows, zone]))
        best = np.argmin(np.stack(scores), axis=0)
        chosen = tuple(np.stack(one)[best, np.arange(len(rows))] for one in zip(*bills, strict=True))
        return best, chosen

    def _bills(self, moment: Moment, rows: NDArray[np.intp], zone: NDArray[np.intp]) -> tuple[NDArray[np.float64], ...]:
        """Expected bills of waiting, launching spot, launching on-demand, staying on it: [n] each."""
        values = self.values
        level = min(round(moment.left_h / values.step_h), len(values.wait) - 1)
        slack = moment.slack_h[rows]
        low = np.clip(np.searchsorted(values.slack_h, slack, side="right") - 1, 0, len(values.slack_h) - 2)
        part = (slack - values.slack_h[low]) / (values.slack_h[low + 1] - values.slack_h[low])
        state = self.belief.bucket(rows, zone)
        up, down = self.belief.weights(rows, zone)
        weight = (up[:, :, None] * down[:, None, :]).reshape(len(rows), -1).T.astype(np.float32)
        bills = []
        for table in (values.wait, values.spot, values.on_demand, values.stay):
            below = (np.take(table[level], low * STATES + state, axis=1) * weight).sum(axis=0)
            above = (np.take(table[level], (low + 1) * STATES + state, axis=1) * weight).sum(axis=0)
            bills.append(below + (above - below) * np.clip(part, 0, 1))
        return tuple(bills)


def solve_hypotheses(job: SpotJob, model: HazardModel) -> Values:
    """Values of every pair of an up and a down hypothesis."""
    up, down = hypotheses(model, 1)
    return solve(job, np.repeat(up.per_h, len(DOWN_POINTS), axis=0), np.tile(down.per_h, (len(UP_POINTS), 1)))


Array = NDArray[np.float32]
STEPS: Final = 400
_GROWTH: Final = 1.12  # of the slack grid, away from the guard
STATES: Final = 2 * BUCKETS
_UP: Final = slice(0, BUCKETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Expected bills by choice, [time step, hypothesis, slack x state]: of waiting, launching, staying."""

    step_h: float
    slack_h: NDArray[np.float64]  # the grid
    wait: Array
    spot: Array
    on_demand: Array  # launch it
    stay: Array  # it runs already


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shift:
    """Linear interpolation of a grid at slack - shift."""

    low: NDArray[np.intp]
    weight: Array

    def of(self, values: Array) -> Array:
        return values[:, self.low] * (1 - self.weight) + values[:, self.low + 1] * self.weight


@dataclass(slots=True)
class _Level:
    """Values with a certain time left: idle, on demand, on spot, and both while starting (by steps left)."""

    idle: Array
    on_demand: Array
    spot: Array
    starting_od: list[Array]
    starting_spot: list[Array]


def solve(job: SpotJob, up_per_h: NDArray[np.float64], down_per_h: NDArray[np.float64]) -> Values:
    """Values for hypotheses [m]: hazards [m, bucket]."""
    steps = max(1, min(STEPS, ceil(job.deadline_h / TICK_H)))
    step_h = job.deadline_h / steps
    grid = _grid(job, step_h)
    shape = (steps + 1, len(up_per_h), len(grid) * STATES)
    out = Values(
        step_h=step_h, slack_h=grid, wait=np.zeros(shape, np.float32), spot=np.zeros(shape, np.float32),
        on_demand=np.zeros(shape, np.float32), stay=np.zeros(shape, np.float32),
    )  # fmt: skip
    solver = _Solver(job, grid, step_h, _transitions(up_per_h, down_per_h, step_h))
    level = solver.done()
    for number in range(1, steps + 1):
        level = solver.step(level, number, out)
    return out


def _grid(job: SpotJob, step_h: float) -> NDArray[np.float64]:
    fine = min(step_h, max(job.changeover_h, TICK_H))
    points = list(np.arange(0.0, job.guard_h + 6 * step_h, fine))
    width = fine
    while points[-1] < job.slack_h:
        width *= _GROWTH
        points.append(points[-1] + width)
    return np.array(points)


def _transitions(up_per_h: NDArray[np.float64], down_per_h: NDArray[np.float64], step_h: float) -> tuple[Array, Array]:
    """Chances within one step [m, from, to]: of the zone while it goes on as it is, and of its change."""
    count = len(up_per_h)
    goes_on, changes = np.zeros((count, STATES, STATES)), np.zeros((count, STATES, STATES))
    widths = np.append(np.diff(AGES_H), np.inf)
    for side, per_h in enumerate((up_per_h, down_per_h)):
        ends = -np.expm1(-per_h * step_h)
        for bucket in range(BUCKETS):
            here = side * BUCKETS + bucket
            older = min(1.0, step_h / widths[bucket])
            goes_on[:, here, here] += (1 - ends[:, bucket]) * (1 - older)
            goes_on[:, here, min(here + 1, side * BUCKETS + BUCKETS - 1)] += (1 - ends[:, bucket]) * older
            changes[:, here, BUCKETS if side == 0 else 0] = ends[:, bucket]
    return goes_on.astype(np.float32), changes.astype(np.float32)


class _Solver:
    """One backward step at a time."""

    def __init__(self, job: SpotJob, grid: NDArray[np.float64], step_h: float, chances: tuple[Array, Array]) -> None:
        self.job, self.step_h = job, step_h
        self.slack = grid.astype(np.float32)[None, :, None]
        self.goes_on, self.changes = chances
        self.both = self.goes_on + self.changes
        self.short = self.slack < job.guard_h - 1e-6
        left, parts = job.changeover_h, []
        while True:  # hours of start-up in each step of a launch
            parts.append(min(left, step_h))
            left -= step_h
            if left <= 1e-9:
                break
        self.parts = parts
        self.after_wait = self._shift(grid, step_h)
        self.after_start = [self._shift(grid, part) for part in parts]

    @staticmethod
    def _shift(grid: NDArray[np.float64], by_h: float) -> _Shift:
        places = np.maximum(grid - by_h, 0.0)
        low = np.clip(np.searchsorted(grid, places, side="right") - 1, 0, len(grid) - 2)
        weight = (places - grid[low]) / (grid[low + 1] - grid[low])
        return _Shift(low=low, weight=np.clip(weight, 0, 1).astype(np.float32)[None, :, None])

    def done(self) -> _Level:
        """Nothing is left to pay."""
        wide = np.zeros((len(self.both), self.slack.shape[1], STATES), np.float32)
        narrow = wide[:, :, _UP]
        more = len(self.parts) - 1
        return _Level(idle=wide, on_demand=wide, spot=narrow, starting_od=[wide] * more, starting_spot=[narrow] * more)

    def step(self, after: _Level, number: int, out: Values) -> _Level:
        """The level with `number` steps left, from the one with a step less; its choices go to `out`."""
        k = np.float32(self.job.price_ratio)
        work = np.maximum(np.float32(number * self.step_h) - self.slack, 0.0)
        ran = np.minimum(work, np.float32(self.step_h))
        unfinished = work > 0
        later_od, later_spot = self._expected(after.on_demand), self._on_spot(after.spot, after.idle)
        od_paths = self._launches(k, work, [*map(self._expected, after.starting_od), later_od])
        starting = [self._on_spot(one, after.idle) for one in after.starting_spot]
        spot_paths = self._launches(np.float32(1.0), work, [*starting, later_spot])
        net = k * (work + np.float32(self.job.changeover_h))
        wait = np.where(self.short, net, self.after_wait.of(self._expected(after.idle)))
        launch_od = np.where(self.short, net, od_paths[0])
        launch_spot = np.where(self.short, np.float32(np.inf), spot_paths[0])
        stay = np.where(self.short, k * work, k * ran + later_od)
        idle = np.minimum(wait, launch_od)
        on_demand = np.where(self.short, stay, np.minimum(stay, wait))
        for values in (idle, on_demand):
            values[:, :, _UP] = np.minimum(values[:, :, _UP], launch_spot)
        self._keep(out, number, *(values * unfinished for values in (wait, spot_paths[0], launch_od, stay)))
        return _Level(
            idle=idle * unfinished,
            on_demand=on_demand * unfinished,
            spot=(ran + later_spot) * unfinished,
            starting_od=[one * unfinished for one in od_paths[1:]],
            starting_spot=[one * unfinished for one in spot_paths[1:]],
        )

    def _launches(self, price: np.float32, work: Array, later: list[Array]) -> list[Array]:
        """The bill of a launch, from each of its steps on; `later` is what comes after a step, at last running."""
        paths = []
        for part, shift, after in zip(self.parts, self.after_start, later, strict=True):
            paid = np.minimum(np.float32(self.step_h), work + np.float32(part))
            paths.append(price * paid + shift.of(after))
        return paths

    def _expected(self, values: Array) -> Array:
        """Before a step, of values after it, wherever the zone goes."""
        return values @ self.both.transpose(0, 2, 1)

    def _on_spot(self, spot: Array, idle: Array) -> Array:
        """The same for a job on spot: it is idle where spot goes."""
        stays = spot @ self.goes_on[:, _UP, _UP].transpose(0, 2, 1)
        return np.asarray(stays + idle @ self.changes[:, _UP, :].transpose(0, 2, 1))

    @staticmethod
    def _keep(out: Values, number: int, wait: Array, spot: Array, on_demand: Array, stay: Array) -> None:
        flat = (len(wait), -1)
        out.wait[number] = wait.reshape(flat)
        wide = np.zeros_like(wait)
        wide[:, :, _UP] = spot
        out.spot[number] = wide.reshape(flat)
        out.on_demand[number] = on_demand.reshape(flat)
        out.stay[number] = stay.reshape(flat)
