"""Several fleets on one course of traffic, each run by the control law, all computed at once.

A plan has up to two dozen fleets that differ in what a machine carries. One by one, most of the time goes to the
overhead of small arrays, so here an array element is a fleet, or a candidate rule of a fleet's law: the candidates of
all fleets lie one behind the other. The figures are those of `ControlLaw.decide`, bit for bit
(`tests/scaling/test_planned.py` asks the law itself); what cannot occur here is left out: a least of 0, hours of the
week, and reasons, which a plan does not show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tonnage.scaling import shadows
from tonnage.scaling.law import (
    MEMORY_S,
    PRUDENT_START_UPS,
    RESELECT,
    SERVICE_MEMORY,
    best_candidate,
    decision_interval_s,
)  # fmt: skip
from tonnage.scaling.service import ScaledService
from tonnage.scaling.shadows import Candidates
from tonnage.sizing.estimates import Array


class FluidFleet(NamedTuple):
    """A fleet of `units` that come and go. `slots` of a unit are really there, `law` is the unit as the law sees it
    (fewer slots), a request holds a slot for `held_s`."""

    slots: int
    held_s: float
    law: ScaledService


class FleetTotals(NamedTuple):
    """What was counted of a fleet since its traffic was judged. `late` requests found every unit at its most."""

    unit_s: float
    judged_s: float
    starts: int
    least: int
    most: int
    arrived: int
    late: float


def run_fleets(
    fleets: Sequence[FluidFleet], arrivals: Array, *, step_s: float, steps: int, judged_from_s: float
) -> tuple[FleetTotals, ...]:
    """The fleets under their laws. `arrivals`: (steps, fleets), requests of each step; the law is asked every `steps`
    of them. All fleets begin at their most and take the same time to start.

    >>> law = ScaledService(slots=7, start_up_s=60.0, promise_s=3.0, least=1, most=4)
    >>> fleet = FluidFleet(slots=10, held_s=6.0, law=law)
    >>> quiet, = run_fleets([fleet], np.full((600, 1), 10.0), step_s=6.0, steps=2, judged_from_s=1800.0)
    >>> quiet.least, quiet.most, quiet.unit_s  # 10 of 7 slots: two units for half an hour
    (2, 2, 3600.0)
    """
    run = _Fleets(fleets, every_s=step_s * steps)
    for begin in range(0, len(arrivals), steps):
        if begin * step_s >= judged_from_s:
            run.judged = True
        run.advance(arrivals[begin : begin + steps], step_s)
    return run.totals()


class _Fleets:
    """Units that serve, units that start, and the requests inside; an element a fleet."""

    def __init__(self, fleets: Sequence[FluidFleet], *, every_s: float) -> None:
        count = len(fleets)
        self.slots = np.array([one.slots for one in fleets], dtype=np.float64)
        self.held_s = np.array([one.held_s for one in fleets])
        self.start_up_s = fleets[0].law.start_up_s
        self.law = _Laws([one.law for one in fleets], every_s)
        self.now_s, self.inside = 0.0, np.zeros(count)
        self.ready = np.array([one.law.most for one in fleets], dtype=np.float64)
        self.paid = self.ready  # units that serve or start
        self.starting: list[tuple[float, Array]] = []  # when units will be ready, and how many of each fleet
        self.judged, self.judged_s = False, 0.0
        self.unit_s, self.late, self.arrived, self.starts = (np.zeros(count) for _ in range(4))
        self.least, self.most = self.ready.copy(), np.zeros(count)

    def advance(self, arrivals: Array, step_s: float) -> None:
        """Some steps, then a decision."""
        before = self.inside
        keep = exp_each(-step_s / self.held_s)
        added = arrivals * (self.held_s / step_s) * (1.0 - keep)
        inside, slots = np.empty_like(arrivals), np.empty_like(arrivals)
        for place in range(len(arrivals)):
            while self.starting and self.starting[0][0] <= self.now_s:
                self.ready = self.ready + self.starting.pop(0)[1]
            slots[place] = self.ready * self.slots
            inside[place] = self._inside(arrivals[place], added[place], slots[place], step_s, keep)
            self.now_s += step_s
            if self.judged:
                self.unit_s += self.paid * step_s
                self.judged_s += step_s
        late = arrivals * _chance_late(inside, slots)
        if self.judged:
            self.least, self.most = np.minimum(self.least, self.paid), np.maximum(self.most, self.paid)
            self.arrived += arrivals.sum(axis=0)
            for each in late:
                self.late += each
        self._decide(arrivals.sum(axis=0), before, np.add.accumulate(late)[-1])

    def _inside(self, arrived: Array, added: Array, slots: Array, step_s: float, keep: Array) -> Array:
        """Requests inside after a step: what is inside fits, or the full slots leave evenly."""
        free = added + self.inside * keep
        if (free > slots).any():
            come = self.inside + arrived
            full = np.maximum(come - slots * (step_s / self.held_s), np.minimum(slots, come))
            free = np.where(free <= slots, free, full)
        self.inside = free
        return free

    def _decide(self, arrived: Array, before: Array, late: Array) -> None:
        finished = np.maximum(np.rint(arrived + before - self.inside), 0.0)
        running = np.minimum(self.inside, self.ready * self.slots)
        wanted = self.law.decide(
            _Seen(arrived, finished, finished * self.held_s, np.rint(self.inside - running), self.ready, np.rint(late)),
            self.now_s,
        )
        more, fewer = np.maximum(wanted - self.paid, 0.0), np.maximum(self.paid - wanted, 0.0)
        if more.any():
            self.starting.append((self.now_s + self.start_up_s, more))
            self.starts += more * self.judged
        self.paid = wanted
        if not fewer.any():
            return
        for place in range(len(self.starting) - 1, -1, -1):  # those that started last are given up first
            ready_s, units = self.starting[place]
            given_up = np.minimum(units, fewer)
            self.starting[place] = ready_s, units - given_up
            fewer = fewer - given_up
        self.ready = self.ready - fewer

    def totals(self) -> tuple[FleetTotals, ...]:
        columns = (self.unit_s, self.starts, self.least, self.most, self.arrived, self.late)
        rows = zip(*(one.tolist() for one in columns), strict=True)
        return tuple(
            FleetTotals(unit_s, self.judged_s, int(starts), int(least), int(most), int(arrived), late)
            for unit_s, starts, least, most, arrived, late in rows
        )


def _chance_late(inside: Array, slots: Array) -> Array:
    """The chance that every slot is taken, given the arrivals: theirs is half the variance of a Poisson occupancy."""
    z = (inside - slots) / np.sqrt(np.maximum(inside, 1.0) / 2.0)
    chance: Array = 1.0 / (1.0 + exp_each(-np.clip(1.702 * z, -40.0, 40.0)))
    return chance


class _Seen(NamedTuple):
    """What the laws see, an element a fleet: as `Observation`."""

    arrived: Array
    finished: Array
    finished_work_s: Array
    waiting: Array
    ready: Array
    late: Array


class _Laws:
    """`ControlLaw` with its state and shadows, of several services: `of` says whose a candidate is."""

    def __init__(self, services: Sequence[ScaledService], every_s: float) -> None:
        rules = [_without_twins(shadows.default_candidates(one), one) for one in services]
        self.counts = [len(one.floor) for one in rules]
        ends = np.cumsum(self.counts).tolist()
        self.parts = [slice(end - count, end) for end, count in zip(ends, self.counts, strict=True)]
        self.of = np.repeat(np.arange(len(services)), self.counts)
        self.start_up_s = services[0].start_up_s
        self.slots = np.array([one.slots for one in services], dtype=np.float64)
        self.least, self.most = (np.array([getattr(one, name) for one in services], dtype=np.float64)
                                 for name in ("least", "most"))  # fmt: skip
        self.promise_s = np.array([one.promise_s for one in services])
        self.allowed = [1.0 - one.promised_fraction for one in services]
        self.signal, self.room, self.hold_s, self.floor = (
            np.concatenate([getattr(one, name) for one in rules]) for name in ("signal", "room", "hold_s", "floor")
        )
        self.rooms, room = np.unique(self.room, return_inverse=True)
        self.place_of_want = (self.of * (shadows.FIXED + 1) + self.signal) * len(self.rooms) + room
        self.slots_each, self.most_each = self._spread(self.slots), self._spread(self.most)
        self.chosen = np.array([part.start + one.prudent for part, one in zip(self.parts, rules, strict=True)])
        self.at_s: float | None = None
        self.service_s = np.maximum(self.promise_s, 1.0)
        self.weight, self.late, self.arrived = (np.zeros(len(services)) for _ in range(3))
        self.demand = self.past = np.zeros((3, len(services)))
        self.settled = np.zeros(len(services), dtype=bool)
        self.decisions, self.elapsed_s = 0, 0.0
        rows = shadows.ring_rows(services[0], every_s)
        self.level, self.inside, self.missed, self.paid_s = (np.zeros(len(self.of)) for _ in range(4))
        self.wanted, self.ring, self.place = self.floor.copy(), np.tile(self.floor, (rows, 1)), 0
        self.first_s = decision_interval_s(self.start_up_s)
        self._held_for_s, self._held = math.nan, self.hold_s

    def _spread(self, values: Array) -> Array:
        """A value a fleet -> a value a candidate."""
        return np.repeat(values, self.counts)

    def decide(self, seen: _Seen, at_s: float) -> Array:
        """The units wanted of each fleet at `at_s`."""
        elapsed_s = self.first_s if self.at_s is None else max(at_s - self.at_s, 1e-3)
        self._mean_service(seen)
        before = self.settled
        self._advance(seen.arrived, elapsed_s)
        late = self.late * math.exp(-elapsed_s / MEMORY_S) + seen.late
        self.late = np.where(self.settled & ~before, 0.0, late)  # who was late before is no rule's fault
        if self.decisions % RESELECT == RESELECT - 1 and self.elapsed_s >= PRUDENT_START_UPS * self.start_up_s:
            for fleet in np.flatnonzero(self.settled & (self.arrived > 0)).tolist():
                self._select(fleet)
        self.at_s, self.decisions = at_s, self.decisions + 1
        return np.clip(self._wanted(seen), self.least, self.most)

    def _mean_service(self, seen: _Seen) -> None:
        some = seen.finished > 0
        mean = seen.finished_work_s / np.where(some, seen.finished, 1.0)
        kept = np.minimum(self.weight, SERVICE_MEMORY)
        weight = kept + seen.finished
        mixed = (self.service_s * kept + mean * seen.finished) / np.where(some, weight, 1.0)
        self.service_s = np.where(some, np.where(kept == 0, mean, mixed), self.service_s)
        self.weight = np.where(some, weight, self.weight)

    def _select(self, fleet: int) -> None:
        part = self.parts[fleet]
        self.chosen[fleet] = part.start + best_candidate(
            self.missed[part], self.paid_s[part], int(self.chosen[fleet]) - part.start,
            arrived=float(self.arrived[fleet]), late=float(self.late[fleet]), allowed=self.allowed[fleet],
        )  # fmt: skip

    def _wanted(self, seen: _Seen) -> Array:
        wanted, capacity, rate = self.wanted[self.chosen], seen.ready * self.slots, self.demand[0]
        left = seen.waiting - np.maximum(capacity - rate, 0.0) * self.start_up_s / self.service_s
        extra = shadows.backlog_slots(left, self.service_s)
        backlog = np.where(extra > 0, np.ceil((rate + extra) / self.slots - 1e-9), 0.0)
        calm = (self.signal[self.chosen] == shadows.FIXED) & (self.demand[1] <= capacity)
        units: Array = np.where(calm, wanted, np.maximum(wanted, backlog))
        return units

    def _advance(self, arrived: Array, elapsed_s: float) -> None:
        """`shadows.advance` of all fleets. Backlogs are rare, so what follows from them is computed where they are."""
        self._smooth(arrived * self.service_s / elapsed_s, elapsed_s)
        ahead = shadows.expected_load(list(self.demand), list(self.past), self.start_up_s).T[:, :, None]
        loads = (ahead + self.rooms * np.sqrt(ahead)).ravel()  # in slots: fleet, signal, room
        slots = np.repeat(self.slots, len(loads) // len(self.slots))
        wants = (loads / slots).take(self.place_of_want)
        fresh = ~self.settled & (self.elapsed_s >= shadows.settling_s(self.start_up_s, self.service_s))
        if fresh.any():
            self._settle(fresh, wants)
        ready = self.ring.min(axis=0)
        ready *= self.slots_each
        late = self._fill(arrived, ready, elapsed_s)
        behind = np.flatnonzero((self.inside > ready) & (self.signal != shadows.FIXED))
        if len(behind):
            whose, room = self.of[behind], ready[behind]
            free = np.maximum(room - self.demand[0][whose], 0.0) * self.start_up_s / self.service_s[whose]
            extra = shadows.backlog_slots(np.maximum(self.inside[behind] - room, 0.0) - free, self.service_s[whose])
            wants[behind] = (loads[self.place_of_want[behind]] + extra) / self.slots_each[behind]
        if self._held_for_s != elapsed_s:
            self._held_for_s, self._held = elapsed_s, np.exp(-elapsed_s / self.hold_s)
        self.level = shadows.held_level(wants, self.level, self._held, self.floor)
        fade = math.exp(-elapsed_s / MEMORY_S)
        self.missed *= fade
        self.missed += late
        self.paid_s *= fade
        self.paid_s += self.wanted * elapsed_s
        self.wanted = shadows.whole_replicas(self.level, self.most_each)
        self.ring[self.place] = self.wanted
        self.place = (self.place + 1) % len(self.ring)
        self.arrived = self.arrived * fade + arrived
        self.elapsed_s += elapsed_s

    def _smooth(self, offered: Array, elapsed_s: float) -> None:
        fast, middle, slow = shadows.time_constants(self.start_up_s, 0.0)
        taus = np.array([np.maximum(fast, self.service_s), np.maximum(middle, self.service_s), slow + 0.0 * offered])
        shares = 1.0 - exp_each(-elapsed_s / taus) if self.elapsed_s > 0 else np.ones_like(taus)
        self.demand = self.demand + (offered - self.demand) * shares
        self.past = self.past + (self.demand - self.past) * shares

    def _settle(self, fresh: Array, wants: Array) -> None:
        """The load of these fleets is known now: their shadows begin with what it asks for, and with nothing missed."""
        mine = fresh[self.of]
        self.level[mine] = np.maximum(wants[mine], self.floor[mine])
        self.wanted[mine] = shadows.whole_replicas(self.level[mine], self.most_each[mine])
        self.ring[:, mine] = self.wanted[mine]
        self.inside[mine] = np.minimum(self.demand[0][self.of[mine]], self.wanted[mine] * self.slots_each[mine])
        self.missed[mine] = self.paid_s[mine] = 0.0
        self.arrived = np.where(fresh, 0.0, self.arrived)
        self.settled = self.settled | fresh

    def _fill(self, arrived: Array, ready: Array, elapsed_s: float) -> Array:
        """What is inside after an interval; answers how many of the arrivals were late."""
        keep = exp_each(-elapsed_s / self.service_s)
        added = arrived * (self.service_s / elapsed_s) * (1.0 - keep)
        free = self.inside * self._spread(keep)
        free += self._spread(added)
        full = np.flatnonzero(free > ready)
        if len(full):
            room, come = ready[full], (self.inside[full] + arrived[self.of[full]])
            left = room * (elapsed_s / self.service_s)[self.of[full]]
            free[full] = np.maximum(come - left, np.minimum(room, come))
        self.inside = free
        promised = self._spread(1.0 + self.promise_s / self.service_s)
        promised *= ready
        late: Array = shadows.chance_late(free, promised)
        late *= self._spread(arrived)
        return late


def _without_twins(rules: Candidates, service: ScaledService) -> Candidates:
    """The rules without those that, as one before them, hold the most at all times."""
    always = (rules.floor >= service.most) & (rules.signal != shadows.FIXED)
    always[np.flatnonzero(always)[:1]] = False
    always[rules.prudent] = False
    kept = ~always
    return Candidates(
        signal=rules.signal[kept], room=rules.room[kept], hold_s=rules.hold_s[kept], floor=rules.floor[kept],
        prudent=int(kept[: rules.prudent].sum()),
    )  # fmt: skip


def exp_each(values: Array) -> Array:
    """The exponential as `math` has it, for few values: that of numpy may differ in the last bit."""
    return np.array([math.exp(value) for value in values.ravel().tolist()]).reshape(values.shape)
