"""Dollars a month of a fleet at a busy rate: machines held, and a reserved base where it pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Literal

import numpy as np

from tonnage.planning.layouts.fleets import machines_for, replicas_for
from tonnage.service.autoscaling import Autoscaling, held_machines
from tonnage.service.rate_curve import RateCurve
from tonnage.service.units import FleetUnit
from tonnage.sizing.estimates import Array, Figure
from tonnage.units import HOURS_PER_MONTH, SECONDS_PER_HOUR
from tonnage.values import dataclass

End = Literal["value", "low", "high"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What arrives: a day's curve around its mean, how bursty, for how many hours a month, all by the busy rate."""

    curve: RateCurve
    variation: float = 1.0  # coefficient of variation of the gaps; 1: Poisson
    hours_per_month: float = float(HOURS_PER_MONTH)

    def mean_per_s(self, busy_per_s: float) -> float:
        """The day's mean of a busy rate."""
        return busy_per_s / self.curve.peak

    def requests_per_month(self, busy_per_s: float) -> float:
        return self.mean_per_s(busy_per_s) * SECONDS_PER_HOUR * self.hours_per_month


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthFleet:
    """One fleet for a month. `base` machines are committed all month, the others come and go."""

    unit: FleetUnit
    usd: float
    machines_mean: float
    machines_peak: float
    base: float
    utilisation: float  # the busy rate over the capacity of the machines held when it is busiest


def burst_factor(variation: float, utilisation: float) -> float:
    """The part of the Poisson load at which bursty arrivals wait no longer than Poisson ones do.

    Kingman's approximation (1961): wait ~ u/(1-u) · (v² + 1)/2, held constant: u'/(1-u') = u/(1-u) · 2/(v² + 1).

    >>> burst_factor(1.0, 0.7), round(burst_factor(3.0, 0.7), 3)
    (1.0, 0.455)
    """
    odds = utilisation / (1.0 - utilisation) * 2.0 / (variation * variation + 1.0)
    return odds / (1.0 + odds) / utilisation


def month_fleet(
    unit: FleetUnit, demand: Demand, busy_per_s: float, policy: Autoscaling, *, end: End = "value"
) -> MonthFleet:
    """The fleet of one kind of machine. `end`: the expected throughput, or an end of its 80 % interval.

    A flat day, a fixed fleet and committed machines take the machines that `tonnage plan` does, all month.
    """
    burst = burst_factor(demand.variation, unit.used)
    each = [float(getattr(pool, end)) * burst for pool in unit.pools]
    if demand.curve.flat or unit.committed or not policy.enabled:
        machines = _standing(unit, each, busy_per_s, policy)
        at_least, scale = np.ones(round(machines)), np.ones(round(machines))
    else:
        at_least, scale = _held(unit, each, demand, busy_per_s, policy)
    on_demand = at_least * unit.usd_per_hour * (HOURS_PER_MONTH if unit.committed else demand.hours_per_month)
    base = np.zeros(len(at_least), dtype=bool)
    if unit.reserved_usd_per_hour is not None:
        reserved = unit.reserved_usd_per_hour * HOURS_PER_MONTH
        base = on_demand > reserved
        on_demand = np.where(base, reserved, on_demand)
    mean, peak = float(np.sum(at_least * scale)), float(np.sum(scale))
    disks = mean * unit.bill.disk_usd_per_machine_hour * demand.hours_per_month
    return MonthFleet(
        unit=unit,
        usd=unit.bill.usd(float(np.sum(on_demand * scale)) + disks) if peak <= unit.most_machines else inf,
        machines_mean=mean,
        machines_peak=peak,
        base=float(np.sum(base * scale)),
        utilisation=busy_per_s * sum(1.0 / one for one in each) / (peak * unit.replicas) if peak else 0.0,
    )


def _standing(unit: FleetUnit, each_per_s: Sequence[float], busy_per_s: float, policy: Autoscaling) -> float:
    """Machines for the busy rate, as a plan has them."""
    replicas = sum(float(replicas_for(busy_per_s, one, used=unit.used, spare=policy.spare)) for one in each_per_s)
    machines = max(float(machines_for(replicas, unit.replicas)), policy.minimum, 1.0)
    return machines if policy.maximum is None else min(machines, policy.maximum)


def _held(
    unit: FleetUnit, each_per_s: Sequence[float], demand: Demand, busy_per_s: float, policy: Autoscaling
) -> tuple[Array, Array]:
    """(part of the time for which more than n machines are held, machines that each such step stands for): replicas
    held, packed into machines. Two pools follow one load, so that the times of both are those of their sum."""
    bounds = policy.times(unit.replicas)
    if len(each_per_s) > 1:  # the pools share the machines: none has the minimum for itself, and both are cut below
        bounds = replace(bounds, minimum=min(policy.minimum, 1))
    held = [
        held_machines(
            demand.curve, demand.mean_per_s(busy_per_s), one * unit.used, bounds, variation=demand.variation
        )
        for one in each_per_s
    ]  # fmt: skip
    at_least = np.concatenate([one.at_least for one in held])
    if any(one.scale != 1.0 for one in held):  # so many that part of a machine does not show
        return at_least, np.concatenate([np.full(len(one.at_least), one.scale / unit.replicas) for one in held])
    machines = np.sort(at_least)[::-1][:: unit.replicas]
    machines = np.pad(machines, (0, max(policy.minimum - len(machines), 0)))[: policy.maximum]
    machines[: policy.minimum] = 1.0
    return machines, np.ones(len(machines))


def planned_fleet(unit: FleetUnit) -> MonthFleet:
    """The fleet of an option of a plan, as the plan has it."""
    option = unit.option
    used = option.run.utilisation
    assert used is not None
    return MonthFleet(
        unit=unit, usd=option.cost_usd.value, machines_mean=option.count, machines_peak=option.count,
        base=option.count if unit.committed else 0.0, utilisation=used,
    )  # fmt: skip


def cheapest_fleet(
    units: Sequence[FleetUnit], demand: Demand, busy_per_s: float, policy: Autoscaling, *, end: End = "value"
) -> MonthFleet:
    """The cheapest fleet for the rate among several kinds of machine; ties go to the smaller machine."""
    fleets = [month_fleet(unit, demand, busy_per_s, policy, end=end) for unit in units]
    return min(fleets, key=lambda fleet: fleet.usd)


def figure_of(usd: float, faster: float, slower: float) -> Figure:
    """A cost with its ends: what it is if machines carry more, or less, than predicted."""
    return Figure(value=usd, low=min(usd, faster), high=max(usd, slower))
