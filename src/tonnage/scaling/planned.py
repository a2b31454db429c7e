"""A fleet that a plan has sized for the busy rate, simulated as the control law would run it on the stated traffic.

The law is that of `tonnage serve --replicas`, asked in the same words; requests are a fluid, as in its shadows: a plan
has no time for the hundred million requests of a day, and what they wait depends on their rate alone where each is
short beside a start-up. A plan knows of a machine how much it carries within the promise, chance of the arrivals
included. So a machine is given slots, full at that rate, and a request holds one for as long as makes that the
machine's rate: a tenth of a start-up at most, so that rates count and not single requests. The law sees only the
slots that a plan would fill (`used`), so machines run no fuller than in a fixed fleet. A request is late where every
machine is at its most: that is when the promise is no longer sure. Its chance is that of the shadows.
"""

from __future__ import annotations

import math
from collections import deque
from functools import lru_cache
from typing import Final

import numpy as np

from tonnage.scaling.law import control_law
from tonnage.scaling.service import Observation, ScaledService
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass
from tonnage.workload.jobs import Traffic

FEWEST_SLOTS, MOST_SLOTS = 10, 100
DAY_DECISIONS: Final = 360  # of a day's course, which is slow; the law itself would decide more often
TRACE_DECISIONS: Final = 750
MOST_STEPS: Final = 20_000
MOST_UNITS: Final = 40  # of machines; larger fleets grow and shrink by several at a time
KEPT: Final = 0.99  # of requests find a machine below its most
DAY_S: Final = 86_400.0
LEARNT_S: Final = 6 * 3600.0  # of the day before: the law's memory
DAY_STEP_S: Final = 60.0
LEAST_START_UPS: Final = 20.0  # a trace that is shorter says nothing of machines that come and go
SEED: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNeed:
    """Machines that a plan has sized. `carries_per_s`: the most of one within the promise; `used`: the part of it that
    is planned for; `spare` machines are held beside those that the rate takes."""

    busy_per_s: float
    carries_per_s: float
    used: float
    machines: int
    spare: int
    start_up_s: float

    @property
    def working(self) -> int:
        """Machines that the busy rate takes."""
        return self.machines - self.spare


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledFleet:
    """The fleet as the law would run it. Machine-hours are those of a mean day, spare machines included."""

    least: int
    most: int
    machine_hours_per_day: float
    starts_per_day: float
    kept_fraction: float  # of requests that find a machine below its most
    start_up_s: float
    judged_s: float

    @property
    def keeps(self) -> bool:
        return self.kept_fraction >= KEPT

    def share_of(self, machines: int) -> float:
        """Machine-hours over those of so many machines that always run."""
        return self.machine_hours_per_day / (24.0 * machines)


def long_enough(traffic: Traffic, start_up_s: float) -> bool:
    """Whether the traffic lasts so many start-ups that a simulation says something."""
    return traffic.repeats or len(traffic.shares) * traffic.step_s >= LEAST_START_UPS * start_up_s


@lru_cache(maxsize=256)
def scaled_fleet(traffic: Traffic, need: FleetNeed) -> ScaledFleet:
    """The fleet of `need` on `traffic`: at least one machine that works, at most those that are planned. Same input,
    same figures.

    >>> day = Traffic(shares=(0.1,) * 12 + (1.0,) * 12, step_s=3600.0, repeats=True, source="a day")
    >>> need = FleetNeed(
    ...     busy_per_s=100.0, carries_per_s=30.0, used=0.7, machines=5, spare=0, start_up_s=1800.0)
    >>> found = scaled_fleet(day, need)
    >>> found.least, found.most, round(found.kept_fraction, 2), round(found.machine_hours_per_day / (24 * 5), 2)
    (1, 5, 0.97, 0.82)
    >>> found.keeps  # ten times the rate within an hour, half an hour to start: its plan keeps the fixed fleet
    False
    """
    group = math.ceil(need.working / MOST_UNITS)
    units = math.ceil(need.working / group)
    past_s, step_s, shares = _course(traffic)
    most = DAY_DECISIONS if traffic.repeats else TRACE_DECISIONS
    run = _Run(need, group, units, every_s=max(len(shares) * step_s / most, step_s))
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


def _course(traffic: Traffic) -> tuple[float, float, Array]:
    """Seconds that are the past, seconds of a step, and the share of the busy rate at each step. A day begins where it
    is quietest."""
    if traffic.repeats:
        middles = (np.arange(len(traffic.shares)) + 0.5) * traffic.step_s
        at_s = np.arange(0.0, LEARNT_S + DAY_S, DAY_STEP_S) + middles[int(np.argmin(traffic.shares))]
        day = np.interp(np.mod(at_s, DAY_S), middles, np.array(traffic.shares), period=DAY_S)
        return LEARNT_S, DAY_STEP_S, np.asarray(day, dtype=np.float64)
    together = math.ceil(len(traffic.shares) / MOST_STEPS)
    whole = np.array(traffic.shares[: len(traffic.shares) // together * together])
    shares = whole.reshape(-1, together).mean(axis=1)
    return len(shares) * traffic.step_s * together / 2.0, traffic.step_s * together, shares


class _Run:
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
