"""A load of requests, and what they see of a decoder replica: columns, a row a replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from tonnage.sizing.estimates import Array

# Where a waiting time is read: middles of shares of the requests, finer towards the late end.
WAIT_SHARES: Final = np.array([0.1, 0.2, 0.2, 0.2, 0.12, 0.08, 0.05, 0.03, 0.02])
WAIT_PLACES: Final = np.cumsum(WAIT_SHARES) - WAIT_SHARES / 2.0
NORMAL_PLACES: Final = np.array([NormalDist().inv_cdf(place) for place in WAIT_PLACES])
PERCENTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a replica is asked, a figure a row; infinite where there is no such limit.

    `requests` in all, `rate_per_s` at which they arrive (infinite: all at once), `users` who each wait for an answer.
    """

    requests: Array
    rate_per_s: Array
    users: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A time that requests see, seconds: mean and percentiles, a row each."""

    mean: Array
    at: Mapping[str, Array]  # p50, p90, p95, p99


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A load as it is served. `in_flight`: requests that a step serves; `capacity_per_s`: of an endless load."""

    requests_per_s: Array
    capacity_per_s: Array
    in_flight: Array
    makespan_s: Array
    ttft: Spread
    tpot: Spread
    latency: Spread


def spread_of(seconds: Array, shares: Array) -> Spread:
    at = {name: quantile(seconds, shares, share) for name, share in PERCENTILES.items()}
    return Spread(mean=np.asarray(np.sum(seconds * shares, axis=1)), at=at)


def quantile(seconds: Array, shares: Array, share: float) -> Array:
    """The weighted quantile of each row, straight lines between the middles of the points' shares."""
    order = np.argsort(seconds, axis=1, kind="stable")
    values = np.take_along_axis(seconds, order, axis=1)
    weights = np.take_along_axis(np.broadcast_to(shares, seconds.shape), order, axis=1)
    middles = np.cumsum(weights, axis=1) - weights / 2.0
    cell = np.clip((middles < share).sum(axis=1), 1, max(values.shape[1] - 1, 1))[:, None]
    if values.shape[1] == 1:
        return values[:, 0]
    low, high = np.take_along_axis(middles, cell - 1, axis=1), np.take_along_axis(middles, cell, axis=1)
    left, right = np.take_along_axis(values, cell - 1, axis=1), np.take_along_axis(values, cell, axis=1)
    along = np.clip((share - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    return np.asarray((left + (right - left) * along)[:, 0])
