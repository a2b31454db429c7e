"""Why work is not to run on spot alone: a closed set of kinds, each with its figures."""

from __future__ import annotations

from typing import ClassVar

from tonnage.reason import Reason
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineTooSoon(Reason):
    """The deadline is shorter than work and start-up take undisturbed, so that no machine keeps it."""

    kind: ClassVar[str] = "deadline too soon"
    deadline_h: float
    undisturbed_h: float
    expected_h: float  # on spot alone; infinite: never done


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotDiverges(Reason):
    """Interruptions undo the work about as fast as it is done."""

    kind: ClassVar[str] = "diverges"
    work_h: float
    expected_h: float
    checkpoints: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotMissesDeadline(Reason):
    """Spot alone misses the deadline too often, and on-demand has no time to step in or would begin again."""

    kind: ClassVar[str] = "misses deadline"
    deadline_h: float
    chance_fraction: float
    expected_h: float
    checkpoints: bool


SpotRefusal = DeadlineTooSoon | SpotDiverges | SpotMissesDeadline
