"""Seconds of inference passes: a whole forward (encoders, vision), a prefill, one decode step."""

from __future__ import annotations

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.collectives import all_reduce_s
from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Array, Num, column
from tonnage.sizing.operators import Pass
from tonnage.sizing.precision import WEIGHT_BYTES
from tonnage.sizing.rates import launch_s, total_s
from tonnage.sizing.stages import forward_stages
from tonnage.workload.shapes import ModelShape


def forward_s(
    shape: ModelShape,
    devices: Devices,
    *,
    batch: Num,
    query: Num,
    keys: Num,
    weights: str,
    tensor_parallel: Num = 1.0,
    logit_tokens: Num = 0.0,
    assumed: Assumptions | None = None,
    captured: bool = True,
) -> Array:
    """Seconds of one pass of `batch` sequences, `query` new tokens each, looking at `keys` tokens.

    `captured`: kernels are replayed (CUDA graph, TensorRT, ONNX Runtime), so the host's launches do not bound the pass.
    With tensor parallelism each layer adds two all-reduces (Shoeybi et al. 2019, arXiv:1909.08053).
    """
    assumed = assumed or Assumptions()
    element = 4.0 if weights == "fp32" else 2.0
    span = Pass(
        batch=batch,
        query=query,
        keys=keys,
        element_bytes=element,
        residual_bytes=element,
        weight_bytes=WEIGHT_BYTES[weights],
        tensor_parallel=tensor_parallel,
        attention="sdpa",
        training=False,
    )
    rows = len(devices.peak_flop_per_s)
    device, host = np.zeros(rows), np.zeros(rows)
    for stage in forward_stages(shape, span, logit_tokens=logit_tokens):
        device = device + stage.repeats * total_s(stage.operators, devices, assumed)
        host = host + stage.repeats * launch_s(stage.operators, assumed, compiled=False)
    size = span.tokens * shape.hidden * element
    nodes = np.ceil(np.asarray(tensor_parallel) / devices.per_node)
    reduce_s = all_reduce_s(size, tensor_parallel, nodes, devices)
    layers = shape.layers + shape.encoder_layers
    exchange = np.where(np.asarray(tensor_parallel) > 1, 2.0 * layers * reduce_s, 0.0)
    return column((device if captured else np.maximum(device, host)) + exchange, rows)


def prefill_s(
    shape: ModelShape,
    devices: Devices,
    *,
    batch: Num,
    input_tokens: Num,
    weights: str,
    tensor_parallel: Num = 1.0,
    assumed: Assumptions | None = None,
) -> Array:
    """Seconds to read `batch` prompts and produce their first token (without queueing)."""
    return forward_s(
        shape,
        devices,
        batch=batch,
        query=input_tokens,
        keys=input_tokens,
        weights=weights,
        tensor_parallel=tensor_parallel,
        logit_tokens=batch,
        assumed=assumed,
    )


def decode_step_s(
    shape: ModelShape,
    devices: Devices,
    *,
    batch: Num,
    context_tokens: Num,
    weights: str,
    tensor_parallel: Num = 1.0,
    assumed: Assumptions | None = None,
) -> Array:
    """Seconds to give each of `batch` requests one more token at a mean context of `context_tokens`.

    Weights stream from memory once a step, each request's keys and values once; the engine adds its own overhead.
    """
    assumed = assumed or Assumptions()
    step = forward_s(
        _decoder_only(shape),
        devices,
        batch=batch,
        query=1.0,
        keys=context_tokens,
        weights=weights,
        tensor_parallel=tensor_parallel,
        logit_tokens=batch,
        assumed=assumed,
    )
    return step + assumed.serving_step_overhead_us * 1e-6


def _decoder_only(shape: ModelShape) -> ModelShape:
    """A decode step of an encoder-decoder runs its decoder; the encoder ran in prefill."""
    if shape.architecture != "encoder-decoder":
        return shape
    from dataclasses import replace

    return replace(shape, architecture="decoder", encoder_layers=0, norms_per_layer=shape.norms_per_layer + 1)
