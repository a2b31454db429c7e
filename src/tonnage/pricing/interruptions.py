"""What spot interruptions cost: the checkpoint interval that is best, and the expected time with re-done work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.units import SECONDS_PER_HOUR

Array = NDArray[np.float64]
DIVERGED_S: Final = 100 * 365.25 * 86_400.0  # work that takes longer than this is never done


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What starting, stopping and saving costs; a workload file's `buy` section overrides the judgements."""

    startup_s: float = 300.0
    checkpoint_s: float = 60.0
    interruptions_per_hour: float = 0.34
    interruptions_low_per_hour: float = 0.10
    interruptions_high_per_hour: float = 0.75
    checkpoint_interval_s: float | None = None  # None: Young's choice


# How often a run ends unasked on a machine that nobody takes back. Judgement: once a day, between 1.6e-4 per hour, the
# hardware of a data centre alone (419 unexpected interruptions in 54 days on 2,048 machines: Llama 3, arXiv:2407.21783,
# section 3.3.4), and 0.1, a shared machine (processes killed for memory, by people, by restarts).
ENDS_PER_HOUR: Final = 1 / 24

# name -> (low, high, source)
TERMS_SOURCES: Final = {
    "startup_s": (120.0, 900.0, "boot, image pull and data mount of a cloud GPU machine: judgement"),
    "checkpoint_s": (5.0, 300.0, "writing model and optimizer to object storage: judgement"),
    "interruptions_per_hour": (
        0.10,
        0.75,
        "median over eight single-node V100 and K80 traces, AWS 2022-10 to 2023-04 (traces of Wu et al., "
        "«Can't Be Late», NSDI 2024): preemptions per hour up; H100-class spot is not measured",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedRun:
    """Columns: wall-clock seconds expected, seconds of them lost, the interval used, interruptions expected."""

    expected_s: Array
    redone_s: Array  # work lost and done again, and restarts
    checkpoint_s: Array  # time spent saving
    interval_s: Array
    interruptions: Array


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


def expected_run(
    work_s: Array, nodes: Array, terms: Terms, *, interruptions_per_hour: float | None = None
) -> InterruptedRun:
    """Expected wall-clock time of `work_s` seconds on `nodes` interruptible machines, one interruption stopping all.

    Exponential failures at λ = rate x nodes; segments of τ seconds end in a checkpoint of C seconds, a restart costs R:
    T = (e^(λR) / λ) · (e^(λ(τ+C)) - 1) · work/τ. Source: Daly 2006, «A higher order estimate of the optimum checkpoint
    interval», FGCS 22, equation 13. Infinite where that is over a century: interrupted faster than it gets on.
    """
    hourly = terms.interruptions_per_hour if interruptions_per_hour is None else interruptions_per_hour
    rate = np.maximum(hourly * nodes / SECONDS_PER_HOUR, 1e-12)
    interval = (
        young_interval_s(terms.checkpoint_s, rate)
        if terms.checkpoint_interval_s is None
        else np.full_like(rate, terms.checkpoint_interval_s)
    )
    interval = np.maximum(np.minimum(interval, work_s), 1.0)
    segments = work_s / interval
    with np.errstate(over="ignore"):
        expected = np.exp(rate * terms.startup_s) / rate * np.expm1(rate * (interval + terms.checkpoint_s)) * segments
    expected = np.where(expected > DIVERGED_S, np.inf, expected)
    saving = segments * terms.checkpoint_s
    return InterruptedRun(
        expected_s=expected,
        redone_s=np.maximum(expected - work_s - saving, 0.0),
        checkpoint_s=saving,
        interval_s=interval,
        interruptions=rate * expected,
    )
