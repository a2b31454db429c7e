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
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from tonnage.scaling.fluid_fleets import FleetTotals, FluidFleet, run_fleets
from tonnage.scaling.law import decision_interval_s
from tonnage.scaling.service import ScaledService
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
    return scaled_fleets(traffic, (need,))[0]


def scaled_fleets(traffic: Traffic, needs: Sequence[FleetNeed]) -> tuple[ScaledFleet, ...]:
    """`scaled_fleet` of each: those that are not known yet are simulated at once."""
    places = [fleet_place(traffic, need) for need in needs]
    unknown = {need: place for need, place in zip(needs, places, strict=True) if not place}
    for start_up_s in {need.start_up_s for need in unknown}:
        alike = [need for need in unknown if need.start_up_s == start_up_s]
        for need, fleet in zip(alike, _simulated(traffic, alike), strict=True):
            unknown[need].append(fleet)
    return tuple(place[0] for place in places)


@lru_cache(maxsize=1024)
def fleet_place(traffic: Traffic, need: FleetNeed) -> list[ScaledFleet]:  # noqa: ARG001
    """Where the fleet is kept once it is known."""
    return []


def _simulated(traffic: Traffic, needs: Sequence[FleetNeed]) -> list[ScaledFleet]:
    """The fleets, which all take the same time to start."""
    past_s, step_s, shares = course_of(traffic)
    most = DAY_DECISIONS if traffic.repeats else TRACE_DECISIONS
    every_s = max(decision_interval_s(needs[0].start_up_s), len(shares) * step_s / most, step_s)
    rates = {need.busy_per_s: np.empty(0) for need in needs}
    for rate in rates:
        rates[rate] = np.random.default_rng(SEED).poisson(shares * (step_s * rate)).astype(np.float64)
    groups = [math.ceil(need.working / MOST_UNITS) for need in needs]
    totals = run_fleets(
        [_fluid(need, group) for need, group in zip(needs, groups, strict=True)],
        np.stack([rates[need.busy_per_s] for need in needs], axis=1),
        step_s=step_s, steps=max(round(every_s / step_s), 1), judged_from_s=past_s,
    )  # fmt: skip
    return [_fleet(need, group, total) for need, group, total in zip(needs, groups, totals, strict=True)]


def _fluid(need: FleetNeed, group: int) -> FluidFleet:
    """Units of `group` machines, with the slots that the law sees: a full unit answers at the machine's most."""
    carries_per_s = need.carries_per_s * group
    slots = round(min(max(carries_per_s * need.start_up_s / 10.0, FEWEST_SLOTS), MOST_SLOTS))
    held_s = slots / carries_per_s
    law = ScaledService(
        slots=max(int(slots * need.used + 1e-9), 1), start_up_s=need.start_up_s, least=1,
        most=math.ceil(need.working / group), promise_s=held_s * (1.0 / need.used - 1.0), promised_fraction=KEPT,
    )  # fmt: skip
    return FluidFleet(slots, held_s, law)


def _fleet(need: FleetNeed, group: int, total: FleetTotals) -> ScaledFleet:
    days = total.judged_s / DAY_S
    hours = min(total.unit_s * group, need.working * total.judged_s) / 3600.0 / days
    return ScaledFleet(
        least=min(total.least * group, need.working) + need.spare,
        most=min(total.most * group, need.working) + need.spare,
        machine_hours_per_day=hours + 24.0 * need.spare, starts_per_day=total.starts * group / days,
        kept_fraction=1.0 - total.late / max(total.arrived, 1), start_up_s=need.start_up_s, judged_s=total.judged_s,
    )  # fmt: skip


def course_of(traffic: Traffic) -> tuple[float, float, Array]:
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
