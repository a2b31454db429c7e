"""The policy `tonnage`: at each tick the choice with the least expected bill, over all it may believe of its zone."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.spot_instances.belief import DOWN_POINTS, UP_POINTS, ZoneBelief, hypotheses
from tonnage.spot_instances.engine import IDLE, ON_DEMAND, TINY, Moment, Places
from tonnage.spot_instances.hazards import HazardModel
from tonnage.spot_instances.job import SpotJob
from tonnage.spot_instances.value import STATES, Values, solve

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
