"""What one replica of a service carries and shows, a row per candidate."""

from __future__ import annotations

from tonnage.sizing.estimates import Array
from tonnage.sizing.inference_memory import ServingMemory
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """One replica per row at one concurrency. `requests_per_s`: its capacity, the most it answers; seconds: what a
    request sees under the load that fleets are planned to."""

    concurrency: Array
    requests_per_s: Array
    latency_mean_s: Array
    latency_p95_s: Array
    ttft_p95_s: Array
    tpot_s: Array  # NaN where nothing is generated
    memory: ServingMemory
    needed_bytes: Array
