"""The policy `tonnage`: at each tick the choice with the least expected bill, over all it may believe of its zone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tonnage.planning.spot.belief import DOWN_POINTS, UP_POINTS, Belief, hypotheses
from tonnage.planning.spot.engine import IDLE, ON_DEMAND, TINY, Moment, Places
from tonnage.planning.spot.hazards import HazardModel
from tonnage.planning.spot.job import SpotJob
from tonnage.planning.spot.value import STATES, Values, solve


class TonnagePolicy:
    """Weighs the values of every hypothesis by what the job has seen (Bayes), and takes the cheapest choice."""

    def __init__(self, model: HazardModel) -> None:
        self.model = model
        self._solved: tuple[SpotJob, int, Values] | None = None

    def start(self, job: SpotJob, windows: int, zones: int) -> None:
        """Solve the program once a job and forget what was seen."""
        if self._solved is None or self._solved[:2] != (job, zones):
            self._solved = (job, zones, solve_hypotheses(job, self.model, zones))
        self.values = self._solved[2]
        self.belief = Belief(self.model, windows, zones, job.ticks)

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
        zone = self._zone(moment, rows)
        up = moment.up[rows, zone]
        wait, spot, launch, stay = self._bills(moment, rows, zone)
        on_demand = np.where(moment.place[rows] == ON_DEMAND, stay, launch)
        spot = np.where(up, spot, np.inf)
        best = np.where(on_demand < wait - TINY, ON_DEMAND, IDLE)
        return np.where(spot <= np.minimum(wait, on_demand), zone, best).astype(np.int16)

    def _zone(self, moment: Moment, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """The zone to think of: up rather than down, then the one with the lowest hazard."""
        if moment.up.shape[1] == 1:
            return np.zeros(len(rows), np.intp)
        scores = [self._hazard(moment, rows, zone) for zone in range(moment.up.shape[1])]
        return np.asarray(np.argmin(np.stack(scores, axis=1), axis=1))

    def _hazard(self, moment: Moment, rows: NDArray[np.intp], zone: int) -> NDArray[np.float64]:
        """Preemptions an hour to be expected now; a zone that is down ranks behind all that are up."""
        zones = np.full(len(rows), zone)
        weights, _ = self.belief.weights(rows, zones)
        bucket = self.belief.bucket(rows, zones) % (STATES // 2)
        hazard = (weights * self.belief.up_side.per_h[:, bucket].T).sum(axis=1)
        return np.asarray(np.where(moment.up[rows, zone], hazard, 1e6 - self.belief.age[rows, zone]))

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


def solve_hypotheses(job: SpotJob, model: HazardModel, zones: int) -> Values:
    """Values of every pair of an up and a down hypothesis; with several zones another may be up when one is lost."""
    up, down = hypotheses(model, 1)
    up_per_h = np.repeat(up.per_h, len(DOWN_POINTS), axis=0)
    down_per_h = np.tile(down.per_h, (len(UP_POINTS), 1))
    up_h, down_h = np.repeat(up.mean_h, len(DOWN_POINTS)), np.tile(down.mean_h, len(UP_POINTS))
    away = down_h / (up_h + down_h)
    return solve(job, up_per_h, down_per_h * (1 + 0.5 * (zones - 1)), elsewhere=1 - away ** (0.5 * (zones - 1)))
