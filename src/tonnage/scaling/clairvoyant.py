"""The least that a load needs when all of it is known in advance: what every policy is measured against.

Each request waits as long as it may; only then is another replica there for it, started in time. The lowest replica
with a free slot takes the next request, so high ones empty first. A replica is paid from its start, a start-up before
its first request, until its last one is done, and stays over gaps shorter than a start-up. No request is late. It is
a plan that can be carried out, close to the least but not proved to be it: a policy that lets some requests be late
may cost less.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from tonnage.scaling.load import Load
from tonnage.scaling.service import ScaledService

Stays = list[list[tuple[float, float]]]


def clairvoyant_hours(load: Load, service: ScaledService, *, judged_from_s: float = 0.0) -> float:
    """Replica-hours from `judged_from_s` to the end of the load. `service.most` is not a limit here."""
    paid_s = 0.0
    for stays in _stays(load, service):
        for begin, end in _joined(stays, service.start_up_s):
            begin, end = max(begin - service.start_up_s, judged_from_s), min(end, load.span_s)
            paid_s += max(end - begin, 0.0)
    least = service.least * (load.span_s - judged_from_s)
    return max(paid_s, least) / 3600.0


def _joined(stays: list[tuple[float, float]], gap_s: float) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    for begin, end in stays:
        if found and begin - found[-1][1] < gap_s:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


class _Packing:
    """Replicas filled from the lowest one; `open_s` is when each became busy, None while it is empty."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.busy: list[int] = []
        self.open_s: list[float] = []
        self.stays: Stays = []
        self.free: list[int] = []  # replicas that are busy and have a free slot; entries may be outdated
        self.empty: list[int] = []
        self.ends: list[tuple[float, int]] = []

    def takes(self, at_s: float, needs_s: float) -> bool:
        """Whether a busy replica has a slot for the request, which then runs."""
        while self.free:
            lowest = self.free[0]
            if 0 < self.busy[lowest] < self.slots:
                self._runs(lowest, at_s, needs_s)
                return True
            heappop(self.free)
        return False

    def opens(self, at_s: float, needs_s: float) -> None:
        """The request runs on the lowest empty replica."""
        if self.empty:
            chosen = heappop(self.empty)
            self.open_s[chosen] = at_s
        else:
            chosen = len(self.busy)
            self.busy.append(0)
            self.open_s.append(at_s)
            self.stays.append([])
        heappush(self.free, chosen)
        self._runs(chosen, at_s, needs_s)

    def _runs(self, replica: int, at_s: float, needs_s: float) -> None:
        self.busy[replica] += 1
        heappush(self.ends, (at_s + needs_s, replica))

    def ends_one(self) -> float:
        """The next request to end does; its second."""
        at_s, replica = heappop(self.ends)
        self.busy[replica] -= 1
        if self.busy[replica] == 0:
            self.stays[replica].append((self.open_s[replica], at_s))
            heappush(self.empty, replica)
        elif self.busy[replica] == self.slots - 1:
            heappush(self.free, replica)
        return at_s


def _stays(load: Load, service: ScaledService) -> Stays:
    packing = _Packing(service.slots)
    arrivals, needs = load.at_s.tolist(), load.service_s.tolist()
    queue: deque[int] = deque()
    place = 0
    while place < len(arrivals) or queue or packing.ends:
        arrival = arrivals[place] if place < len(arrivals) else float("inf")
        limit = arrivals[queue[0]] + service.promise_s if queue else float("inf")
        end = packing.ends[0][0] if packing.ends else float("inf")
        if end <= min(arrival, limit):
            at_s = packing.ends_one()
        elif arrival <= limit:
            queue.append(place)
            place, at_s = place + 1, arrival
        else:
            packing.opens(limit, needs[queue.popleft()])
            at_s = limit
        while queue and packing.takes(at_s, needs[queue[0]]):
            queue.popleft()
    return packing.stays
