"""Seconds of inference passes: a whole forward (encoders, vision), a prefill, one decode step."""

from __future__ import annotations

from typing import Final

from tonnage.sizing.devices import Devices
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.inference_pass import decoder_only, pass_s, pass_work
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import ModelShape

NARROWEST_BYTES: Final = min(served.weight_bytes for served in FORMATS.values())


def default_engine_class(*, generates: bool) -> str:
    """What we serve with: a Python LLM engine (vLLM's class) where tokens are generated, else fused kernels."""
    return "llm-python" if generates else "fused"


def forward_s(
    shape: ModelShape,
    devices: Devices,
    *,
    batch: Num,
    query: Num,
    keys: Num,
    weights: str,
    engine: Engine,
    tensor_parallel: Num = 1.0,
    logit_tokens: Num = 0.0,
) -> Array:
    """Seconds of one pass of `batch` sequences, `query` new tokens each, looking at `keys` tokens.

    Efficiencies are those of `engine`. With tensor parallelism each layer adds two all-reduces.
    `devices` as `serving_devices` gives them; printed rates (`stack`) make a pass up to a fifth too fast.
    """
    work = pass_work(
        shape, devices, FORMATS[weights], engine, batch=batch, query=query, keys=keys,
        tensor_parallel=tensor_parallel, logit_tokens=logit_tokens,
    )  # fmt: skip
    return pass_s(work, engine)


def decode_step_s(
    shape: ModelShape,
    devices: Devices,
    *,
    batch: Num,
    context_tokens: Num,
    weights: str,
    engine: Engine,
    tensor_parallel: Num = 1.0,
) -> Array:
    """Seconds to give each of `batch` requests one more token at a mean context of `context_tokens`.

    Weights stream from memory once a step, each request's keys and values once; the engine adds what a step and a
    sequence cost its scheduler.
    """
    return forward_s(
        decoder_only(shape),
        devices,
        batch=batch,
        query=1.0,
        keys=context_tokens,
        weights=weights,
        tensor_parallel=tensor_parallel,
        logit_tokens=batch,
        engine=engine,
    )


def fastest_step_s(shape: ModelShape, memory_bandwidth_gb_per_s: float) -> float:
    """Seconds that no decode step of a decoder goes below, whatever engine and format: what every token passes through
    is read once, held as narrow as any format holds it. Tables are looked up and towers rest."""
    count = count_parameters(shape)
    looked_up = count.embedding_total if count.lm_head else count.positions
    return (count.active - looked_up - count.towers) * NARROWEST_BYTES / (memory_bandwidth_gb_per_s * 1e9)
