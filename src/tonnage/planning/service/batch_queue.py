"""Items in a queue, worked off by k spot machines: when it ends and what it costs, in closed form and event by event.

A machine takes chunks of c items, tau = c / rate seconds each. Machines are lost at rate lambda, exponentially; a lost
chunk goes back to the queue whole, and the machine is replaced R seconds later. An item fails with probability p and is
tried again. Per chunk, with q = exp(-lambda·tau):

    E[T] = (1/lambda + R)(1/q - 1),   chunks M = N / (1-p) / c,   finish = start + M·E[T]/k + the last chunks' imbalance

(the first two terms of E[T]: Daly 2006, FGCS 22, without checkpoints). Machines are paid from start to the queue's end,
their replacement's start-up included.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from tonnage.errors import InputError
from tonnage.sizing.estimates import Figure
from tonnage.units import SECONDS_PER_HOUR

Z90 = 1.2816  # 90th percentile of a normal variable: an 80 % interval


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueJob:
    """The work and the machines. Rates are of one machine."""

    items: int
    items_per_s: float
    machines: int
    usd_per_machine_hour: float
    chunk_items: int
    interruptions_per_hour: float = 0.0
    startup_s: float = 300.0
    item_failure: float = 0.0  # probability that one try fails

    def __post_init__(self) -> None:
        if min(self.items, self.machines, self.chunk_items) < 1 or not self.items_per_s > 0:
            raise InputError("a queue needs items, machines, chunks and a rate above 0")
        if not 0 <= self.item_failure < 1 or self.interruptions_per_hour < 0 or self.startup_s < 0:
            raise InputError("failures lie in 0 to below 1, interruptions and start-up at 0 or above")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueResult:
    """When the queue is empty, and what was paid till then."""

    finish_s: Figure
    usd: Figure


def expected_queue(job: QueueJob) -> QueueResult:
    """The closed form; the interval is that of interruptions alone, normal around the mean."""
    chunks = max(job.items / (1.0 - job.item_failure) / job.chunk_items, 1.0)
    mean, variance = _chunk_moments(job)
    busy = min(float(job.machines), chunks)
    imbalance = mean * (busy - 1.0) / (2.0 * busy)
    finish = job.startup_s + chunks * mean / busy + imbalance
    spread = Z90 * math.sqrt(chunks * variance) / busy
    hourly = job.machines * job.usd_per_machine_hour / SECONDS_PER_HOUR
    figure = Figure(value=finish, low=max(finish - spread, job.startup_s), high=finish + spread)
    return QueueResult(finish_s=figure, usd=figure.scaled(hourly))


def _chunk_moments(job: QueueJob) -> tuple[float, float]:
    """Mean and variance of the seconds one machine takes for a chunk, losses and replacements included."""
    tau, rate = job.chunk_items / job.items_per_s, job.interruptions_per_hour / SECONDS_PER_HOUR
    if rate * tau < 1e-9:
        return tau, 0.0
    if rate * tau > 50:
        raise InputError(
            f"a chunk takes {tau / SECONDS_PER_HOUR:.1f} h and a machine is lost {job.interruptions_per_hour:g} times "
            "an hour: hardly any chunk ends",
            hint="smaller chunks",
        )
    kept = math.exp(-rate * tau)
    lost = 1.0 - kept
    fail_mean = 1.0 / rate - tau * kept / lost  # of the time till a loss, given one before tau
    fail_square = 2.0 / rate**2 - kept * (tau * tau + 2.0 * tau / rate) / lost
    each, each_variance = fail_mean + job.startup_s, fail_square - fail_mean**2
    losses = lost / kept
    mean = tau + losses * each
    return mean, losses * each_variance + lost / kept**2 * each * each


def simulate_queue(job: QueueJob, *, seed: int) -> QueueResult:
    """One run of the queue, event by event."""
    random = np.random.default_rng(seed)
    todo, tau = job.items, job.chunk_items / job.items_per_s
    rate = job.interruptions_per_hour / SECONDS_PER_HOUR
    ready = [(job.startup_s, number) for number in range(job.machines)]
    heapq.heapify(ready)
    running: list[tuple[float, int, int, bool]] = []  # (until, machine, items, lost)
    now = end = job.startup_s
    while todo or running:
        while todo and ready and ready[0][0] <= now:
            _, machine = heapq.heappop(ready)
            items = min(job.chunk_items, todo)
            todo -= items
            needs = tau * items / job.chunk_items
            loss = float(random.exponential(1.0 / rate)) if rate else math.inf
            heapq.heappush(running, (now + min(needs, loss), machine, items, loss < needs))
        later = [events[0][0] for events in (running, ready if todo else []) if events]
        now = max(min(later), now)
        while running and running[0][0] <= now:
            until, machine, items, lost = heapq.heappop(running)
            if lost:
                todo += items
                heapq.heappush(ready, (until + job.startup_s, machine))
                continue
            todo += int(random.binomial(items, job.item_failure)) if job.item_failure else 0
            heapq.heappush(ready, (until, machine))
            end = until
    usd = job.machines * job.usd_per_machine_hour * end / SECONDS_PER_HOUR
    return QueueResult(finish_s=Figure(value=end, low=end, high=end), usd=Figure(value=usd, low=usd, high=usd))
