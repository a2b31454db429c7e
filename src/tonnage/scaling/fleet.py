"""Replicas event by event: requests arrive, wait for a slot, are answered; a policy starts and drains replicas.

One queue feeds all replicas, first come first served; a request goes to the ready replica with the fewest in flight. A
replica is paid from its start until it has drained. A policy sees only what a real service would see.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heapify, heappop, heappush
from typing import Any, Final

import numpy as np

from tonnage.scaling.load import Load
from tonnage.scaling.reasons import ScalingReason
from tonnage.scaling.service import Observation, Policy, ScaledService
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

STARTING, READY, DRAINING, GONE = range(4)
Point = tuple[float, int, int, int]
LONGEST_TAIL_S: Final = 3600.0  # after the last arrival: what still waits then is late


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUp:
    """How long a replica takes from its start to its first request: log-normal of this variation, or fixed at 0.

    `warm` replicas of a pool stand by, started but idle; each starts within `warm_s`, is replaced by a new one, and
    costs `warm_cost_fraction` of a running replica.
    """

    mean_s: float
    variation: float = 0.0
    warm: int = 0
    warm_s: float = 1.0
    warm_cost_fraction: float = 0.1

    def draw(self, random: np.random.Generator) -> float:
        """Seconds of one start."""
        if self.variation == 0 or self.mean_s == 0:
            return self.mean_s
        spread = math.log1p(self.variation**2)
        return self.mean_s * math.exp(math.sqrt(spread) * random.standard_normal() - spread / 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A decision that changed the number of replicas."""

    at_s: float
    wanted: int
    reason: ScalingReason


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRun:
    """What a simulated time cost and how it went, from `judged_from_s` on."""

    policy: str
    requests: int
    late: int
    replica_hours: float
    warm_hours: float
    starts: int
    most_replicas: int
    wait_p50_s: float
    wait_p99_s: float
    lost: int  # requests never answered: none, unless replicas stay at 0
    past_kept_fraction: float  # before `judged_from_s`
    past_replica_hours: float
    changes: tuple[Change, ...]
    timeline: tuple[Point, ...]  # second, replicas paid, replicas ready, requests inside

    @property
    def kept_fraction(self) -> float:
        return 1.0 - self.late / self.requests if self.requests else 1.0


def simulate_fleet(
    load: Load,
    service: ScaledService,
    policy: Policy[Any],
    *,
    start_up: StartUp | None = None,
    initial: int = 1,
    judged_from_s: float = 0.0,
    seed: int = 0,
) -> FleetRun:
    """The load on replicas that `policy` starts and drains. Same inputs, same figures.

    Requests that arrive before `judged_from_s`, and replica-hours before it, count in no figure: the policy learns.
    """
    fleet = _Fleet(load, service, start_up or StartUp(mean_s=service.start_up_s), seed)
    fleet.start(service.within(initial), 0.0, at_once=True)
    state, tick = policy.begin(), policy.interval_s
    timeline: list[Point] = []
    changes: list[Change] = []
    end_s = load.span_s
    while tick <= end_s + LONGEST_TAIL_S and (tick <= end_s or fleet.inside):
        fleet.run_until(tick)
        state, wanted, reason = policy.decide(state, fleet.observe(), tick)
        if wanted != fleet.paid:
            changes.append(Change(at_s=tick, wanted=wanted, reason=reason))
        fleet.scale_to(wanted, tick)
        if tick <= end_s:
            timeline.append((tick, fleet.paid, fleet.ready, fleet.inside))
        tick += policy.interval_s
    fleet.run_until(end_s)
    return _result(policy.name, fleet, load, service, judged_from_s, timeline, changes)


def _result(
    name: str, fleet: _Fleet, load: Load, service: ScaledService, from_s: float, timeline: list[Point],
    changes: list[Change],
) -> FleetRun:  # fmt: skip
    waits = np.array(fleet.begun_s) - load.at_s
    late = ~(waits <= service.promise_s + 1e-9)  # NaN: never begun
    judged = load.at_s >= from_s
    known = waits[judged & ~np.isnan(waits)]
    p50, p99 = (float(one) for one in np.percentile(known, (50, 99))) if len(known) else (math.nan, math.nan)
    return FleetRun(
        policy=name, requests=int(judged.sum()), late=int(late[judged].sum()),
        replica_hours=fleet.paid_s(from_s, load.span_s) / 3600.0,
        warm_hours=fleet.start_up.warm * (load.span_s - from_s) / 3600.0,
        starts=sum(one > from_s for one in fleet.started_s),
        most_replicas=max((paid for at, paid, _, _ in timeline if at >= from_s), default=0),
        wait_p50_s=p50, wait_p99_s=p99, lost=int(np.isnan(waits).sum()),
        past_kept_fraction=1.0 - float(late[~judged].mean()) if (~judged).any() else 1.0,
        past_replica_hours=fleet.paid_s(0.0, from_s) / 3600.0, changes=tuple(changes), timeline=tuple(timeline),
    )  # fmt: skip


class _Fleet:
    """Replicas, their queue, and the events to come. A replica is its place in parallel lists."""

    def __init__(self, load: Load, service: ScaledService, start_up: StartUp, seed: int) -> None:
        self.arrivals, self.needs = load.at_s.tolist(), load.service_s.tolist()
        self.slots, self.promise_s, self.start_up = service.slots, service.promise_s, start_up
        self.random = np.random.default_rng(seed)
        self.begun_s = [math.nan] * len(self.arrivals)
        self.next = 0  # the next request to arrive
        self.queue: deque[int] = deque()
        self.events: list[tuple[float, int, int]] = []  # when, replica, request (-1: the replica is ready)
        self.free: list[tuple[int, int]] = []  # (in flight, replica), entries may be outdated
        self.alive: list[int] = []  # starting or ready
        self.state: list[int] = []
        self.started_s: list[float] = []
        self.stopped_s: list[float] = []
        self.busy: list[int] = []
        self.ready = self.paid = self.running = 0
        self.warm_at_s = [0.0] * start_up.warm
        self.arrived = self.finished = self.late = 0
        self.finished_work_s = 0.0

    @property
    def inside(self) -> int:
        return len(self.queue) + self.running

    def observe(self) -> Observation:
        """What was seen since the last time."""
        held = self.paid - self.ready
        now = Observation(
            arrived=self.arrived, finished=self.finished, finished_work_s=self.finished_work_s,
            waiting=len(self.queue), running=self.running, ready=self.ready, starting=held, late=self.late,
        )  # fmt: skip
        self.arrived = self.finished = self.late = 0
        self.finished_work_s = 0.0
        return now

    def run_until(self, until_s: float) -> None:
        """All arrivals, starts and ends up to `until_s`."""
        arrivals, events = self.arrivals, self.events
        count = len(arrivals)
        while True:
            arrival = arrivals[self.next] if self.next < count else math.inf
            if events and events[0][0] <= arrival:
                if events[0][0] > until_s:
                    return
                at_s, replica, request = heappop(events)
                if request < 0:
                    self._becomes_ready(replica, at_s)
                else:
                    self._ends(replica, request, at_s)
            elif arrival <= until_s:
                self.arrived += 1
                self.queue.append(self.next)
                self.next += 1
                if len(self.queue) == 1:
                    self._dispatch(arrival)
            else:
                return

    def _dispatch(self, at_s: float) -> None:
        """Waiting requests go to free slots, one at a time to the replica with the fewest in flight."""
        queue, free, busy, state = self.queue, self.free, self.busy, self.state
        while queue and free:
            flying, replica = heappop(free)
            if state[replica] != READY or busy[replica] != flying:
                continue
            request = queue.popleft()
            busy[replica] = flying + 1
            if flying + 1 < self.slots:
                heappush(free, (flying + 1, replica))
            self.running += 1
            self.begun_s[request] = at_s
            self.late += at_s - self.arrivals[request] > self.promise_s
            heappush(self.events, (at_s + self.needs[request], replica, request))

    def _ends(self, replica: int, request: int, at_s: float) -> None:
        self.busy[replica] -= 1
        self.running -= 1
        self.finished += 1
        self.finished_work_s += self.needs[request]
        if self.state[replica] == READY:
            heappush(self.free, (self.busy[replica], replica))
            if self.queue:
                self._dispatch(at_s)
        elif self.busy[replica] == 0:
            self._goes(replica, at_s)

    def _becomes_ready(self, replica: int, at_s: float) -> None:
        if self.state[replica] == STARTING:
            self.state[replica] = READY
            self.ready += 1
            heappush(self.free, (0, replica))
            self._dispatch(at_s)

    def _goes(self, replica: int, at_s: float) -> None:
        self.state[replica] = GONE
        self.stopped_s[replica] = at_s

    def scale_to(self, wanted: int, at_s: float) -> None:
        """Start what lacks; of what is too much, the newest starting ones stop, then the emptiest drain."""
        if wanted > self.paid:
            self.start(wanted - self.paid, at_s)
        for _ in range(self.paid - wanted):
            self._drain_one(at_s)
        if len(self.free) > 4 * (self.slots + 1) * (self.ready + 1):
            self.free = [(b, r) for r, b in enumerate(self.busy) if self.state[r] == READY and b < self.slots]
            heapify(self.free)

    def start(self, count: int, at_s: float, *, at_once: bool = False) -> None:
        """New replicas; from the warm pool while it has any."""
        for _ in range(count):
            replica = len(self.state)
            self.alive.append(replica)
            self.state.append(STARTING)
            self.started_s.append(at_s)
            self.stopped_s.append(math.inf)
            self.busy.append(0)
            self.paid += 1
            if at_once:
                self._becomes_ready(replica, at_s)
            else:
                heappush(self.events, (at_s + self._takes_s(at_s), replica, -1))

    def _takes_s(self, at_s: float) -> float:
        cold_s = self.start_up.draw(self.random)
        for place, since_s in enumerate(self.warm_at_s):
            if since_s <= at_s:
                self.warm_at_s[place] = at_s + cold_s  # its successor
                return min(self.start_up.warm_s, cold_s)
        return cold_s

    def _drain_one(self, at_s: float) -> None:
        alive = [one for one in self.alive if self.state[one] in (STARTING, READY)]
        starting = [one for one in alive if self.state[one] == STARTING]
        chosen = starting[-1] if starting else min(alive, key=lambda one: (self.busy[one], -one))
        self.paid -= 1
        self.ready -= not starting
        self.state[chosen] = DRAINING
        self.alive = [one for one in alive if one != chosen]
        if self.busy[chosen] == 0:
            self._goes(chosen, at_s)

    def paid_s(self, from_s: float, to_s: float) -> float:
        """Replica-seconds paid between two times; a draining replica is paid."""
        begin: Array = np.clip(np.array(self.started_s), from_s, to_s)
        end: Array = np.clip(np.array(self.stopped_s), from_s, to_s)
        return float(np.sum(end - begin))
