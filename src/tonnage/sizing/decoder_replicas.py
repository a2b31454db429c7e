"""Decoder replicas, a row each: what the engine's scheduler and cache allow on these devices, ready for any load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.catalog.hardware import Accelerator
from tonnage.sizing.decoder_curves import DecoderRows, draft_rows
from tonnage.sizing.devices import Devices
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array
from tonnage.sizing.inference_devices import host_factor
from tonnage.sizing.inference_memory import (
    activation_bytes,
    attending,
    attends_today,
    held_tokens,
    weights_bytes,
)
from tonnage.sizing.kv_pool import EngineMemory, cache_bytes_per_token, engine_memory, windowed
from tonnage.sizing.length_points import length_points
from tonnage.sizing.schedulers import Scheduler
from tonnage.sizing.served_formats import ServedFormat
from tonnage.units import from_gib
from tonnage.workload.engine_limits import NO_LIMITS, EngineLimits
from tonnage.workload.jobs import Lengths, Requests, Speculation
from tonnage.workload.shapes import ModelShape


def decoder_rows(
    shape: ModelShape,
    served: ServedFormat,
    scheduler: Scheduler,
    devices: Devices,
    accelerators: Sequence[Accelerator],
    requests: Sequence[Requests],
    *,
    tensor_parallel: Array,
    concurrency: Array,
    beams: Array | float = 1.0,
    cached: float = 0.0,
    speculation: Speculation | None = None,
    data_ranks: Array | float = 1.0,
    expert_parallel: Array | float = 1.0,
    engine: Engine | None = None,
    limits: Sequence[EngineLimits] = (),
    fused_attention: bool | None = None,
) -> DecoderRows:
    """Rows of replicas. `concurrency`: most requests in flight, NaN for the engine's own limit; what it is set to, the
    tokens of a step and the cache may allow fewer. `requests`: of each row; all of a call state their lengths in the
    same way (as many points). `cached`: share of prompts that the prefix cache holds. `data_ranks`: engines side by
    side in a replica that share the experts, each with limits and a cache of its own. `engine`: the class whose memory
    counts beside the scheduler's own rule. `limits`: what the engine was set to, a row each (none: to its defaults).
    `fused_attention`: whether prompts are read by one kernel, where it is stated."""
    prompts, prompt_shares = _points([one.input_tokens for one in requests])
    outputs, output_shares = _points([one.output_tokens or one.input_tokens for one in requests])
    set_to = limits or [NO_LIMITS] * len(accelerators)
    pairs = list(zip(set_to, accelerators, strict=True))
    limit = np.array([most_requests(scheduler, *pair) for pair in pairs]) * data_ranks
    step_tokens = np.array([most_step_tokens(scheduler, *pair) for pair in pairs]) * data_ranks
    stated = np.array([one.requests or np.inf for one in set_to]) * data_ranks
    most = np.where(np.isnan(concurrency), limit, np.minimum(stated, concurrency))
    if not scheduler.prompts_first:  # each request takes a token of a step, and its guesses
        each = 1.0 if speculation is None else speculation.rows
        most = np.minimum(most, np.maximum(np.floor(step_tokens / each), 1.0))
    rows = DecoderRows(
        shape=shape, served=served, scheduler=scheduler, devices=devices, tensor_parallel=tensor_parallel,
        host_factor=np.array([host_factor(device) for device in accelerators]), slots=most,
        data_ranks=data_ranks, expert_parallel=expert_parallel,
        step_tokens=np.maximum(step_tokens, 1.0), prompts=prompts, prompt_shares=prompt_shares, outputs=outputs,
        output_shares=output_shares, beams=beams, cached=cached,
        speculation=speculation, read_bytes=_read_bytes(
            shape, served, scheduler, requests, tensor_parallel, engine and _reading(engine, shape, fused_attention)
        ),
        workspace_bytes=0.0 if engine is None else from_gib(engine.workspace_gib),
        cache_fraction=np.array([one.cache_fraction or 0.0 for one in set_to]),
        built=np.array([float(one.built) for one in set_to]),
    )  # fmt: skip
    if scheduler.admission == "fixed":
        return rows
    held = cache_room(rows, limit)
    return replace(rows, slots=np.maximum(np.minimum(most, np.floor(held)), 1.0))


def most_requests(scheduler: Scheduler, limits: EngineLimits, device: Accelerator) -> float:
    """Requests in flight that the engine is set to."""
    return float(limits.requests or scheduler.most_requests(device))


def most_step_tokens(scheduler: Scheduler, limits: EngineLimits, device: Accelerator) -> float:
    """Tokens of one step that the engine is set to."""
    return float(limits.step_tokens or scheduler.most_step_tokens(device))


def _reading(engine: Engine, shape: ModelShape, fused: bool | None) -> Engine:
    return attending(engine, attends_today(engine, shape) if fused is None else fused)


def _read_bytes(
    shape: ModelShape, served: ServedFormat, scheduler: Scheduler, requests: Sequence[Requests], tensor_parallel: Array,
    engine: Engine | None,
) -> Array:  # fmt: skip
    """Activations of each request's prompt, read in one pass with the other prompts of its batch; 0 where the engine
    reads prompts in steps of so many tokens."""
    if scheduler.admission != "fixed":
        return np.zeros(len(requests))
    tokens = np.array([float(one.input_tokens.maximum) for one in requests])
    made = activation_bytes(shape, served, engine, batch=1.0, tokens=tokens, tensor_parallel=tensor_parallel)
    buffers = 0.0 if engine is None else engine.layer_buffers
    return np.asarray(np.maximum(made, buffers * shape.hidden * tokens * served.element_bytes))


def rows_memory(rows: DecoderRows, requests: Array) -> EngineMemory:
    """What the engine holds on each row, set to `requests` in flight."""
    draft = draft_rows(rows)
    beside = 0.0 if draft is None else weights_bytes(draft.shape, draft.served) / draft.tensor_parallel
    return engine_memory(
        rows.scheduler, rows.shape, rows.served, rows.devices, tensor_parallel=rows.tensor_parallel,
        requests=requests / rows.data_ranks, step_tokens=rows.step_tokens / rows.data_ranks, beside_bytes=beside,
        workspace_bytes=rows.workspace_bytes,
        data_ranks=rows.data_ranks, cache_fraction=rows.cache_fraction, built=rows.built,
    )  # fmt: skip


def request_bytes(rows: DecoderRows, tokens: Array) -> Array:
    """Bytes per device that a request of `tokens` takes for itself, beside what all share: its cache, and in a fixed
    batch the activations of its prompt."""
    own = np.maximum(tokens - rows.cached * rows.prompt, 1.0) if rows.cached else tokens
    return _cache_bytes(rows, own) + rows.read_bytes


def batch_bytes(rows: DecoderRows, tokens: Array) -> Array:
    """Bytes per device with as many requests of `tokens` in flight as there may be, all held to their last token."""
    return rows_memory(rows, rows.slots).held_bytes + request_bytes(rows, tokens) * rows.slots + shared_bytes(rows)


def shared_bytes(rows: DecoderRows) -> Array:
    """Bytes of cache per device that all requests share: what is cached of a mean prompt, once."""
    return _cache_bytes(rows, rows.cached * rows.prompt)


def _cache_bytes(rows: DecoderRows, tokens: Array) -> Array:
    """Bytes of cache per device of so many tokens, those of a draft model with them."""
    held = held_tokens(windowed(rows.shape, rows.scheduler), tokens)
    own = np.asarray(held * cache_bytes_per_token(rows.shape, rows.served, rows.tensor_parallel))
    draft = draft_rows(rows)
    return own if draft is None else own + _cache_bytes(draft, tokens)


def cache_room(rows: DecoderRows, requests: Array) -> Array:
    """Requests whose keys and values fit, of the mean length; below 1 where not even one does.

    `requests`: the limit that the engine is set to (its buffers are sized for it). An engine that admits on what a
    request holds now has room for half of its answer, one that reserves for all of it.
    """
    answer = rows.output * rows.beams
    tokens = rows.context if rows.scheduler.admission == "recompute" else rows.prompt + answer
    pool = rows_memory(rows, requests).pool_bytes - shared_bytes(rows)
    return np.asarray(pool / np.maximum(request_bytes(rows, tokens), 1.0) * rows.data_ranks)


def _points(lengths: Sequence[Lengths]) -> tuple[Array, Array]:
    found = [length_points(one) for one in lengths]
    return np.stack([one.tokens for one in found]), np.stack([one.shares for one in found])
