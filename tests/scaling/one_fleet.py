"""One fleet under `ControlLaw.decide` itself, step by step: what `scaling.fluid_fleets` must equal bit for bit."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from tonnage.scaling.law import control_law
from tonnage.scaling.planned import (
    DAY_DECISIONS,
    DAY_S,
    FEWEST_SLOTS,
    KEPT,
    MOST_SLOTS,
    MOST_UNITS,
    SEED,
    TRACE_DECISIONS,
    FleetNeed,
    ScaledFleet,
    course_of,
)
from tonnage.scaling.service import Observation, ScaledService
from tonnage.workload.jobs import Traffic


def fleet_by_the_law(traffic: Traffic, need: FleetNeed) -> ScaledFleet:
    """As `scaled_fleet`, one fleet and one decision after the other."""
    group = math.ceil(need.working / MOST_UNITS)
    units = math.ceil(need.working / group)
    past_s, step_s, shares = course_of(traffic)
    most = DAY_DECISIONS if traffic.repeats else TRACE_DECISIONS
    run = OneFleet(need, group, units, every_s=max(len(shares) * step_s / most, step_s))
    steps = max(round(run.every_s / step_s), 1)
    arrivals = np.random.default_rng(SEED).poisson(shares * (step_s * need.busy_per_s)).tolist()
    for begin in range(0, len(arrivals), steps):
        if begin * step_s >= past_s:
            run.judged = True
        run.advance(arrivals[begin : begin + steps], step_s)
    days = run.judged_s / DAY_S
    hours = min(run.unit_s * group, need.working * run.judged_s) / 3600.0 / days
    return ScaledFleet(
        least=min(run.least * group, need.working) + need.spare, most=min(run.most * group, need.working) + need.spare,
        machine_hours_per_day=hours + 24.0 * need.spare, starts_per_day=run.starts * group / days,
        kept_fraction=1.0 - run.late / max(run.arrived, 1), start_up_s=need.start_up_s, judged_s=run.judged_s,
    )  # fmt: skip


class OneFleet:
    """Units of machines under the law: those that serve, those that start, and the requests inside."""

    def __init__(self, need: FleetNeed, group: int, units: int, *, every_s: float) -> None:
        self.start_up_s = need.start_up_s
        carries_per_s = need.carries_per_s * group
        self.slots = round(min(max(carries_per_s * need.start_up_s / 10.0, FEWEST_SLOTS), MOST_SLOTS))
        self.service_s = self.slots / carries_per_s
        self.law = control_law(
            ScaledService(
                slots=max(int(self.slots * need.used + 1e-9), 1), start_up_s=need.start_up_s, least=1, most=units,
                promise_s=self.service_s * (1.0 / need.used - 1.0), promised_fraction=KEPT,
            )
        )  # fmt: skip
        self.every_s = max(self.law.interval_s, every_s)
        self.state = self.law.begin(self.every_s)
        self.now_s, self.inside, self.ready = 0.0, 0.0, units
        self.starting: deque[float] = deque()  # when each will be ready
        self.judged = False
        self.unit_s = self.late = self.judged_s = 0.0
        self.arrived = self.starts = self.most = 0
        self.least = units

    def advance(self, arrivals: list[int], step_s: float) -> None:
        """Some steps, then a decision."""
        before, late = self.inside, 0.0
        for arrived in arrivals:
            while self.starting and self.starting[0] <= self.now_s:
                self.starting.popleft()
                self.ready += 1
            late += self._step(arrived, step_s)
            self.now_s += step_s
        self._decide(sum(arrivals), before, late)

    def _step(self, arrived: int, step_s: float) -> float:
        """Requests of a step that are late. What is inside fits, or the full slots leave evenly."""
        slots, held_s = self.ready * self.slots, self.service_s
        keep = math.exp(-step_s / held_s)
        free = arrived * (held_s / step_s) * (1.0 - keep) + self.inside * keep
        come = self.inside + arrived
        self.inside = free if free <= slots else max(come - slots * (step_s / held_s), min(slots, come))
        late = arrived * _chance_late(self.inside, slots)
        if self.judged:
            paid = self.ready + len(self.starting)
            self.unit_s += paid * step_s
            self.judged_s += step_s
            self.arrived += arrived
            self.late += late
            self.least, self.most = min(self.least, paid), max(self.most, paid)
        return late

    def _decide(self, arrived: int, before: float, late: float) -> None:
        finished = max(round(arrived + before - self.inside), 0)
        running = min(self.inside, self.ready * self.slots)
        seen = Observation(
            arrived=arrived, finished=finished, finished_work_s=finished * self.service_s,
            waiting=round(self.inside - running), running=round(running), ready=self.ready,
            starting=len(self.starting), late=round(late),
        )  # fmt: skip
        self.state, wanted, _ = self.law.decide(self.state, seen, self.now_s)
        while wanted > self.ready + len(self.starting):
            self.starting.append(self.now_s + self.start_up_s)
            self.starts += self.judged
        while wanted < self.ready + len(self.starting):
            if self.starting:
                self.starting.pop()
            else:
                self.ready -= 1


def _chance_late(inside: float, slots: int) -> float:
    """The chance that every slot is taken, given the arrivals: theirs is half the variance of a Poisson occupancy."""
    z = (inside - slots) / math.sqrt(max(inside, 1.0) / 2.0)
    return 1.0 / (1.0 + math.exp(-min(max(1.702 * z, -40.0), 40.0)))
