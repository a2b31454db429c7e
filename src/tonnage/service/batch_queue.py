"""Items in a queue, worked off by k machines, event by event: written apart from the plan's closed form, to check it.

A machine takes what it has in flight at a time. A lost machine's items go back to the queue; spot stays away for a
while, and the next machine starts anew. An item fails with probability p and is tried again. Machines are paid while
they live, till the queue is empty.
"""

from __future__ import annotations

import heapq
import math

import numpy as np

from tonnage.errors import InputError
from tonnage.spot_instances.drawing import draws
from tonnage.spot_instances.hazards import HazardModel
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJob:
    """The work and the machines. Rates are of one machine; `hazard` None: machines stay."""

    items: int
    items_per_s: float
    machines: int
    usd_per_machine_hour: float
    in_flight: int
    hazard: HazardModel | None = None
    startup_s: float = 300.0
    item_failure: float = 0.0  # probability that one try fails

    def __post_init__(self) -> None:
        if min(self.items, self.machines, self.in_flight) < 1 or not self.items_per_s > 0:
            raise InputError("a queue needs items, machines and a rate above 0")
        if not 0 <= self.item_failure < 1 or self.startup_s < 0:
            raise InputError("failures lie in 0 to below 1, start-up at 0 or above")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueResult:
    """When the queue is empty, and what was paid till then."""

    finish_s: float
    usd: float


def simulate_queue(job: QueueJob, *, seed: int) -> QueueResult:
    """One run of the queue."""
    return _Queue(job, np.random.default_rng(seed)).run()


class _Queue:
    """Machines, what they hold, and the items left."""

    def __init__(self, job: QueueJob, random: np.random.Generator) -> None:
        self.job, self.random, self.todo = job, random, job.items
        self.launched, self.dies = [0.0] * job.machines, [math.inf] * job.machines
        self.idle: list[int] = []
        self.events: list[tuple[float, int, int, bool]] = []  # (when, machine, items in hand, lost)
        self.paid_s = self.end_s = 0.0
        for machine in range(job.machines):
            self._launch(machine, 0.0)

    def run(self) -> QueueResult:
        working = 0
        while self.events and (self.todo or working):
            now, machine, items, lost = heapq.heappop(self.events)
            working -= items > 0
            if lost:
                self.todo += items
                self.paid_s += now - self.launched[machine]
                self._launch(machine, now + self._away_s())
            else:
                if items:
                    self.end_s = now
                    self.todo += int(self.random.binomial(items, self.job.item_failure)) if self.job.item_failure else 0
                self.idle.append(machine)
            while self.todo and self.idle:
                self._take(self.idle.pop(), now)
                working += 1
        for launched in self.launched:
            self.paid_s += max(self.end_s - launched, 0.0)
        return QueueResult(finish_s=self.end_s, usd=self.paid_s * self.job.usd_per_machine_hour / SECONDS_PER_HOUR)

    def _take(self, machine: int, now: float) -> None:
        items = min(self.job.in_flight, self.todo)
        self.todo -= items
        needs, dies = items / self.job.items_per_s, self.dies[machine]
        lost = dies < now + needs
        heapq.heappush(self.events, (max(dies, now) if lost else now + needs, machine, items, lost))

    def _launch(self, machine: int, at_s: float) -> None:
        self.launched[machine], self.dies[machine] = at_s, at_s + self._life_s()
        ready = at_s + self.job.startup_s
        lost = self.dies[machine] < ready
        heapq.heappush(self.events, (self.dies[machine] if lost else ready, machine, 0, lost))

    def _life_s(self) -> float:
        return math.inf if self.job.hazard is None else self._drawn_s(self.job.hazard, up=True)

    def _away_s(self) -> float:
        assert self.job.hazard is not None
        return self._drawn_s(self.job.hazard, up=False)

    def _drawn_s(self, hazard: HazardModel, *, up: bool) -> float:
        draw = draws(hazard.up if up else hazard.down, 1.0, np.ones(1))
        return float(draw(self.random, np.zeros(1, dtype=np.intp))[0]) * SECONDS_PER_HOUR
