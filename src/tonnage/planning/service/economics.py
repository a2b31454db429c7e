"""Dollars a month of a fleet at a volume: machines held, and a reserved base where it pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tonnage.planning.service.autoscaling import Autoscaling, held_machines
from tonnage.planning.service.rate_curve import RateCurve
from tonnage.planning.service.units import FleetUnit
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.estimates import Figure
from tonnage.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

End = Literal["value", "low", "high"]
UTILISATION = Assumptions().target_utilisation


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What arrives: a day's curve, how bursty, for how many hours a month."""

    curve: RateCurve
    variation: float = 1.0  # coefficient of variation of the gaps; 1: Poisson
    hours_per_month: float = float(HOURS_PER_MONTH)

    def requests_per_month(self, rate_per_s: float) -> float:
        return rate_per_s * SECONDS_PER_HOUR * self.hours_per_month

    def rate_per_s(self, requests_per_month: float) -> float:
        return requests_per_month / (SECONDS_PER_HOUR * self.hours_per_month)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthFleet:
    """One fleet for a month. `base` machines are committed all month, the others come and go."""

    unit: FleetUnit
    usd: float
    machines_mean: float
    machines_peak: float
    base: float
    utilisation: float  # requests answered over what the held machines could answer within the promise


def burst_factor(variation: float, utilisation: float = UTILISATION) -> float:
    """The part of the Poisson load at which bursty arrivals wait no longer than Poisson ones do.

    Kingman's approximation (1961): wait ~ u/(1-u) · (v² + 1)/2, held constant: u'/(1-u') = u/(1-u) · 2/(v² + 1).

    >>> burst_factor(1.0), round(burst_factor(3.0, 0.7), 3)
    (1.0, 0.455)
    """
    odds = utilisation / (1.0 - utilisation) * 2.0 / (variation * variation + 1.0)
    return odds / (1.0 + odds) / utilisation


def month_fleet(
    unit: FleetUnit, demand: Demand, rate_per_s: float, policy: Autoscaling, *, end: End = "value"
) -> MonthFleet:
    """The fleet of one kind of machine. `end`: the expected throughput, or an end of its 80 % interval."""
    capacity = float(getattr(unit.capacity_per_s, end)) * burst_factor(demand.variation)
    held = held_machines(demand.curve, rate_per_s, capacity, policy, variation=demand.variation)
    reserved = unit.reserved_usd_per_hour
    hourly = held.at_least * unit.usd_per_hour * demand.hours_per_month
    base = np.zeros(len(hourly), dtype=bool)
    if reserved is not None:
        base = hourly > reserved * HOURS_PER_MONTH
        hourly = np.where(base, reserved * HOURS_PER_MONTH, hourly)
    mean = held.mean
    return MonthFleet(
        unit=unit,
        usd=float(np.sum(hourly)) * held.scale,
        machines_mean=mean,
        machines_peak=held.peak,
        base=float(np.sum(base)) * held.scale,
        utilisation=rate_per_s / (mean * capacity) if mean else 0.0,
    )


def cheapest_fleet(
    units: Sequence[FleetUnit], demand: Demand, rate_per_s: float, policy: Autoscaling, *, end: End = "value"
) -> MonthFleet:
    """The cheapest fleet for the rate among several kinds of machine; ties go to the smaller machine."""
    fleets = [month_fleet(unit, demand, rate_per_s, policy, end=end) for unit in units]
    return min(fleets, key=lambda fleet: fleet.usd)


def figure_of(usd: float, faster: float, slower: float) -> Figure:
    """A cost with its ends: what it is if machines carry more, or less, than predicted."""
    return Figure(value=usd, low=min(usd, faster), high=max(usd, slower))
