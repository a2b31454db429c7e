"""Energy from samples of GPUs: the device's own counter where it has one, else power over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any, Final, Literal

from tonnage.values import dataclass

LONGEST_GAP: Final = 5.0  # times the usual distance of two samples: beyond it the run was not there


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Joules of all GPUs together, and how they were found."""

    joules: float
    basis: Literal["counter", "power over time"]


def energy_of(samples: Sequence[Mapping[str, Any]]) -> Energy | None:
    """Energy of the sampled GPUs, of all their users; None where one of them reports neither energy nor power.

    Between two samples: the growth of the counter, or half the sum of both powers times the time. A pause, during
    which nothing was sampled, is not counted.
    """
    timed = [(datetime.fromisoformat(sample["at"]).timestamp(), _by_gpu(sample)) for sample in samples]
    gpus = sorted({index for _, found in timed for index in found})
    spans = [(later[0] - earlier[0], earlier[1], later[1]) for earlier, later in pairwise(timed)]
    if not gpus or not spans:
        return None
    longest = LONGEST_GAP * median(span[0] for span in spans)
    kept = [span for span in spans if 0 < span[0] <= longest]
    totals = [_of_one(index, kept) for index in gpus]
    known = [total for total in totals if total is not None]
    if len(known) < len(totals):
        return None
    counted = all(basis == "counter" for _, basis in known)
    return Energy(joules=sum(joules for joules, _ in known), basis="counter" if counted else "power over time")


def _by_gpu(sample: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    return {gpu["index"]: gpu for gpu in sample.get("gpus", ())}


def _of_one(
    index: int, spans: Sequence[tuple[float, Mapping[int, Mapping[str, Any]], Mapping[int, Mapping[str, Any]]]]
) -> tuple[float, str] | None:
    both = [(seconds, earlier[index], later[index]) for seconds, earlier, later in spans
            if index in earlier and index in later]  # fmt: skip
    for key, basis in (("energy_j", "counter"), ("power_w", "power over time")):
        known = [(seconds, one[key], two[key]) for seconds, one, two in both if key in one and key in two]
        if known and len(known) == len(both):
            if key == "energy_j":  # a counter that fell was set to 0 by a new driver
                return sum(two - one if two >= one else two for _, one, two in known), basis
            return sum(seconds * (one + two) / 2 for seconds, one, two in known), basis
    return None
