"""A load of requests, and what they see of a decoder replica: columns, a row a replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

# Where a waiting time is read: middles of shares of the requests, finer towards the late end.
WAIT_SHARES: Final = np.array([0.1, 0.2, 0.2, 0.2, 0.12, 0.08, 0.05, 0.03, 0.02])
WAIT_PLACES: Final = np.cumsum(WAIT_SHARES) - WAIT_SHARES / 2.0
NORMAL_PLACES: Final = np.array([NormalDist().inv_cdf(place) for place in WAIT_PLACES])
Seen = Literal["ttft", "tpot", "latency"]
SEEN: Final[tuple[Seen, ...]] = ("ttft", "tpot", "latency")
PERCENTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLoad:
    """What a replica is asked, a figure a row; infinite where there is no such limit.

    `requests` in all, `rate_per_s` at which they arrive (infinite: all at once), `users` who each wait for an answer.
    """

    requests: Array
    rate_per_s: Array
    users: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySpread:
    """A time that requests see, seconds: mean and percentiles, a row each."""

    mean: Array
    at: Mapping[str, Array]  # p50, p90, p95, p99

    def take(self, index: NDArray[np.intp]) -> LatencySpread:
        """That of some rows."""
        return LatencySpread(mean=self.mean[index], at={name: values[index] for name, values in self.at.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLoad:
    """A load as it is served. `in_flight`: requests that a step serves; `capacity_per_s`: of an endless load;
    `between_tokens_s`: the mean over all tokens, where `tpot` is of requests, short answers and long ones alike, and
    `median_between_tokens_s` their median."""

    requests_per_s: Array
    capacity_per_s: Array
    in_flight: Array
    makespan_s: Array
    ttft: LatencySpread
    tpot: LatencySpread
    latency: LatencySpread
    between_tokens_s: Array
    median_between_tokens_s: Array

    def take(self, index: NDArray[np.intp]) -> SeenLoad:
        """What some rows see."""
        return SeenLoad(
            requests_per_s=self.requests_per_s[index], capacity_per_s=self.capacity_per_s[index],
            in_flight=self.in_flight[index], makespan_s=self.makespan_s[index], ttft=self.ttft.take(index),
            tpot=self.tpot.take(index), latency=self.latency.take(index),
            between_tokens_s=self.between_tokens_s[index],
            median_between_tokens_s=self.median_between_tokens_s[index],
        )  # fmt: skip


def spread_of(seconds: Array, shares: Array) -> LatencySpread:
    found = quantiles(seconds, shares, tuple(PERCENTILES.values()))
    mean = np.asarray(np.sum(seconds * shares, axis=1))
    return LatencySpread(mean=mean, at=dict(zip(PERCENTILES, found, strict=True)))


def p95_of(seconds: Array, shares: Array) -> Array:
    """The 95th percentile of each row."""
    return quantiles(seconds, shares, (PERCENTILES["p95"],))[0]


def quantiles(seconds: Array, shares: Array, wanted: Sequence[float]) -> list[Array]:
    """Weighted quantiles of each row, one array for each of `wanted`: straight lines between the middles of the points'
    shares. The points of a row are put in order once for all of them."""
    count, points = seconds.shape
    if points == 1:
        return [seconds[:, 0]] * len(wanted)
    first = np.arange(count) * points
    order = np.argsort(seconds, axis=1, kind="stable") + first[:, None]
    values = np.take(seconds, order)
    weights = np.take(np.broadcast_to(shares, seconds.shape), order)
    middles = np.cumsum(weights, axis=1) - weights / 2.0
    return [_between(values, middles, first, share) for share in wanted]


def _between(values: Array, middles: Array, first: NDArray[np.intp], share: float) -> Array:
    """Each row's value where its middles pass `share`; `first`: of each row, its first point among all."""
    over = first + np.clip((middles < share).sum(axis=1), 1, values.shape[1] - 1)
    low, high = np.take(middles, over - 1), np.take(middles, over)
    left, right = np.take(values, over - 1), np.take(values, over)
    along = np.clip((share - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    return np.asarray(left + (right - left) * along)
