"""The control law: how many replicas a service should have now. Pure: a state, what was seen, the time.

The law weighs many candidate rules side by side. Each is a small rule: follow the load as expected after a start-up,
with room for chance, let replicas go within some time, never below a floor. A shadow of the service runs under each
candidate (`shadows.py`), so the law knows what each would have cost and how many promises it would have kept on the
load seen so far. It follows the cheapest candidate that kept the promise. Candidates whose floor is all there is are
fixed numbers: the law is as good as the best fixed number that the past supports, and where bursts are over before a
replica has started, it holds instead of chasing them.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tonnage.scaling import shadows
from tonnage.scaling.reasons import ClearsBacklog, FollowsLoad, HoldsFloor, HoldsPeak, Idle, ScalingReason, Scheduled
from tonnage.scaling.service import Observation, ScaledService, WeekSchedule
from tonnage.scaling.shadows import Candidates, Shadows
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

MISS_BUDGET: Final = 0.25  # of the misses that the promise allows, a candidate may have had so many in the past
MEMORY_S: Final = 6 * 3600.0
PRUDENT_START_UPS: Final = 10.0  # so many pass before candidates are trusted
FEEDBACK: Final = 0.5  # less is allowed where the service itself was late more often than that
SWITCH: Final = 0.01  # a candidate gives way to one that is this much cheaper
RESELECT: Final = 15  # decisions between two choices of a candidate
SERVICE_MEMORY: Final = 500.0  # requests whose mean time is remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class LawState:
    """What the law remembers."""

    at_s: float | None = None
    service_s: float | None = None  # mean seconds that a request holds a slot
    service_weight: float = 0.0
    chosen: int
    decisions: int = 0
    silent_s: float = 0.0  # since a request was seen
    late: float = 0.0  # requests that waited too long, a faded sum
    shadows: Shadows


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlLaw:
    """The law for one service. `decide` is all there is to it."""

    service: ScaledService
    schedule: WeekSchedule | None = None
    name: str = "tonnage"
    candidates: Candidates

    @property
    def interval_s(self) -> float:
        """Seconds between decisions."""
        return decision_interval_s(self.service.start_up_s)

    def begin(self, interval_s: float | None = None) -> LawState:
        """Nothing known yet. `interval_s`: seconds between decisions, where they are not the law's own: its shadows
        count a start-up in decisions."""
        every_s = self.interval_s if interval_s is None else interval_s
        return LawState(chosen=self.candidates.prudent, shadows=shadows.begin(self.candidates, self.service, every_s))

    def decide(self, state: LawState, seen: Observation, at_s: float) -> tuple[LawState, int, ScalingReason]:
        """The number of replicas wanted at `at_s` (seconds on any clock that goes forward) and why."""
        elapsed_s = self.interval_s if state.at_s is None else max(at_s - state.at_s, 1e-3)
        service_s, weight = _mean_service(state, seen)
        if service_s is None:
            service_s = max(self.service.promise_s, 1.0)
        moved = shadows.advance(
            state.shadows, self.candidates, self.service, arrived=seen.arrived, service_s=service_s,
            elapsed_s=elapsed_s, memory_s=MEMORY_S,
        )  # fmt: skip
        began_again = moved.settled and not state.shadows.settled  # who was late before is no rule's fault
        late = 0.0 if began_again else state.late * math.exp(-elapsed_s / MEMORY_S) + seen.late
        chosen = state.chosen
        if state.decisions % RESELECT == RESELECT - 1 and self._trusted(moved):
            chosen = best_candidate(
                moved.missed, moved.paid_s, chosen, arrived=moved.arrived, late=late,
                allowed=1.0 - self.service.promised_fraction,
            )  # fmt: skip
        wanted, reason = self._wanted(moved, chosen, seen, service_s)
        silent_s = 0.0 if seen.arrived + seen.waiting + seen.running else state.silent_s + elapsed_s
        if self.service.to_zero_after_s is not None and silent_s >= max(self.service.to_zero_after_s, elapsed_s):
            wanted, reason = 0, Idle(silent_s=silent_s)
        least, most = self._range(at_s)
        if not least <= wanted <= most:
            wanted, reason = min(max(wanted, least), most), Scheduled(least=least, most=most)
        after = LawState(
            at_s=at_s, service_s=service_s, service_weight=weight, chosen=chosen, decisions=state.decisions + 1,
            silent_s=silent_s, late=late, shadows=moved,
        )  # fmt: skip
        return after, wanted, reason

    def _trusted(self, now: Shadows) -> bool:
        return now.settled and now.elapsed_s >= PRUDENT_START_UPS * self.service.start_up_s and now.arrived > 0

    def _wanted(self, now: Shadows, chosen: int, seen: Observation, service_s: float) -> tuple[int, ScalingReason]:
        service = self.service
        wanted = float(now.wanted[chosen])
        capacity = seen.ready * service.slots
        # what will still wait when a replica that starts now is ready
        rate = now.demand[0]
        if self.candidates.signal[chosen] == shadows.FIXED and now.demand[1] <= capacity:
            return int(wanted), HoldsFloor(floor=int(wanted))
        left = seen.waiting - max(capacity - rate, 0.0) * service.start_up_s / service_s
        extra = shadows.backlog_slots(left, service_s)
        backlog = math.ceil((rate + extra) / service.slots - 1e-9) if extra > 0 else 0
        if backlog > wanted:
            return backlog, ClearsBacklog(waiting=left)
        load = float(shadows.levels(now, self.candidates, service)[chosen])
        room = float(self.candidates.room[chosen]) * math.sqrt(load)
        if load + room > (wanted - 1) * service.slots or wanted == 0:
            return int(wanted), FollowsLoad(load_slots=load, room_slots=room)
        if self.candidates.floor[chosen] >= wanted:
            return int(wanted), HoldsFloor(floor=int(wanted))
        return int(wanted), HoldsPeak(load_slots=load, hold_s=float(self.candidates.hold_s[chosen]))

    def _range(self, at_s: float) -> tuple[int, int]:
        service = self.service
        least = service.least if self.schedule is None else self.schedule.least_at(at_s, service.least)
        return min(least, service.most), service.most


def decision_interval_s(start_up_s: float) -> float:
    """Seconds between decisions: a thirtieth of a start-up, at least half a second, at most 10 s."""
    return min(max(start_up_s / 30.0, 0.5), 10.0)


def best_candidate(missed: Array, paid_s: Array, current: int, *, arrived: float, late: float, allowed: float) -> int:
    """The cheapest rule that would have kept the promise; where none did, the one that missed least. `allowed`: the
    part of requests that may be late; `late`: how many of `arrived` were."""
    own = late / max(arrived, 1e-9) / allowed
    allowed *= min(max(MISS_BUDGET + FEEDBACK * (MISS_BUDGET - own), 0.05), MISS_BUDGET)
    missed = missed / max(arrived, 1e-9)
    good = missed <= allowed
    if not good.any():
        return int(np.argmin(missed + 1e-9 * paid_s))
    best = int(np.argmin(np.where(good, paid_s, np.inf)))
    cheaper = paid_s[best] < (1.0 - SWITCH) * paid_s[current]
    return best if cheaper or not good[current] else current


def _mean_service(state: LawState, seen: Observation) -> tuple[float | None, float]:
    """Mean seconds of a request, of some SERVICE_MEMORY past ones."""
    if seen.finished == 0:
        return state.service_s, state.service_weight
    mean = seen.finished_work_s / seen.finished
    kept = min(state.service_weight, SERVICE_MEMORY)
    if state.service_s is None or kept == 0:
        return mean, float(seen.finished)
    weight = kept + seen.finished
    return (state.service_s * kept + mean * seen.finished) / weight, weight


def control_law(service: ScaledService, schedule: WeekSchedule | None = None) -> ControlLaw:
    """The law with its default candidates."""
    return ControlLaw(service=service, schedule=schedule, candidates=shadows.default_candidates(service))
