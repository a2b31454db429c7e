"""What starting takes, and the interval between saves that is best where machines end at a constant rate."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.values import dataclass

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What starting a machine takes; `buy.startup` of a workload file overrides the judgement."""

    startup_s: float = 300.0


STARTUP_SOURCE: Final = (120.0, 900.0, "boot, image pull and data mount of a cloud GPU machine: judgement")
# How often a run ends unasked on a machine that is not taken back. Judgement: once a day, between 1.6e-4 per hour, the
# hardware of a data centre alone (419 unexpected interruptions in 54 days on 2,048 machines: Llama 3, arXiv:2407.21783,
# section 3.3.4), and 0.1, a shared machine (processes killed for memory, by people, by restarts).
ENDS_PER_HOUR: Final = 1 / 24


def young_interval_s(checkpoint_s: float, rate_per_s: Array) -> Array:
    """The checkpoint interval that loses least to first order: sqrt(2 · C / λ).

    Source: Young 1974, «A first order approximation to the optimum checkpoint interval», CACM 17(9).

    >>> round(float(young_interval_s(60.0, np.array([1 / 7200]))[0]))  # one interruption in two hours
    930
    """
    return np.sqrt(2.0 * checkpoint_s / rate_per_s)


def daly_interval_s(save_s: float, mean_s: float) -> float:
    """The interval between saves that costs least, where a run ends every `mean_s` seconds on average.

    sqrt(2·C·M) · (1 + sqrt(C/2M)/3 + (C/2M)/9) - C for C < 2M, else M.
    Source: Daly 2006, «A higher order estimate of the optimum checkpoint interval», FGCS 22, equation 37.

    >>> round(daly_interval_s(60.0, 7200.0))  # Young's is 930
    890
    """
    if save_s >= 2 * mean_s:
        return mean_s
    part = save_s / (2 * mean_s)
    return float(np.sqrt(2 * save_s * mean_s) * (1 + np.sqrt(part) / 3 + part / 9) - save_s)
