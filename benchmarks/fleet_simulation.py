"""The autoscaled fleet event by event: arrivals, ticks of the autoscaler, machines that start, warm up, drain and stop.

Written apart from the closed form, to check it: nothing is averaged here.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import field

import numpy as np

from tonnage.service.autoscaling import Autoscaling
from tonnage.service.rate_curve import DAY_S, RateCurve
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFleet:
    """What a simulated time cost and how it went."""

    machine_hours: float
    mean_machines: float
    most_machines: int
    requests: int
    latency_p95_s: float
    latency_p99_s: float


@dataclass(slots=True, eq=False)
class _Machine:
    started_s: float
    warm_s: float
    free_at: list[float]  # a heap: when each slot is free
    stopping: bool = False
    last_s: float = field(default=0.0)  # when its last request is done


def simulate_fleet(
    curve: RateCurve,
    rate_per_s: float,
    capacity_per_s: float,
    policy: Autoscaling,
    *,
    concurrency: int,
    seed: int,
    variation: float = 1.0,
    days: float = 1.0,
) -> SimulatedFleet:
    """Machine-hours and latency of `days` days. A request holds one of `concurrency` slots for exponential times of
    mean concurrency / capacity, so that a full machine answers `capacity_per_s`."""
    random = np.random.default_rng(seed)
    arrivals = arrival_times_s(curve, rate_per_s, variation, days, random)
    stay = random.standard_exponential(len(arrivals)) * (concurrency / capacity_per_s)
    fleet = _Fleet(policy, policy.target_per_s(capacity_per_s, curve), concurrency)
    fleet.begin(max(math.ceil(rate_per_s * float(curve.at(np.zeros(1))[0]) / fleet.target), 1) + policy.spare)
    done, tick = np.empty(len(arrivals)), policy.window_s
    for number, (at_s, needs_s) in enumerate(zip(arrivals.tolist(), stay.tolist(), strict=True)):
        while at_s >= tick:
            fleet.tick(tick)
            tick += policy.window_s
        done[number] = fleet.serve(at_s, needs_s)
    end = days * DAY_S
    while tick <= end:
        fleet.tick(tick)
        tick += policy.window_s
    seconds = fleet.paid_s(end)
    latency = done - arrivals if len(arrivals) else np.zeros(1)
    p95, p99 = (float(one) for one in np.percentile(latency, (95, 99)))
    return SimulatedFleet(
        machine_hours=seconds / 3600.0, mean_machines=seconds / end, most_machines=fleet.most,
        requests=len(arrivals), latency_p95_s=p95, latency_p99_s=p99,
    )  # fmt: skip


def arrival_times_s(
    curve: RateCurve, rate_per_s: float, variation: float, days: float, random: np.random.Generator
) -> Array:
    """Gamma gaps on the clock of the integrated rate: a renewal process whose rate follows the curve."""
    grid = np.arange(0.0, days * DAY_S + 60.0, 60.0)
    rate = rate_per_s * curve.at(grid)
    integral = np.concatenate(([0.0], np.cumsum(0.5 * (rate[1:] + rate[:-1]) * 60.0)))
    expected = float(integral[-1])
    count = int(expected + 10.0 * variation * math.sqrt(expected + 1.0) + 20)
    shape = 1.0 / variation**2
    when = np.cumsum(random.standard_gamma(shape, count) / shape)
    times = np.asarray(np.interp(when[when < expected], integral, grid), dtype=np.float64)
    return times[times < days * DAY_S]


class _Fleet:
    """Machines and the autoscaler that starts and stops them."""

    def __init__(self, policy: Autoscaling, target_per_s: float, concurrency: int) -> None:
        self.policy, self.target, self.concurrency = policy, target_per_s, concurrency
        self.machines: list[_Machine] = []
        self.stopped_s = 0.0  # machine-seconds of machines gone
        self.counted = 0
        self.wants: deque[tuple[float, int]] = deque()
        self.most = 0

    def begin(self, count: int) -> None:
        for _ in range(self._inside(count)):
            self.machines.append(_Machine(0.0, 0.0, [0.0] * self.concurrency))
        self.most = len(self.machines)

    def _inside(self, count: int) -> int:
        most = count if self.policy.maximum is None else self.policy.maximum
        return min(max(count, self.policy.minimum), max(most, self.policy.minimum))

    def serve(self, at_s: float, needs_s: float) -> float:
        """When the request is done: on the warm machine with the earliest free slot, one that stays if there is."""
        self.counted += 1
        open_ones = [one for one in self.machines if one.warm_s <= at_s and not one.stopping]
        if not open_ones:
            if not self.machines:
                self._start(at_s)
            open_ones = [min(self.machines, key=lambda one: (one.stopping, one.warm_s))]
        chosen = min(open_ones, key=lambda one: (max(one.free_at[0], at_s), -len(one.free_at)))
        begin = max(chosen.free_at[0], at_s, chosen.warm_s)
        heapq.heapreplace(chosen.free_at, begin + needs_s)
        chosen.last_s = max(chosen.last_s, begin + needs_s)
        return begin + needs_s

    def tick(self, now_s: float) -> None:
        policy = self.policy
        want = math.ceil(self.counted / (policy.window_s * self.target) - 1e-9)
        want = self._inside(want + policy.spare if self.counted else want)
        self.counted = 0
        self.wants.append((now_s, want))
        while self.wants[0][0] < now_s - policy.scale_in_delay_s - 1e-9:
            self.wants.popleft()
        held = [one for one in self.machines if not one.stopping]
        wanted = max(one for _, one in self.wants)
        for _ in range(wanted - len(held)):
            self._start(now_s)
        for one in sorted(held, key=lambda m: -m.started_s)[: max(len(held) - wanted, 0)]:
            one.stopping = True
        self._collect(now_s)
        self.most = max(self.most, sum(not one.stopping for one in self.machines))

    def _start(self, now_s: float) -> None:
        warm = now_s + self.policy.warm_up_s
        self.machines.append(_Machine(now_s, warm, [warm] * self.concurrency))

    def _collect(self, now_s: float) -> None:
        """Machines told to stop are paid until their last request is done."""
        for one in [m for m in self.machines if m.stopping]:
            if one.last_s <= now_s:
                self.stopped_s += now_s - one.started_s
                self.machines.remove(one)

    def paid_s(self, end_s: float) -> float:
        return self.stopped_s + sum(end_s - one.started_s for one in self.machines)
