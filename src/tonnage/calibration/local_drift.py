"""Whether a device still is what its profile says: runs of one work beside it, and beside one another."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum, sqrt
from typing import Final

from tonnage.calibration.local_profile import NORMAL_80
from tonnage.calibration.local_update import LocalObservation
from tonnage.values import dataclass

UNSTEADY: Final = 2.0  # times the spread that is expected of repeats (judgement, range 1.5 to 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDrift:
    """What the runs of one work say of the profile that predicts it. Times are ratios: 2 took twice as long."""

    runs: int
    slower: float  # geometric mean of measured beside what the profile's curves say
    expected_low: float  # 80 % interval of that ratio, by the profile alone
    expected_high: float
    spread_fraction: float | None  # 80 % of runs lie within it, by the repeats alone; None: one run
    unsteady: bool  # repeats differ by more than those of one machine, left alone, do

    @property
    def drifted(self) -> bool:
        """Whether the runs lie outside what the profile alone leaves open."""
        return not self.expected_low <= self.slower <= self.expected_high


def drift_of(
    observations: Sequence[LocalObservation], configuration: str, *, prior_log_sd: float, expected_log_sd: float
) -> DeviceDrift | None:
    """Of one configuration; None where it has not run. `prior_log_sd`: what predictions by the profile alone are off;
    `expected_log_sd`: what runs of one work differ by on a machine that is left alone.

    >>> from dataclasses import replace
    >>> one = LocalObservation(configuration="a", shares=(), log_ratio=0.5, noise_log_sd=0.0)
    >>> rows = [one, replace(one, log_ratio=0.9)]
    >>> found = drift_of(rows, "a", prior_log_sd=0.2, expected_log_sd=0.03)
    >>> round(found.slower, 2), found.drifted, found.unsteady
    (2.01, True, True)
    """
    ratios = [one.log_ratio for one in observations if one.configuration == configuration]
    if not ratios:
        return None
    mean = fsum(ratios) / len(ratios)
    spread = None
    if len(ratios) > 1:
        spread = sqrt(fsum((ratio - mean) ** 2 for ratio in ratios) / (len(ratios) - 1))
    reach = NORMAL_80 * prior_log_sd
    return DeviceDrift(
        runs=len(ratios),
        slower=exp(mean),
        expected_low=exp(-reach),
        expected_high=exp(reach),
        spread_fraction=None if spread is None else exp(NORMAL_80 * spread) - 1,
        unsteady=spread is not None and spread > UNSTEADY * expected_log_sd,
    )
