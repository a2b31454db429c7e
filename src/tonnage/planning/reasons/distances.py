"""How far an option is from winning: a closed set of kinds, each with its figures."""

from __future__ import annotations

from typing import ClassVar

from tonnage.reason import Reason
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowerDistance(Reason):
    """The option takes `times` the winner's time, and wins if it ran as many times as fast."""

    kind: ClassVar[str] = "slower"
    times: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SameCostDistance(Reason):
    """The option costs the same; the winner is faster, or named first."""

    kind: ClassVar[str] = "same cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class DearerDistance(Reason):
    """The option costs more. It wins below a price of its machines; None: no price of theirs would do."""

    kind: ClassVar[str] = "dearer"
    times: float | None  # the winner's cost; None: the winner costs nothing
    more_usd: float
    faster: bool  # on the Pareto front
    usd_per_instance_hour: float | None  # today's, machines with their platform fee
    wins_below_usd_per_instance_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubtedDistance(Reason):
    """The option is ahead of the winner, and its price is not relied on; `host`: the price is, but not that its host
    keeps
    up. `wins_if_trusted`: it is the first such."""

    kind: ClassVar[str] = "doubted price"
    times: float | None  # the winner's cost; None: the winner costs nothing
    wins_if_trusted: bool
    host: bool = False


Distance = SlowerDistance | SameCostDistance | DearerDistance | DoubtedDistance
