"""What is scaled and what is seen of it: the settings of a service, and what its load was since the last decision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from tonnage.errors import InputError
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.scaling.reasons import ScalingReason

MOST_REPLICAS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledService:
    """A service of equal replicas: how many may run, what each carries, how long one takes to start.

    With `to_zero_after_s` silence ends all replicas, whatever that does to the promise when requests come again.
    The promise is on the wait for a free slot: `promised_fraction` of requests wait at most `promise_s`.
    """

    slots: int = 16
    start_up_s: float = 60.0
    promise_s: float = 2.0
    promised_fraction: float = 0.99
    least: int = 0
    most: int = 20
    to_zero_after_s: float | None = None  # without any request, with a least of 0; None: if the promise allows it

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise InputError(f"{self.slots} slots a replica: at least one is needed")
        if not 0 <= self.least <= self.most <= MOST_REPLICAS or self.most < 1:
            raise InputError(
                f"{self.least} to {self.most} replicas", hint=f"0 <= least <= most, most from 1 to {MOST_REPLICAS:,}"
            )
        for name in ("start_up_s", "promise_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name} is {value:g}: it must be at least 0")
        if self.to_zero_after_s is not None and not self.to_zero_after_s >= 0:
            raise InputError(f"to 0 replicas after {self.to_zero_after_s:g} s: it must be at least 0")
        if not 0 < self.promised_fraction < 1:
            raise InputError(f"a promise to {self.promised_fraction:g} of requests: above 0 and below 1")

    def within(self, count: float, least: int | None = None) -> int:
        """A number of replicas brought into the range; `least` in place of the service's own."""
        low = self.least if least is None else max(least, self.least)
        return int(min(max(math.ceil(count - 1e-9), low), self.most))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is seen of a service at a decision: counts since the last one, and the state now."""

    arrived: int  # requests that came since the last decision
    finished: int  # requests answered since the last decision
    finished_work_s: float  # slot-seconds those took
    waiting: int  # requests without a slot
    running: int  # requests in a slot
    ready: int  # replicas that take requests
    starting: int  # replicas on their way
    late: int = 0  # requests since the last decision that waited longer than promised

    def __post_init__(self) -> None:
        if min(self.arrived, self.finished, self.waiting, self.running, self.ready, self.starting, self.late) < 0:
            raise InputError(f"an observation counts below 0: {self}")


S = TypeVar("S")


class Policy(Protocol, Generic[S]):
    """One way to decide. It is asked every `interval_s`; all that it remembers is in the state it returns."""

    @property
    def name(self) -> str: ...
    @property
    def interval_s(self) -> float: ...
    def begin(self) -> S: ...
    def decide(self, state: S, seen: Observation, at_s: float) -> tuple[S, int, ScalingReason]: ...
