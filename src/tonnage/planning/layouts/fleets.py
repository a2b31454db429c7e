"""How many machines a service takes: the one calculation behind plans, break-evens, portfolios and comparisons.

Capacity: the most requests a second that one replica answers, within the promise where one is made. A fleet is planned
so that the busy rate takes at most `used` (the target utilisation) of the capacity of the replicas that are not spare:

    replicas = ceil(rate / (capacity · used)) + spare,    machines = ceil(replicas / replicas on one machine)

Two pools, one that reads prompts and one that writes answers, have replicas for the whole rate each.
Utilisation is the rate over the capacity of all replicas held, the spare ones included.
"""

from __future__ import annotations

import numpy as np

from tonnage.sizing.estimates import Array, Figure, Num
from tonnage.values import dataclass

LEAST = 1e-9  # of a replica: rounding of the arithmetic is not a reason for one more


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFleet:
    """What fleets are built of: the capacity of one replica of each pool, and the replicas on one machine."""

    pools: tuple[Figure, ...]  # requests a second; one pool, or one that reads prompts and one that writes answers
    per_machine: int
    one_machine: bool = False  # the pools run inside one machine, whose network is not known


def replicas_for(rate_per_s: Num, capacity_per_s: Num, *, used: float, spare: int) -> Array:
    """Replicas of `capacity_per_s` for a busy rate, the spare ones with them; NaN where the capacity is not known."""
    return np.asarray(np.ceil(np.asarray(rate_per_s) / capacity_per_s / used - LEAST) + spare)


def machines_for(replicas: Num, per_machine: Num) -> Array:
    """Machines that hold so many replicas."""
    return np.asarray(np.ceil(np.asarray(replicas) / per_machine - LEAST))
