"""The rules of thumb a job is run by today, as Wu et al., «Can't Be Late» (NSDI 2024), define them."""

from __future__ import annotations

from typing import Final

import numpy as np

from tonnage.spot_instances.engine import IDLE, ON_DEMAND, TINY, Flags, Hours, Moment, Places
from tonnage.spot_instances.job import SpotJob

SLICES: Final = (2, 4, 8, 16, 32)
_LOOSE: Final = 0.6  # work / time up to which a policy first waits for spot ...
_TIGHT: Final = 0.7  # ... until work / time reaches this (appendix A.8)


class OldestRun:
    """Which zone to take: the one whose spot has been up longest. Ages count from the first tick seen."""

    def __init__(self, windows: int, zones: int) -> None:
        self.ages = np.zeros((windows, zones), np.int32)

    def see(self, up: Flags) -> Places:
        """The best zone of each window, IDLE where none is up."""
        self.ages = np.where(up, self.ages + 1, 0).astype(np.int32)
        return np.where(up.any(axis=1), self.ages.argmax(axis=1), IDLE).astype(np.int16)


class Rival:
    """What the rules share: they never leave a living spot, and with much slack first use spot or wait (A.8)."""

    def start(self, job: SpotJob, windows: int, zones: int) -> None:
        """Forget the last replay."""
        self.job = job
        self.oldest = OldestRun(windows, zones)
        self.began_h = np.zeros(windows)  # when the policy itself began
        self.owed_h = np.full(windows, job.work_h)  # the work it began with
        self.waiting = np.full(windows, job.work_h / job.deadline_h <= _LOOSE + TINY)

    def choose(self, moment: Moment) -> Places:
        """Spot or wait while there is much slack, then the policy's own rule."""
        best = self.oldest.see(moment.up)
        elapsed_h = self.job.deadline_h - moment.left_h
        tight = self.waiting & (moment.work_h / moment.left_h >= _TIGHT - TINY)
        self.began_h = np.where(tight, elapsed_h, self.began_h)
        self.owed_h = np.where(tight, moment.work_h, self.owed_h)
        self.waiting &= ~tight
        own = np.where(self.waiting, best, self.rule(moment, best, elapsed_h - self.began_h))
        return np.where(moment.place >= 0, moment.place, own).astype(np.int16)

    def rule(self, moment: Moment, best: Places, since_h: Hours) -> Places:
        """Where to be, `since_h` after the policy began, if the job is idle or on demand."""
        raise NotImplementedError


class OnDemand(Rival):
    """On demand from the first minute."""

    def choose(self, moment: Moment) -> Places:
        """On demand."""
        return np.full(len(moment.place), ON_DEMAND, np.int16)


class Greedy(Rival):
    """Spot when it is up, else wait, until the safety net."""

    def rule(self, moment: Moment, best: Places, since_h: Hours) -> Places:
        del since_h
        return np.where(moment.place == ON_DEMAND, ON_DEMAND, best).astype(np.int16)


class UniformProgress(Rival):
    """Keep up with a straight line from nothing to all the work; hysteresis of two changeovers on the way back."""

    def rule(self, moment: Moment, best: Places, since_h: Hours) -> Places:
        """Idle: spot if up, on-demand if behind, else wait. On demand: spot if up and ahead by then."""
        line = self.owed_h / (self.job.deadline_h - self.began_h)
        done_h = self.owed_h - moment.work_h
        behind = done_h < since_h * line - TINY
        ahead = done_h >= (since_h + 2 * self.job.changeover_h) * line - TINY
        idle = np.where(best >= 0, best, np.where(behind, ON_DEMAND, IDLE))
        back = np.where((best >= 0) & ahead, best, ON_DEMAND)
        return np.where(moment.place == ON_DEMAND, back, idle).astype(np.int16)


class TimeSliced(Rival):
    """Greedy within each of `slices` equal slices of the time; on-demand is left only at the end of a slice."""

    def __init__(self, slices: int) -> None:
        self.slices = slices

    def start(self, job: SpotJob, windows: int, zones: int) -> None:
        super().start(job, windows, zones)
        self.bound = np.zeros(windows, np.int32)  # the slice in which on-demand was taken

    def rule(self, moment: Moment, best: Places, since_h: Hours) -> Places:
        """Greedy against what this slice owes; a surplus carries over."""
        length_h = (self.job.deadline_h - self.began_h) / self.slices
        here = np.minimum(np.floor(since_h / length_h + TINY), self.slices - 1)
        owed_h = self.owed_h * (here + 1) / self.slices - (self.owed_h - moment.work_h)
        room_h = (here + 1) * length_h - since_h - np.maximum(owed_h, 0.0)
        short = (room_h < self.job.guard_h - TINY) & (owed_h > TINY)
        held = (moment.place == ON_DEMAND) & (self.bound == here)
        chosen = np.where(held | short, ON_DEMAND, best)
        self.bound = np.where(chosen == ON_DEMAND, here, -1).astype(np.int32)
        return chosen.astype(np.int16)
