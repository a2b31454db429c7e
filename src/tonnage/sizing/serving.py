"""A replica under load: how many requests a second it answers within its promise, and the latency it shows.

Decoders batch continuously: with B requests in flight a step takes S(B), a request stays W(B) = prefill + output x S(B)
seconds; by Little's law the replica answers B / W(B) requests a second. Arrivals are Poisson, so the number in flight
varies like sqrt(B); the 95th percentile is read at B + 1.645·sqrt(B). Encoders stand in
`sizing/encoder_replicas.py`.
"""

from __future__ import annotations

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices
from tonnage.sizing.encoder_replicas import encoder_replicas
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array
from tonnage.sizing.inference_memory import estimate_serving_memory, held_tokens
from tonnage.sizing.inference_time import decode_step_s, default_engine, forward_s, prefill_s
from tonnage.sizing.length_spread import Z95, log_spread, upper_share
from tonnage.sizing.replicas import Replicas
from tonnage.workload.jobs import Requests
from tonnage.workload.shapes import ModelShape

CONCURRENCIES = tuple(float(2**i) for i in range(11))  # 1 ... 1,024 requests in flight


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
    return encoder_replicas(shape, requests, devices, weights, tensor_parallel, concurrency, assumed, engine)


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
    """Continuous batching: decode steps shared by all in flight, prompts of newcomers read in the same steps.

    Checked against the event simulation in docs/decisions/serving-simulation.md.
    """
    assert requests.output_tokens is not None
    prompt, output = requests.input_tokens, requests.output_tokens
    engine = engine or default_engine(shape)
    common = {"weights": weights, "tensor_parallel": tensor_parallel, "assumed": assumed, "engine": engine}
    long_prompt = prompt.mean * upper_share(prompt)
    alone = prefill_s(shape, devices, batch=1.0, input_tokens=prompt.mean, **common)  # type: ignore[arg-type]
    alone95 = prefill_s(shape, devices, batch=1.0, input_tokens=long_prompt, **common)  # type: ignore[arg-type]
    front = engine.request_us * 1e-6
    waits = front + engine.reply_us * 1e-6
    context = prompt.mean + output.mean * np.exp(log_spread(output) ** 2) / 2.0  # long answers are met more often

    def linear_s(tokens: Array) -> Array:
        """One pass over `tokens` with next to no attention: what prompts add to a step is a difference of these."""
        return forward_s(shape, devices, batch=1.0, query=tokens, keys=1.0, logit_tokens=1.0, **common)  # type: ignore[arg-type]

    def latency(in_flight: Array) -> tuple[Array, Array]:
        """Seconds a request stays with `in_flight` others, and seconds per output token."""
        step = decode_step_s(shape, devices, batch=in_flight, context_tokens=context, **common)  # type: ignore[arg-type]
        # Weights are read once for decodes and prompts: a prompt costs what it adds. `arriving`: prompts a step.
        arriving = in_flight / max(output.mean, 1.0)
        seldom = arriving * (linear_s(in_flight + prompt.mean) - linear_s(in_flight))
        often = linear_s(in_flight + arriving * prompt.mean) - linear_s(in_flight)
        per_token = step + np.where(arriving <= 1.0, seldom, often)
        return waits + alone + per_token * output.mean, per_token

    stay, per_token = latency(concurrency)
    busy = concurrency + Z95 * np.sqrt(concurrency)
    stay95, per_token95 = latency(busy)
    spread = np.sqrt(np.log(stay95 / stay) ** 2 + np.log(upper_share(output)) ** 2)  # load and length vary apart
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
        latency_p95_s=stay * np.exp(spread),
        ttft_p95_s=waits + alone95 + per_token95,
        tpot_s=per_token,
        memory=memory,
        needed_bytes=memory.fixed_bytes + longest * memory.kv_bytes_per_token,
    )
