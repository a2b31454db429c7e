"""What the requests of a simulation saw, as percentiles."""

from __future__ import annotations

import numpy as np

from tonnage.sizing.estimates import Array
from tonnage.sizing.traces import Counts
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """One quantity over the requests counted; linear interpolation between order statistics."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    maximum: float

    @classmethod
    def of(cls, values: Array) -> Percentiles:
        p50, p90, p95, p99 = (float(value) for value in np.percentile(values, (50, 90, 95, 99)))
        return cls(
            mean=float(np.mean(values)), p50=p50, p90=p90, p95=p95, p99=p99, maximum=float(np.max(values))
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Every request of a simulation, in order of arrival; seconds on the simulation's clock.

    `busy_s` is summed over replicas. The cache figures are of the fullest replica.
    """

    arrival_s: Array
    first_token_s: Array
    finish_s: Array
    input_tokens: Counts
    output_tokens: Counts
    replicas: int
    busy_s: float
    peak_kv_tokens: int
    kv_tokens: int | None  # None: nothing is kept between steps
    preemptions: int

    @property
    def latency_s(self) -> Array:
        return self.finish_s - self.arrival_s

    @property
    def span_s(self) -> float:
        """From the first arrival to the last answer."""
        return float(np.max(self.finish_s) - self.arrival_s[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPercentiles:
    """Latency and load of a simulated service.

    Percentiles and rates leave out the first `warm_up_requests` arrivals, which find the service empty. Rates are what
    was counted over the time from the first arrival counted to the last answer, so they include the drain, as
    benchmark tools do. `utilisation` is the share of the whole span in which a replica computes, mean over replicas.
    `tpot_s`: seconds per token after the first, over requests that write at least two; None where there are none.
    """

    requests: int
    warm_up_requests: int
    latency_s: Percentiles
    ttft_s: Percentiles
    tpot_s: Percentiles | None
    requests_per_s: float
    output_tokens_per_s: float
    utilisation: float
    peak_kv_tokens: int
    peak_kv_fraction: float | None
    preemptions: int

    @classmethod
    def of(cls, served: Served, *, warm_up_fraction: float) -> ServingPercentiles:
        cut = min(int(len(served.arrival_s) * warm_up_fraction), len(served.arrival_s) - 1)
        ttft = (served.first_token_s - served.arrival_s)[cut:]
        output = served.output_tokens[cut:]
        several = output > 1
        decode = (served.finish_s - served.first_token_s)[cut:][several] / (output[several] - 1)
        counted_s = float(np.max(served.finish_s) - served.arrival_s[cut])
        return cls(
            requests=len(ttft),
            warm_up_requests=cut,
            latency_s=Percentiles.of(served.latency_s[cut:]),
            ttft_s=Percentiles.of(ttft),
            tpot_s=Percentiles.of(decode) if several.any() else None,
            requests_per_s=len(ttft) / counted_s,
            output_tokens_per_s=float(output.sum()) / counted_s,
            utilisation=served.busy_s / served.replicas / served.span_s,
            peak_kv_tokens=served.peak_kv_tokens,
            peak_kv_fraction=served.peak_kv_tokens / served.kv_tokens if served.kv_tokens else None,
            preemptions=served.preemptions,
        )
