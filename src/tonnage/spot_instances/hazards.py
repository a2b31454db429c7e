"""How long spot lasts and stays away: hazards by age, how zones differ, and how a fit gets them from traces.

A zone's hazard is a shape over the age of the run (up or down), common to all zones, times a factor of the zone:
h(age) = factor · h_p, p the age bucket. Zones' factors are log-normal. Both are fitted by maximum likelihood on runs
whose start was seen (a run that the end of the record cuts counts as far as it was seen).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.spot_instances.job import TICK_H
from tonnage.spot_instances.traces import SpotTrace
from tonnage.values import dataclass

Hours = NDArray[np.float64]
AGES_H: Final = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # where the age buckets begin; the last has no end
BUCKETS: Final = len(AGES_H)
# Hazard of a job on n machines: n^0.15 of one. On the 4- and 16-node traces of the packaged model's source, taken at 1
# and at all nodes, the exponent is 0.0, 0.13 and 0.3: capacity goes for all at once. Independent machines: 1.
NODES_EXPONENT: Final = 0.15
_ROUNDS: Final = 60
_SHRINK: Final = 1.0  # events of weight that pull a zone's factor to 1: a zone without any event has a factor too
_LEAST_SPREAD: Final = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Changes and hours at risk by age, of one zone in one direction (up: preemptions; down: returns)."""

    events: Hours
    exposure_h: Hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """Hazard an hour by age bucket of the typical zone; mean and spread of the natural log of the zones' factors."""

    per_h: tuple[float, ...]
    log_mean: float
    log_spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HazardModel:
    """What is known before a job has seen its zone; `source` says from what, `zones` and `runs` how much."""

    up: Direction
    down: Direction
    zones: int
    runs: int
    source: str


def lifetimes(trace: SpotTrace, *, up: bool) -> Lifetimes:
    """Events and exposure of a trace's up or down runs, those cut by a segment's start left out."""
    events, exposure = np.zeros(BUCKETS), np.zeros(BUCKETS)
    for lengths, ended in (run_lengths(segment, up=up) for segment in trace.ticks()):
        for length, end in zip(lengths, ended, strict=True):
            exposure += exposure_by_age(float(length))
            if end:
                events[bucket_of(float(length))] += 1
    return Lifetimes(events=events, exposure_h=exposure)


def run_lengths(segment: NDArray[np.bool_], *, up: bool) -> tuple[Hours, NDArray[np.bool_]]:
    """Hours of each run whose start was seen, and whether its end was seen too."""
    changes = np.flatnonzero(segment[1:] != segment[:-1]) + 1
    bounds = np.append(changes, len(segment))
    lengths, kinds = np.diff(bounds) * TICK_H, segment[changes]
    ended = np.arange(len(lengths)) < len(lengths) - 1
    return lengths[kinds == up], ended[kinds == up]


def bucket_of(age_h: float) -> int:
    """The bucket in which a run of this age ends."""
    return int(np.searchsorted(AGES_H, age_h - 1e-9, side="right")) - 1


def exposure_by_age(length_h: float) -> Hours:
    """Hours that a run of this length spends in each bucket."""
    ends = np.append(AGES_H[1:], np.inf)
    return np.clip(length_h - np.array(AGES_H), 0.0, ends - np.array(AGES_H))


def fit_hazards(traces: Sequence[SpotTrace], *, source: str) -> HazardModel:
    """The model of some traces, each family of equal weight. Raises InputError where no change is seen at all."""
    ups = [lifetimes(trace, up=True) for trace in traces]
    downs = [lifetimes(trace, up=False) for trace in traces]
    if not sum(one.events.sum() for one in (*ups, *downs)):
        raise InputError(
            "spot neither went nor came back in these traces, so there is nothing to fit",
            hint="give traces with interruptions",
        )
    families = [trace.family for trace in traces]
    weights = np.array([1.0 / families.count(family) for family in families])
    return HazardModel(
        up=_direction(ups, weights),
        down=_direction(downs, weights),
        zones=len(traces),
        runs=round(sum(one.events.sum() for one in ups)),
        source=source,
    )


def _direction(zones: Sequence[Lifetimes], weights: Hours) -> Direction:
    """Shape and factors in turn, as in iterative proportional fitting, until they settle."""
    events = np.array([zone.events for zone in zones])
    exposure = np.array([zone.exposure_h for zone in zones])
    seen = exposure.sum(axis=1) > 0
    events, exposure, weights = events[seen], exposure[seen], weights[seen]
    factors = np.ones(len(events))
    shape = np.full(BUCKETS, max(events.sum(), 0.5) / exposure.sum())
    for _ in range(_ROUNDS):
        shape = _smoothed(weights @ events, weights @ (factors[:, None] * exposure))
        factors = (events.sum(axis=1) + _SHRINK) / (exposure @ shape + _SHRINK)
    logs = np.log(factors)
    mean = float(np.average(logs, weights=weights))
    spread = float(np.sqrt(np.average((logs - mean) ** 2, weights=weights)))
    return Direction(per_h=tuple(float(value) for value in shape), log_mean=mean, log_spread=max(spread, _LEAST_SPREAD))


def _smoothed(events: Hours, exposure: Hours) -> Hours:
    """Events over exposure, each bucket with one event's weight of its younger neighbour."""
    rates = []
    before = events.sum() / max(exposure.sum(), 1e-9)
    for happened, hours in zip(events, exposure, strict=True):
        before = (happened + 1.0) / (hours + 1.0 / max(before, 1e-6))
        rates.append(before)
    return np.array(rates)
