"""A replica as a simulation sees it: how long its steps take and how it schedules them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from tonnage.catalog.hardware import Accelerator
from tonnage.errors import InputError, UnsizedHardware
from tonnage.sizing.continuous_batching import ContinuousBatching, DecoderServer
from tonnage.sizing.devices import Devices
from tonnage.sizing.dynamic_batching import DynamicBatching, EncoderServer
from tonnage.sizing.engines import Engine
from tonnage.sizing.kv_pool import cache_bytes_per_token, engine_memory, with_cache
from tonnage.sizing.request_log import RequestLog
from tonnage.sizing.schedulers import SCHEDULERS, Scheduler, scheduler_of
from tonnage.sizing.served_formats import FORMATS
from tonnage.sizing.step_times import DecoderTimes, EncoderTimes, decoder_times, encoder_times
from tonnage.values import dataclass
from tonnage.workload.engine_limits import NO_LIMITS, EngineLimits
from tonnage.workload.jobs import Requests
from tonnage.workload.shapes import ModelShape

Server = DecoderServer | EncoderServer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaModel:
    """Step times and scheduling policy; both of a decoder, or both of an encoder."""

    times: DecoderTimes | EncoderTimes
    policy: ContinuousBatching | DynamicBatching

    def __post_init__(self) -> None:
        if isinstance(self.times, DecoderTimes) != isinstance(self.policy, ContinuousBatching):
            raise InputError("a decoder's step times need continuous batching, an encoder's dynamic batching")
        if isinstance(self.policy, DynamicBatching):
            most = self.policy.max_batch
        else:
            most = self.policy.max_requests
            if self.policy.step_tokens <= most:
                raise InputError(
                    f"{self.policy.step_tokens} tokens a step for {most} requests leave none for prompts",
                    hint="step_tokens must be above max_requests",
                )
        if not 1 <= most <= self.times.most_requests:
            raise InputError(f"batches of {most}: the step times reach from 1 to {self.times.most_requests}")

    def server(self, log: RequestLog) -> Server:
        """A fresh replica at time 0 that records in `log`."""
        if isinstance(self.times, DecoderTimes) and isinstance(self.policy, ContinuousBatching):
            return DecoderServer(self.times, self.policy, log)
        assert isinstance(self.times, EncoderTimes)
        assert isinstance(self.policy, DynamicBatching)
        return EncoderServer(self.times, self.policy, log)

    @classmethod
    def from_sizing(
        cls,
        shape: ModelShape,
        devices: Devices,
        requests: Requests,
        *,
        weights: str,
        engine: Engine,
        tensor_parallel: int = 1,
        policy: ContinuousBatching | DynamicBatching | None = None,
    ) -> ReplicaModel:
        """A replica of `shape` on `tensor_parallel` of the devices in the one row of `devices`.

        `requests.*.maximum` are the longest lengths it may meet. Without a `policy` a decoder gets vLLM's defaults and
        the cache that memory leaves (`kv_tokens_of`), an encoder batches of 32 within 2 ms. Raises InputError where the
        model does not fit the devices.
        """
        if len(devices.peak_flop_per_s) != 1:
            raise InputError(f"a replica stands on one kind of machine; {len(devices.peak_flop_per_s)} rows are given")
        group = float(tensor_parallel)
        if requests.output_tokens is None or not shape.causal:
            batching = policy or DynamicBatching()
            if not isinstance(batching, DynamicBatching):
                raise InputError(f"{shape.name} writes no tokens: it is served with dynamic batching")
            table = encoder_times(
                shape, devices, weights=weights, tensor_parallel=group, most_requests=batching.max_batch,
                longest_tokens=requests.input_tokens.maximum, engine=engine,
            )  # fmt: skip
            return cls(times=_known(table, table.batch_s, shape, tensor_parallel), policy=batching)
        longest = requests.input_tokens.maximum + requests.output_tokens.maximum
        continuous = policy or _default_policy(shape, devices, weights, tensor_parallel, engine)
        if not isinstance(continuous, ContinuousBatching):
            raise InputError(f"{shape.name} writes tokens: it is served with continuous batching")
        most_tokens = continuous.step_tokens if continuous.chunked else longest + continuous.max_requests
        steps = decoder_times(
            shape, devices, weights=weights, tensor_parallel=group, most_requests=continuous.max_requests,
            most_tokens=max(most_tokens, continuous.step_tokens), longest_tokens=longest, engine=engine,
        )  # fmt: skip
        return cls(times=_known(steps, steps.decode_s, shape, tensor_parallel), policy=continuous)

    def with_policy(self, policy: ContinuousBatching | DynamicBatching) -> ReplicaModel:
        """The same step times under another policy (within the sizes the times reach)."""
        return replace(self, policy=policy)


Times = TypeVar("Times", DecoderTimes, EncoderTimes)


def _known(times: Times, table: list[list[float]], shape: ModelShape, tensor_parallel: int) -> Times:
    """The times, once it is sure that they are; an unpublished link leaves them unknown."""
    if not np.isfinite(np.array(table)).all():
        raise UnsizedHardware(
            f"{shape.name} over {tensor_parallel} devices: the rate of the link between them is not published",
            hint="fewer devices a replica, or a machine whose link is known",
        )
    return times


def kv_tokens_of(
    shape: ModelShape,
    devices: Devices,
    *,
    weights: str,
    tensor_parallel: int,
    step_tokens: int,
    requests: int = 256,
    scheduler: Scheduler = SCHEDULERS["vllm"],
    kv_cache: str = "auto",
    limits: EngineLimits = NO_LIMITS,
) -> int:
    """Tokens of KV cache that one replica holds, by the engine's own rule (`kv_pool.engine_memory`), as plans have it.

    `requests` and `step_tokens`: what a full step of the engine holds. `limits`: what else it is set to.
    """
    served = with_cache(FORMATS[weights], kv_cache, scheduler)
    ranks = np.array([float(tensor_parallel)])
    memory = engine_memory(
        scheduler, shape, served, devices, tensor_parallel=ranks, requests=float(requests),
        step_tokens=float(step_tokens), cache_fraction=limits.cache_fraction or 0.0, built=float(limits.built),
    )  # fmt: skip
    each = float(np.max(cache_bytes_per_token(shape, served, ranks)))
    return max(int(float(memory.pool_bytes[0]) / each), 0)


def _default_policy(
    shape: ModelShape,
    devices: Devices,
    weights: str,
    tensor_parallel: int,
    engine: Engine,
) -> ContinuousBatching:
    chunked = shape.architecture == "decoder"  # an encoder-decoder reads its prompt in one piece
    base = ContinuousBatching(
        kv_tokens=1, chunked=chunked, window_tokens=None if shape.full_layers else shape.sliding_window or None,
        front_s=engine.request_us * 1e-6, reply_s=engine.reply_us * 1e-6,
        shared_s=scheduler_of(None).accept_s,
    )  # fmt: skip
    tokens = kv_tokens_of(
        shape, devices, weights=weights, tensor_parallel=tensor_parallel, step_tokens=base.step_tokens,
        requests=base.max_requests,
    )  # fmt: skip
    if tokens < 1:
        raise InputError(
            f"{shape.name} in {weights} leaves no memory for a KV cache on {tensor_parallel} device(s)",
            hint="more tensor parallelism, smaller weights or a larger GPU",
        )
    return replace(base, kv_tokens=tokens)


def usual_policy(engine: str, device: Accelerator, *, kv_tokens: int) -> ContinuousBatching:
    """The scheduler of `engine` as the event simulation takes it, over a cache of `kv_tokens`."""
    scheduler = scheduler_of(engine)
    return ContinuousBatching(
        kv_tokens=kv_tokens,
        max_requests=scheduler.most_requests(device),
        step_tokens=scheduler.most_step_tokens(device),
        chunked=scheduler.chunked,
        admission="recompute" if scheduler.admission == "recompute" else "reserve",
        prompts_first=scheduler.prompts_first,
        shared_s=scheduler.accept_s,
    )
