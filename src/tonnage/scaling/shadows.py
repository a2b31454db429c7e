"""A shadow of the service under each candidate rule: what the rule would have held, paid and missed so far.

All candidates are computed at once, one array element each. A shadow has N requests inside and C slots. Within an
interval dt, arrivals a come evenly; if N stays within C, it follows dN/dt = a/dt - N/s (s: mean seconds of a request),
else C/s leave each second. The wait of an arrival is (N - C)·s/C, so it is late if N > C·(1 + promise/s). N is known
up to its service times; given arrivals, their part of the variance of a Poisson occupancy is N/2, so the chance that
an arrival is late is Φ((N - C·(1 + promise/s)) / sqrt(N/2)).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from tonnage.scaling.service import ScaledService
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

CLEAR_S: Final = 30.0  # a backlog that outlives a start-up is worked off within this time
SIGNALS: Final = ("fast", "fast+trend", "middle", "middle+trend", "slow")  # and beyond them: fixed
FIXED: Final = len(SIGNALS)
ROOMS: Final = (0.5, 1.0, 2.0, 3.0, 4.5)
HOLDS: Final = (0.25, 2.0, 8.0, 30.0)  # start-ups
FAST_S: Final = 10.0
SHORTEST_S: Final = 5.0  # a start-up counts as at least this
SLOW_START_UPS: Final = 4.0
STRESS: Final = 0.1  # a rule must have kept the promise with so much more inside: the past is only a sample
SETTLING_START_UPS: Final = 2.0
SETTLING_SERVICES: Final = 3.0  # mean times of a request
ROUND_DOWN: Final = 0.02  # of a replica: so little of one is not started
FLOORS: Final = 16  # of rules that follow the load
FIXED_FLOORS: Final = 64

Speeds = tuple[float, float, float]  # fast, middle, slow
N = TypeVar("N", float, Array)  # of one service, or an element a service


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Rules, one array element each."""

    signal: Array  # place in SIGNALS
    room: Array  # so many roots of the load on top
    hold_s: Array
    floor: Array  # replicas
    prudent: int  # the rule to follow while nothing is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadows:
    """The state of the shadows. Arrays have an element a candidate."""

    elapsed_s: float
    settled: bool  # the load is known: from then on what rules miss and pay is counted
    arrived: float  # faded sum
    demand: Speeds  # load in slots, smoothed: fast, middle, slow
    past: Speeds  # the same, one more time smoothed, for the trend
    level: Array  # replicas, after the hold
    wanted: Array  # whole replicas
    ring: Array  # (intervals of a start-up, candidates): wanted then
    place: int
    inside: Array
    missed: Array
    paid_s: Array


def default_candidates(service: ScaledService) -> Candidates:
    """Every signal with every room, hold and floor."""
    floors, fixed_floors = _floors(service, FLOORS), _floors(service, FIXED_FLOORS)
    signal, room, hold, floor = np.meshgrid(
        np.arange(len(SIGNALS)), ROOMS, np.array(HOLDS) * max(service.start_up_s, SHORTEST_S), floors, indexing="ij"
    )
    flat = [one.ravel().astype(np.float64) for one in (signal, room, hold, floor)]
    wished = (1, max(ROOMS), max(HOLDS) * max(service.start_up_s, SHORTEST_S), service.least)
    distance = sum(np.abs(one - wish) / max(wish, 1.0) for one, wish in zip(flat, wished, strict=True))
    count = len(fixed_floors)
    fixed = (np.full(count, FIXED), np.zeros(count), np.ones(count), fixed_floors)
    signal, room, hold, floor = (np.concatenate(pair) for pair in zip(flat, fixed, strict=True))
    return Candidates(
        signal=signal.astype(np.int64), room=room, hold_s=hold, floor=floor, prudent=int(np.argmin(distance))
    )


def _floors(service: ScaledService, count: int) -> Array:
    """Whole numbers from the least to the most replicas, the first ones all, then in equal ratios."""
    most = service.most - service.least
    if most < count:
        return service.least + np.arange(most + 1.0)
    near = np.arange(count // 2)
    far = np.geomspace(count // 2, most, count - len(near))
    return service.least + np.unique(np.rint(np.concatenate((near, far))))


def begin(rules: Candidates, service: ScaledService, interval_s: float) -> Shadows:
    count = len(rules.floor)
    ring = np.tile(rules.floor, (ring_rows(service, interval_s), 1))
    return Shadows(
        elapsed_s=0.0, settled=False, arrived=0.0, demand=(0.0, 0.0, 0.0), past=(0.0, 0.0, 0.0), level=np.zeros(count),
        wanted=rules.floor.copy(), ring=ring, place=0, inside=np.zeros(count), missed=np.zeros(count),
        paid_s=np.zeros(count),
    )  # fmt: skip


def ring_rows(service: ScaledService, interval_s: float) -> int:
    """Decisions that a start-up lasts, this one included."""
    return math.ceil(service.start_up_s / interval_s - 1e-9) + 1


def advance(
    now: Shadows,
    rules: Candidates,
    service: ScaledService,
    *,
    arrived: int,
    service_s: float,
    elapsed_s: float,
    memory_s: float,
) -> Shadows:
    """The shadows `elapsed_s` later, in which `arrived` requests came. The past fades with `memory_s`."""
    taus = time_constants(service.start_up_s, service_s)
    demand, past = _smoothed(now, arrived * service_s / elapsed_s, taus, elapsed_s)
    if not now.settled and now.elapsed_s >= settling_s(service.start_up_s, service_s):
        now = _settled(now, rules, service, demand, past)
    ready = now.ring.min(axis=0) * service.slots
    inside = _inside(now.inside, ready, arrived, service_s, elapsed_s)
    fade = math.exp(-elapsed_s / memory_s)
    late = np.where(ready > 0, chance_late(inside, ready * (1.0 + service.promise_s / service_s)), 1.0)
    ahead = expected_load(demand, past, service.start_up_s)[rules.signal]
    waiting = np.maximum(inside - ready, 0.0) - np.maximum(ready - demand[0], 0.0) * service.start_up_s / service_s
    extra = np.where(rules.signal == FIXED, 0.0, backlog_slots(waiting, service_s))
    want = (ahead + rules.room * np.sqrt(ahead) + extra) / service.slots
    level = held_level(want, now.level, np.exp(-elapsed_s / rules.hold_s), rules.floor)
    wanted = whole_replicas(level, service.most)
    ring = now.ring.copy()
    ring[now.place] = wanted
    return Shadows(
        elapsed_s=now.elapsed_s + elapsed_s, settled=now.settled, arrived=now.arrived * fade + arrived,
        demand=demand, past=past, level=level, wanted=wanted, ring=ring, place=(now.place + 1) % len(ring),
        inside=inside, missed=now.missed * fade + late * arrived, paid_s=now.paid_s * fade + now.wanted * elapsed_s,
    )  # fmt: skip


def settling_s(start_up_s: float, service_s: N) -> N:
    """Seconds after which the load is known, and the first replicas that it asked for could have started."""
    return SETTLING_START_UPS * max(start_up_s, SHORTEST_S) + SETTLING_SERVICES * service_s


def held_level(want: Array, before: Array, held: Array, floor: Array) -> Array:
    """Replicas that rules hold: what they want, at least `held` of what they had beyond it, never below the floor."""
    level = before - want
    level *= held
    level += want
    return np.maximum(np.maximum(want, level, out=level), floor, out=level)


def whole_replicas(level: Array, most: float | Array) -> Array:
    """Whole replicas of a level."""
    whole: Array = level - ROUND_DOWN
    return np.minimum(np.ceil(whole, out=whole), most, out=whole)


def _settled(now: Shadows, rules: Candidates, service: ScaledService, demand: Speeds, past: Speeds) -> Shadows:
    """The shadows with what their rules ask for of the load that is there; what was before is no rule's fault.

    A service that is started, or whose law starts over, has its users already. Shadows begin at their floors, so all
    are late until replicas have started; if that counted, rules that follow the load would be refused for hours.
    """
    ahead = expected_load(demand, past, service.start_up_s)[rules.signal]
    level = np.maximum((ahead + rules.room * np.sqrt(ahead)) / service.slots, rules.floor)
    wanted = whole_replicas(level, service.most)
    nothing = np.zeros(len(level))
    return replace(
        now, settled=True, arrived=0.0, level=level, wanted=wanted, ring=np.tile(wanted, (len(now.ring), 1)),
        inside=np.minimum(demand[0], wanted * service.slots), missed=nothing, paid_s=nothing,
    )  # fmt: skip


def levels(now: Shadows, rules: Candidates, service: ScaledService) -> Array:
    """The load in slots that each rule expects once a replica has started."""
    expected: Array = expected_load(now.demand, now.past, service.start_up_s)[rules.signal]
    return expected


def backlog_slots(left: float | Array, service_s: float) -> Array:
    """Slots that work off `left` requests, those that still wait after a start-up."""
    slots: Array = np.maximum(left, 0.0) * service_s / (CLEAR_S + service_s)
    return slots


def time_constants(start_up_s: float, service_s: float) -> Speeds:
    """Seconds over which the three signals are smoothed: never less than a request takes."""
    start = max(start_up_s, SHORTEST_S)
    return max(FAST_S, service_s), max(start, service_s), SLOW_START_UPS * start


def _smoothed(now: Shadows, offered: float, taus: Speeds, elapsed_s: float) -> tuple[Speeds, Speeds]:
    """Each signal smoothed once, and twice: their difference over the time constant is its slope."""
    shares = [1.0 - math.exp(-elapsed_s / tau) if now.elapsed_s > 0 else 1.0 for tau in taus]
    once = [old + (offered - old) * share for old, share in zip(now.demand, shares, strict=True)]
    twice = [old + (new - old) * share for old, new, share in zip(now.past, once, shares, strict=True)]
    return (once[0], once[1], once[2]), (twice[0], twice[1], twice[2])


def expected_load(demand: Sequence[N], past: Sequence[N], start_up_s: float) -> Array:
    """Each signal of SIGNALS, and 0 for rules of a fixed number. Trends are carried over the start-up and their lag.
    Of several services: (signals, services)."""
    fast, middle, slow = demand
    taus = time_constants(start_up_s, 0.0)
    rising = fast + (fast - past[0]) / taus[0] * min(start_up_s, 3.0 * taus[0])
    climbing = middle + (middle - past[1]) / taus[1] * (start_up_s + taus[1])
    signals: Array = np.maximum(np.array([fast, rising, middle, climbing, slow, 0.0 * slow]), 0.0)
    return signals


def _inside(inside: Array, ready: Array, arrived: int, service_s: float, elapsed_s: float) -> Array:
    """Requests inside after an interval: as with endless slots while they fit, else the full slots leave evenly."""
    keep = math.exp(-elapsed_s / service_s)
    free = arrived * (service_s / elapsed_s) * (1.0 - keep) + inside * keep
    come = inside + arrived
    return np.where(free <= ready, free, np.maximum(come - ready * (elapsed_s / service_s), np.minimum(ready, come)))


def chance_late(inside: Array, promised: Array) -> Array:
    """The chance that an arrival waits too long where so many inside are the promise's limit; Φ as the logistic
    function of 1.702 z."""
    z: Array = inside * (1.0 + STRESS)
    z -= promised
    z /= np.sqrt(np.maximum(inside, 1.0) / 2.0)
    z *= -1.702
    np.exp(np.clip(z, -40.0, 40.0, out=z), out=z)
    z += 1.0
    return np.divide(1.0, z, out=z)
