"""Why a number of replicas is wanted. `reports.reasons.scaling` has the words."""

from __future__ import annotations

from typing import ClassVar

from tonnage.reason import Reason
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowsLoad(Reason):
    """The load expected once a replica has started, in slots, of which so much is room for chance."""

    kind: ClassVar[str] = "follows_load"
    load_slots: float
    room_slots: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearsBacklog(Reason):
    """So many requests will still wait when a replica has started."""

    kind: ClassVar[str] = "clears_backlog"
    waiting: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsFloor(Reason):
    """Past bursts came faster than a replica starts: so many replicas stay."""

    kind: ClassVar[str] = "holds_floor"
    floor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldsPeak(Reason):
    """The load has fallen: replicas go slowly, within so many seconds."""

    kind: ClassVar[str] = "holds_peak"
    load_slots: float
    hold_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle(Reason):
    """No request came for so long."""

    kind: ClassVar[str] = "idle"
    silent_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled(Reason):
    """A schedule or the range of replicas sets the number."""

    kind: ClassVar[str] = "scheduled"
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalRule(Reason):
    """The rule of another autoscaler: its measure beside its target."""

    kind: ClassVar[str] = "rival_rule"
    policy: str
    measured: float
    target: float


ScalingReason = FollowsLoad | ClearsBacklog | HoldsFloor | HoldsPeak | Idle | Scheduled | RivalRule
