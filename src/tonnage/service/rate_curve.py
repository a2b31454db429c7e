"""How the request rate moves over a day: 24 hourly values around the day's mean."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tonnage.errors import InputError
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

HOURS = 24
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCurve:
    """`multipliers[h]` times the day's mean rate at the middle of hour h; their mean is 1. Linear in between."""

    multipliers: tuple[float, ...] = (1.0,) * HOURS

    @classmethod
    def of(cls, values: Sequence[float]) -> RateCurve:
        """A curve of 24 values, of which only the shape counts. InputError on anything else.

        >>> RateCurve.of([1.0] * 12 + [3.0] * 12).multipliers[0]
        0.5
        """
        if len(values) != HOURS:
            raise InputError(f"found {len(values)} hourly values, expected 24", hint="one for each hour from midnight")
        if not all(math.isfinite(value) and value >= 0 for value in values) or not any(values):
            raise InputError("hourly values must be numbers of at least 0, one of them above", hint="such as 0.4,1.6")
        mean = math.fsum(values) / HOURS
        return cls(multipliers=tuple(value / mean for value in values))

    @classmethod
    def sinusoid(cls, peak_to_trough: float) -> RateCurve:
        """1 + a·sin, highest at 15 h, with a so that peak / trough is as stated.

        >>> curve = RateCurve.sinusoid(3.0)
        >>> round(max(curve.multipliers), 3), round(min(curve.multipliers), 3)
        (1.5, 0.5)
        """
        if not (math.isfinite(peak_to_trough) and peak_to_trough >= 1):
            raise InputError(f"a peak of {peak_to_trough:g} times the trough", hint="it is 1 or more")
        swing = (peak_to_trough - 1.0) / (peak_to_trough + 1.0)
        return cls.of([1.0 + swing * math.cos(2.0 * math.pi * (hour - 15) / HOURS) for hour in range(HOURS)])

    @classmethod
    def of_load(cls, load: float) -> RateCurve:
        """A day whose mean rate is `load` of its busiest hour: exp(k·cos), highest at 15 h, k by bisection.

        >>> curve = RateCurve.of_load(0.4)
        >>> round(1 / curve.peak, 3)
        0.4
        """
        if not (math.isfinite(load) and 1.0 / HOURS < load <= 1.0):
            raise InputError(f"a mean rate of {load:g} of the busy rate", hint=f"above {1.0 / HOURS:.3f}, at most 1")
        low, high = 0.0, 1e4
        for _ in range(200):
            middle = (low + high) / 2.0
            low, high = (middle, high) if 1.0 / cls._wave(middle).peak > load else (low, middle)
        return cls._wave(high) if load < 1.0 else cls()

    @classmethod
    def _wave(cls, k: float) -> RateCurve:
        angles = [2.0 * math.pi * (hour - 15) / HOURS for hour in range(HOURS)]
        return cls.of([math.exp(k * (math.cos(angle) - 1.0)) for angle in angles])

    @property
    def peak(self) -> float:
        """The busy rate over the day's mean."""
        return max(self.multipliers)

    @property
    def flat(self) -> bool:
        """Whether the rate is the same all day, so that there is nothing for an autoscaler to follow."""
        return self.peak - min(self.multipliers) < 1e-9

    def at(self, seconds: Array) -> Array:
        """Multipliers at times of day, in seconds from midnight; the day repeats."""
        middles = (np.arange(HOURS) + 0.5) * (DAY_S / HOURS)
        here = np.interp(np.mod(seconds, DAY_S), middles, np.array(self.multipliers), period=DAY_S)
        return np.asarray(here, dtype=np.float64)

    def growth(self, within_s: float) -> float:
        """The most by which the rate grows within `within_s`: highest of rate(t + within)/rate(t) - 1, at least 0.

        Times at which the rate is below a tenth of the mean are left out: the minimum fleet carries them.
        """
        now = np.arange(0.0, DAY_S, 300.0)
        rate, later = self.at(now), self.at(now + within_s)
        counted = rate > 0.1
        return max(float(np.max(later[counted] / rate[counted])) - 1.0, 0.0)
