"""A fleet that follows its load: how many machines are held, on average and for which part of the time.

The autoscaler is the usual one (Kubernetes' HorizontalPodAutoscaler on a request rate): every `window_s` it wants
ceil(requests counted in the window / (window · target)) + spare machines, inside [minimum, maximum]; it grows at once
and shrinks to the highest want of the last `scale_in_delay_s`. A machine is paid from its start, `warm_up_s` before it
serves.

Expected machines in closed form. Counts of a window are those of gamma gaps of mean 1/r and variation v:
P(count <= k) = P(Gamma((k + (1+v²)/2)/v²) > r·W/v²): a window begins between two arrivals, its mean count is r·W. By
Wilson and Hilferty's cube root («The distribution of chi-square», PNAS 17, 1931); v = 1 is Poisson. Windows are taken
as independent, so P(held <= n) is the product over the windows of the delay, and the mean is Σ P(held > n). Leaves out
that machines finish their last requests before they stop: short beside the delay for requests of seconds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tonnage.errors import InputError
from tonnage.service.rate_curve import DAY_S, RateCurve
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

STEP_S = 900.0  # the day in quarters of an hour
MOST_MACHINES = 100  # beyond, machines per request no longer change: cost grows with the rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """The policy. `enabled` False: the fleet of the day's peak is held all day. Defaults: the HPA's, or judged."""

    enabled: bool = True
    minimum: int = 1
    maximum: int | None = None
    spare: int = 0  # N + spare replicas: as many may fail
    warm_up_s: float = 300.0
    scale_in_delay_s: float = 300.0
    window_s: float = 60.0
    headroom: float | None = None  # None: the growth of the curve within a window and a warm-up

    def __post_init__(self) -> None:
        if self.minimum < 0 or self.spare < 0 or (self.maximum is not None and self.maximum < max(self.minimum, 1)):
            raise InputError(
                f"a fleet of {self.minimum} to {self.maximum} machines and {self.spare} spare",
                hint="0 <= minimum <= maximum, and a maximum of at least 1",
            )
        for name in ("warm_up_s", "scale_in_delay_s", "window_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= (1.0 if name == "window_s" else 0.0)):
                raise InputError(f"{name} is {value:g}: it must be at least {1 if name == 'window_s' else 0}")

    def times(self, replicas: int) -> Autoscaling:
        """The same policy counted in replicas, so many a machine; spare ones are replicas already."""
        most = None if self.maximum is None else self.maximum * replicas
        return replace(self, minimum=self.minimum * replicas, maximum=most)

    def target_per_s(self, capacity_per_s: float, curve: RateCurve) -> float:
        """Requests a second that one machine is given, so that the others are warm before it has too many."""
        lead = self.window_s + self.warm_up_s
        return capacity_per_s / (1.0 + (curve.growth(lead) if self.headroom is None else self.headroom))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMachines:
    """`at_least[n]`: part of the time in which more than n machines are held (the n+1-th is paid)."""

    at_least: Array
    scale: float = 1.0  # fleets beyond MOST_MACHINES are scaled up from there

    @property
    def mean(self) -> float:
        return float(np.sum(self.at_least)) * self.scale

    @property
    def peak(self) -> float:
        return len(self.at_least) * self.scale


def held_machines(
    curve: RateCurve, rate_per_s: float, capacity_per_s: float, policy: Autoscaling, *, variation: float = 1.0
) -> HeldMachines:
    """Machines of `capacity_per_s` held for a mean rate of `rate_per_s` on `curve`."""
    target = policy.target_per_s(capacity_per_s, curve) if policy.enabled else capacity_per_s
    largest = rate_per_s * curve.peak / target
    scale = 1.0
    if policy.maximum is None and largest > MOST_MACHINES:
        scale, largest = largest / MOST_MACHINES, float(MOST_MACHINES)
        rate_per_s = rate_per_s / scale
    if not policy.enabled:
        return HeldMachines(at_least=np.ones(_fixed(largest, policy)), scale=scale)
    deviation = variation * math.sqrt(max(largest / (target * policy.window_s), 1e-12))
    most = math.ceil(largest + 6.0 * deviation) + 1 + policy.spare
    most = max(most, policy.minimum, 1) if policy.maximum is None else policy.maximum
    held = 1.0 - np.exp(_log_below(curve, rate_per_s, target, policy, variation, most))
    held[: policy.minimum, :] = 1.0
    at_least = np.mean(held, axis=1)
    last = int(np.max(np.flatnonzero(at_least > 1e-4), initial=-1)) + 1
    return HeldMachines(at_least=at_least[: max(last, policy.minimum)], scale=scale)


def _fixed(largest: float, policy: Autoscaling) -> int:
    wanted = math.ceil(largest - 1e-9) + policy.spare
    return min(max(wanted, policy.minimum, 1), policy.maximum or wanted + policy.minimum + 1)


def _log_below(curve: RateCurve, rate: float, target: float, policy: Autoscaling, variation: float, most: int) -> Array:
    """ln P(held <= n) for n = 0 ... most - 1 (rows) at each step of the day (columns)."""
    now = np.arange(0.0, DAY_S, STEP_S)
    load = (rate * curve.at(now))[None, :] * policy.window_s  # expected requests in a window
    machines = np.maximum(np.arange(most)[:, None] - policy.spare, 0.0)
    allowed = np.floor(machines * target * policy.window_s + 1e-9)
    wanted_below = np.log(np.maximum(_count_at_most(allowed, load, variation), 1e-300))
    if policy.spare:  # fewer than the spare ones are never wanted while there is any load
        wanted_below[: policy.spare, :] = np.where(load > 0, -np.inf, 0.0)
    windows = float(math.floor(policy.scale_in_delay_s / policy.window_s + 1e-9)) + 1.0
    per_step = STEP_S / policy.window_s
    total = np.zeros_like(wanted_below)
    back = 0
    while windows > 1e-9:
        part = min(windows, per_step)
        total += part * np.roll(wanted_below, back, axis=1)
        windows -= part
        back += 1
    return total


def _count_at_most(most: Array, mean: Array, variation: float) -> Array:
    """P(count <= most) of a window that expects `mean` requests."""
    spread = variation * variation
    shape = (most + (1.0 + spread) / 2.0) / spread
    cube = np.cbrt(mean / spread / shape)
    return normal_cdf(-(cube - (1.0 - 1.0 / (9.0 * shape))) * 3.0 * np.sqrt(shape))


def normal_cdf(z: Array) -> Array:
    """Φ(z) to 1e-7 (Abramowitz and Stegun 1964, 26.2.17).

    >>> np.round(normal_cdf(np.array([-1.959964, 0.0, 1.644854])), 6).tolist()
    [0.025, 0.5, 0.95]
    """
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) * poly
    return np.where(z >= 0, 1.0 - tail, tail)
