"""The largest load at which promised percentiles hold, a row a replica."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.sizing.decoder_curves import DecoderCurves
from tonnage.sizing.decoder_loads import p95_seen
from tonnage.sizing.decoder_reading import States, capacity_per_s, states_of
from tonnage.sizing.decoder_seen import SEEN, DecoderLoad, Seen
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

LEAST_SHARE: Final = 1e-4  # of the capacity: one request at a time
HALVINGS: Final = 9  # of the logarithm between that and all of it: 2 % of the load
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLimits:
    """Seconds that the 95th percentile must not pass, a row each; infinite: not promised."""

    latency_s: Array
    ttft_s: Array
    tpot_s: Array

    @property
    def made(self) -> frozenset[Seen]:
        """What is promised on some row."""
        return frozenset(name for name in SEEN if bool(np.isfinite(self.of(name)).any()))

    def of(self, name: Seen) -> Array:
        """The limit of one of them."""
        limit: Array = getattr(self, f"{name}_s")
        return limit

    def take(self, index: NDArray[np.intp]) -> LatencyLimits:
        """Those of some rows."""
        return LatencyLimits(latency_s=self.latency_s[index], ttft_s=self.ttft_s[index], tpot_s=self.tpot_s[index])

    def kept(self, curves: DecoderCurves, load: DecoderLoad, states: States | None = None) -> Flags:
        """Which rows keep all of them under a load. `states`: of these curves, where they are at hand."""
        p95 = p95_seen(curves, load, self.made, states)
        return np.asarray(np.logical_and.reduce([seconds <= self.of(name) for name, seconds in p95.items()]))


def endless(rate_per_s: Array) -> DecoderLoad:
    """Requests that come at random at a rate, with no end."""
    everywhere = np.full(np.shape(rate_per_s), np.inf)
    return DecoderLoad(requests=everywhere, rate_per_s=np.asarray(rate_per_s), users=everywhere)


def largest_rate(curves: DecoderCurves, limits: LatencyLimits) -> tuple[Array, Flags]:
    """(requests a second, kept at all): the capacity where nothing is promised, else the largest load within."""
    top = capacity_per_s(curves, curves.rows.slots)
    if not limits.made:
        return top, np.isfinite(top)
    share = np.full(len(top), np.log(LEAST_SHARE))
    states = states_of(curves)
    kept = limits.kept(curves, endless(top * LEAST_SHARE), states)
    able = np.flatnonzero(kept)
    if len(able):
        share[able] = _largest_share(curves.take(able), limits.take(able), top[able], states.take(able))
    return top * np.exp(share), kept


def _largest_share(curves: DecoderCurves, limits: LatencyLimits, top: Array, states: States) -> Array:
    """Logarithm of the largest share of `top` within the limits, by halving."""
    low, high = np.full(len(top), np.log(LEAST_SHARE)), np.zeros(len(top))
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        good = limits.kept(curves, endless(top * np.exp(middle)), states)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return low
