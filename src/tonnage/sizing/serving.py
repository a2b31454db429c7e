"""A replica under load: how many requests a second it answers within its promise, and the latency it shows.

Decoders batch continuously: with B requests in flight a step takes S(B), a request stays W(B) = prefill + output x S(B)
seconds; by Little's law the replica answers B / W(B) requests a second. Arrivals are Poisson, so the number in flight
varies like sqrt(B); the 95th percentile is read at B + 1.645·sqrt(B). Encoders answer in batches: a request waits for
the batch under way and then for its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.inference_memory import ServingMemory, estimate_serving_memory, held_tokens
from tonnage.sizing.inference_time import decode_step_s, default_engine, forward_s, prefill_s
from tonnage.workload.jobs import Lengths, Requests
from tonnage.workload.shapes import ModelShape

CONCURRENCIES = tuple(float(2**i) for i in range(11))  # 1 ... 1,024 requests in flight
Z95 = 1.645  # 95th percentile of a normal variable


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """One replica per row at one concurrency: load it carries and what a request sees. Seconds, requests a second."""

    concurrency: Array
    requests_per_s: Array
    latency_mean_s: Array
    latency_p95_s: Array
    ttft_p95_s: Array
    tpot_s: Array  # NaN where nothing is generated
    memory: ServingMemory
    needed_bytes: Array


def estimate_replicas(
    shape: ModelShape,
    requests: Requests,
    devices: Devices,
    *,
    weights: str,
    tensor_parallel: Array,
    concurrency: Array,
    assumed: Assumptions | None = None,
    engine: Engine | None = None,
) -> Replicas:
    """Load and latency of one replica per row at `concurrency` requests in flight (decoder) or per batch (encoder)."""
    assumed = assumed or Assumptions()
    if requests.output_tokens is not None and shape.causal:
        return _decoder(shape, requests, devices, weights, tensor_parallel, concurrency, assumed, engine)
    return _encoder(shape, requests, devices, weights, tensor_parallel, concurrency, assumed, engine)


def _encoder(
    shape: ModelShape,
    requests: Requests,
    devices: Devices,
    weights: str,
    tensor_parallel: Array,
    batch: Array,
    assumed: Assumptions,
    engine: Engine | None,
) -> Replicas:
    """Batches of up to `batch`: rate = utilisation x batch / S; p95 = wait for the batch under way + own + queue.

    A batch is padded to its longest member, so S follows `padded_tokens`; the 95th percentile is a request of the
    longest kind.
    The queue term is the mean wait of an M/D/1 queue of batches, S·u/(2(1-u)) (Pollaczek-Khinchine), at utilisation u.
    """
    length = requests.input_tokens

    def batch_s(tokens: Num) -> Array:
        """Seconds of one batch padded to `tokens`."""
        return forward_s(
            shape,
            devices,
            batch=batch,
            query=tokens,
            keys=tokens,
            weights=weights,
            tensor_parallel=tensor_parallel,
            assumed=assumed,
            engine=engine,
        )

    service = batch_s(padded_tokens(length, batch))
    longest = batch_s(float(length.maximum)) if length.maximum > length.mean else service
    used = assumed.target_utilisation
    queue = service * used / (2 * (1 - used)) / np.maximum(batch, 1.0)
    memory = estimate_serving_memory(
        shape,
        weights=weights,
        tensor_parallel=tensor_parallel,
        batch_tokens=batch * length.maximum,
        assumed=assumed,
    )
    p95 = service + longest + 3.0 * queue
    return Replicas(
        concurrency=batch,
        requests_per_s=used * batch / service,
        latency_mean_s=1.5 * service + queue,
        latency_p95_s=p95,
        ttft_p95_s=p95,
        tpot_s=np.full(len(batch), np.nan),
        memory=memory,
        needed_bytes=memory.fixed_bytes,
    )


def padded_tokens(length: Lengths, batch: Array) -> Array:
    """Expected length a batch is padded to, tokens: the mean for one request, towards the longest as the batch grows.

    mean + (max - mean)·(b - 1)/(b + 1): the expected largest of b draws, spread evenly around the mean up to max.
    """
    many = np.maximum(batch, 1.0)
    return length.mean + (length.maximum - length.mean) * (many - 1.0) / (many + 1.0)


def _decoder(
    shape: ModelShape,
    requests: Requests,
    devices: Devices,
    weights: str,
    tensor_parallel: Array,
    concurrency: Array,
    assumed: Assumptions,
    engine: Engine | None,
) -> Replicas:
    """Continuous batching: decode steps shared by all in flight, prefills of newcomers between them."""
    assert requests.output_tokens is not None
    prompt, output = requests.input_tokens, requests.output_tokens
    engine = engine or default_engine(shape)
    common = {"weights": weights, "tensor_parallel": tensor_parallel, "assumed": assumed, "engine": engine}
    alone = prefill_s(shape, devices, batch=1.0, input_tokens=prompt.mean, **common)  # type: ignore[arg-type]
    front = engine.request_us * 1e-6
    # A prompt read among decode steps costs its tokens; the step's own overhead is paid anyway.
    prefill = alone - engine.call_us * 1e-6

    def latency(in_flight: Array) -> tuple[Array, Array]:
        """Seconds a request stays with `in_flight` others, and seconds per output token."""
        context = prompt.mean + output.mean / 2.0
        step = decode_step_s(shape, devices, batch=in_flight, context_tokens=context, **common)  # type: ignore[arg-type]
        # While a request decodes, every other request in flight is prefilled once per lifetime.
        per_token = step + in_flight * prefill / np.maximum(output.mean, 1.0)
        return front + alone + per_token * output.mean, per_token

    stay, per_token = latency(concurrency)
    busy = concurrency + Z95 * np.sqrt(concurrency)
    stay95, per_token95 = latency(busy)
    memory = estimate_serving_memory(
        shape, weights=weights, tensor_parallel=tensor_parallel, batch_tokens=2048.0, assumed=assumed
    )
    tokens = held_tokens(shape, float(prompt.maximum + output.maximum))
    mean_tokens = held_tokens(shape, prompt.mean + output.mean)
    longest = np.maximum(tokens, busy * mean_tokens)
    return Replicas(
        concurrency=concurrency,
        requests_per_s=np.minimum(concurrency / stay, 1.0 / front) if front else concurrency / stay,
        latency_mean_s=stay,
        latency_p95_s=np.maximum(stay95, stay * output.maximum / output.mean if output.maximum > output.mean else 0.0),
        ttft_p95_s=front + alone * 2.0 + per_token95,
        tpot_s=per_token,
        memory=memory,
        needed_bytes=memory.fixed_bytes + longest * memory.kv_bytes_per_token,
    )
