"""The load that a plan gives a replica, held against the event simulation: does the promised percentile hold there?

The plan's closed form decides how many machines there are, here as everywhere; the simulation says whether it holds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.planning.calibrated_model import CalibratedModel, generates
from tonnage.planning.layouts.machines import accelerator_machine_types
from tonnage.service.units import FleetUnit
from tonnage.sizing.arrivals import Arrivals, Bursty, Poisson, SpreadLengths
from tonnage.sizing.continuous_batching import ContinuousBatching
from tonnage.sizing.decoder_replicas import most_requests, most_step_tokens
from tonnage.sizing.devices import Devices
from tonnage.sizing.engines import Engine
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.kv_pool import windowed
from tonnage.sizing.percentiles import Percentiles, ServingPercentiles
from tonnage.sizing.precision import SERVING_COMPUTE
from tonnage.sizing.replica_model import ReplicaModel, kv_tokens_of, usual_policy
from tonnage.sizing.schedulers import scheduler_of
from tonnage.sizing.served_weights import served_weights
from tonnage.sizing.simulation import simulate
from tonnage.values import dataclass
from tonnage.workload.jobs import ServeJob

Quantile = Literal["p95", "p99"]
FEWEST_REQUESTS, MOST_REQUESTS = 3_000, 20_000
PROMISES = 20.0  # a trial lasts at least so many promises: an overload shows
STEP = 0.9
STEPS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a service promises at a percentile, seconds. None: not promised."""

    quantile: Quantile
    latency_s: float | None
    ttft_s: float | None

    def kept(self, latency: Percentiles, ttft: Percentiles) -> bool:
        seen, first = float(getattr(latency, self.quantile)), float(getattr(ttft, self.quantile))
        return seen <= (self.latency_s or math.inf) and first <= (self.ttft_s or math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What one replica does in the simulation. `factor`: the part of the planned load at which the promise holds; 0:
    at none of those tried. Seconds are those seen at the planned load."""

    planned_per_s: float
    factor: float
    latency_s: float  # at the promised percentile
    ttft_s: float

    @property
    def kept(self) -> bool:
        """Whether the promise holds at the load that the plan gives a replica."""
        return self.factor >= 1.0


def promise_of(job: ServeJob, quantile: Quantile) -> Promise:
    return Promise(quantile=quantile, latency_s=job.p95_latency_s, ttft_s=job.p95_ttft_s)


def simulated(unit: FleetUnit) -> bool:
    """Whether the simulation knows the unit's layout: one pool of replicas, tensor parallel at most."""
    layout = dict(unit.option.run.layout_fields)
    degrees = ("expert_parallel", "attention_data_parallel")
    return len(unit.pools) == 1 and all(int(layout.get(name, 1)) <= 1 for name in degrees)


def verify_unit(
    unit: FleetUnit,
    job: ServeJob,
    promise: Promise,
    catalog: Catalog,
    *,
    load_per_s: float,
    seed: int = 0,
    variation: float = 1.0,
    calibrated: CalibratedModel | None = None,
) -> Verified:
    """Whether the simulated percentile keeps the promise at `load_per_s` a replica, else at 0.9^n of it, n up to 11.

    Arrivals are Poisson, or gamma gaps of `variation`.
    """
    replica = _replica(unit, job, catalog, calibrated or CalibratedModel.packaged())
    first, kept = _seen(replica, job, promise, load_per_s, seed, variation)
    factor = 1.0
    for _ in range(STEPS - 1):
        if kept:
            break
        factor *= STEP
        _, kept = _seen(replica, job, promise, load_per_s * factor, seed, variation)
    return Verified(
        planned_per_s=load_per_s, factor=factor if kept else 0.0, latency_s=getattr(first.latency_s, promise.quantile),
        ttft_s=getattr(first.ttft_s, promise.quantile),
    )  # fmt: skip


def _seen(
    replica: ReplicaModel, job: ServeJob, promise: Promise, rate: float, seed: int, variation: float
) -> tuple[ServingPercentiles, bool]:
    longest = max(promise.latency_s or 0.0, promise.ttft_s or 0.0, 0.1)
    count = int(min(max(FEWEST_REQUESTS, PROMISES * rate * longest), MOST_REQUESTS))
    process = Poisson(rate_per_s=rate) if variation == 1.0 else Bursty(rate_per_s=rate, variation=variation)
    traffic = Arrivals(process=process, lengths=SpreadLengths(requests=job.requests), requests=count)
    seen = simulate(replica, traffic, seed=seed)
    return seen, promise.kept(seen.latency_s, seen.ttft_s)


def _replica(unit: FleetUnit, job: ServeJob, catalog: Catalog, calibrated: CalibratedModel) -> ReplicaModel:
    assumed = calibrated.assumed
    instance = catalog.instance_type(unit.option.instance_type, unit.option.provider)
    weights: str = job.weights
    if generates(job) and instance.accelerator is not None:
        weights = served_weights(weights, job.engine, catalog.accelerator(instance.accelerator))
    types = accelerator_machine_types(catalog, [instance], precision=SERVING_COMPUTE[weights], assumed=assumed)
    devices = serving_devices(types.machines, SERVING_COMPUTE[weights], assumed)
    tensor = int(dict(unit.option.run.layout_fields)["tensor_parallel"])
    policy = None
    if generates(job):
        policy = _policy(job, types.machines[0].accelerator, devices, tensor, calibrated.engine(job))
    return ReplicaModel.from_sizing(
        job.model,
        devices,
        job.requests,
        weights=weights,
        tensor_parallel=tensor,
        policy=policy,
        engine=calibrated.engine(job),
    )


def _policy(job: ServeJob, device: Accelerator, devices: Devices, tensor: int, engine: Engine) -> ContinuousBatching:
    """The engine's scheduler over the cache that its own rule leaves."""
    scheduler, limits = scheduler_of(job.engine), job.engine_limits
    requests = round(most_requests(scheduler, limits, device))
    step_tokens = round(most_step_tokens(scheduler, limits, device))
    tokens = kv_tokens_of(
        job.model, devices, weights=served_weights(job.weights, job.engine, device), tensor_parallel=tensor,
        step_tokens=step_tokens, requests=requests, scheduler=scheduler, kv_cache=job.kv_cache, limits=limits,
    )  # fmt: skip
    shared = job.prefix_cache_fraction * job.requests.input_tokens.mean  # held once
    usual = usual_policy(scheduler.name, device, kv_tokens=max(tokens - round(shared), 1))
    return replace(
        usual,
        max_requests=min(requests, job.concurrency or requests),
        step_tokens=step_tokens,
        chunked=usual.chunked or limits.chunked,
        window_tokens=windowed(job.model, scheduler).sliding_window or None,
        cached_fraction=job.prefix_cache_fraction,
        front_s=engine.request_us * 1e-6,
        reply_s=engine.reply_us * 1e-6,
    )
