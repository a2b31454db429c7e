"""Memory of a served model per device, part by part."""

from __future__ import annotations

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.estimates import Array, Num, column
from tonnage.sizing.inference_pass import FORMATS, ServedFormat
from tonnage.units import from_gib
from tonnage.values import dataclass
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import ModelShape

KV_ELEMENT_BYTES = 2.0  # fp16 / bf16 cache whatever the weights


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMemory:
    """Bytes per device of one replica, one row per candidate. `kv_bytes_per_token` is per device."""

    weights_bytes: Array
    activations_bytes: Array
    context_bytes: Array
    kv_bytes_per_token: Array

    @property
    def fixed_bytes(self) -> Array:
        """What a replica needs before its first request."""
        return self.weights_bytes + self.activations_bytes + self.context_bytes

    def needed_bytes(self, requests: Num, tokens_per_request: Num) -> Array:
        """Fixed bytes and the KV cache of `requests` held at once."""
        return self.fixed_bytes + requests * tokens_per_request * self.kv_bytes_per_token


def kv_bytes_per_token(
    shape: ModelShape, tensor_parallel: Num = 1.0, *, element_bytes: float = KV_ELEMENT_BYTES
) -> Num:
    """Bytes of keys and values one token leaves in all decoder layers, per device.

    2 · layers · kv_heads · head_dim · element bytes (2 at 16 bit); the tensor-parallel group divides the heads as far
    as they go. Latent attention keeps the compressed pair and the rotary key instead, whole on each device.
    Encoders, vision models and convolutions keep none; with a sliding window the tokens held are limited, not these.

    >>> from tonnage.workload.known import find_model
    >>> float(kv_bytes_per_token(find_model("llama-2-7b")))  # 2 x 32 layers x 4096 x 2 bytes
    524288.0
    """
    if not shape.causal:
        return 0.0
    if shape.kv_latent:
        kept = shape.kv_latent + shape.rotary_dim
        return shape.layers * kept * element_bytes * np.ones(np.shape(tensor_parallel))
    heads = shape.kv_heads / np.minimum(tensor_parallel, shape.kv_heads)
    return 2.0 * shape.layers * heads * shape.head_dim * element_bytes


def held_tokens(shape: ModelShape, tokens: Num) -> Num:
    """Tokens a request keeps in the cache, mean of the layers: all, or as many as the layer's window sees."""
    if not shape.sliding_window:
        return tokens
    share = shape.full_layers / shape.layers
    return share * tokens + (1.0 - share) * np.minimum(tokens, shape.sliding_window)


def estimate_serving_memory(
    shape: ModelShape,
    *,
    weights: str,
    tensor_parallel: Array,
    batch_tokens: Num,
    assumed: Assumptions | None = None,
) -> ServingMemory:
    """Memory of one replica: weights, the activations of `batch_tokens` in one pass, runtime; bytes per device.

    Nothing is kept for backward: activations are the widest layer's inputs and outputs (and, for a causal model, the
    logits of the sequences, which are small beside them). int4 keeps embeddings and head at 16 bit.
    """
    assumed = assumed or Assumptions()
    rows, t = len(tensor_parallel), tensor_parallel
    widest: Num = shape.hidden * 4 + 2 * max(shape.ffn * (max(shape.experts_per_token, 1)), shape.hidden * 3) / t
    if shape.architecture == "convolution":
        widest = max(conv.out_channels * conv.output_side**2 for conv in shape.convolutions) * 4.0
    several = np.where(t > 1, assumed.collective_buffers_gib, 0.0)
    return ServingMemory(
        weights_bytes=column(weights_bytes(shape, FORMATS[weights]) / t, rows),
        activations_bytes=column(batch_tokens * widest * 2.0, rows),
        context_bytes=column(
            from_gib(1.0) * (assumed.runtime_context_gib + assumed.library_workspace_gib + several), rows
        ),
        kv_bytes_per_token=column(kv_bytes_per_token(shape, t), rows),
    )


def inference_peak_bytes(
    shape: ModelShape,
    served: ServedFormat,
    tensor_parallel: Array,
    batch: Num,
    prompt: Num,
    output: Num,
    *,
    layer_buffers: float = 0.0,
) -> Array:
    """Device memory of a fixed batch held to its last token: weights, cache, the prompt's activations, runtime.

    `layer_buffers`: as wide as the model, for each token of the prompts (`Engine.layer_buffers`); 0: the widest layer.
    """
    several = np.where(tensor_parallel > 1, from_gib(Assumptions().collective_buffers_gib), 0.0)
    cache = batch * (prompt + output) * kv_bytes_per_token(shape, tensor_parallel) * served.kv_bytes / KV_ELEMENT_BYTES
    widest = shape.hidden * 4 + 2 * max(shape.ffn, shape.hidden * 3) / tensor_parallel
    kept = layer_buffers * shape.hidden if layer_buffers else widest
    activations = batch * prompt * kept * served.element_bytes
    weights = weights_bytes(shape, served) / tensor_parallel
    return np.asarray(weights + cache + activations + ENGINE_WORKSPACE_BYTES + several)


def weights_bytes(shape: ModelShape, served: ServedFormat) -> float:
    """Bytes of all weights: experts and the other layers as the format has them, tables and head at 16 bit at least."""
    count = count_parameters(shape)
    tables = count.embedding_total + count.lm_head
    body = count.total - tables - count.experts
    linear = served.weight_bytes
    return body * linear + count.experts * served.expert_bytes + tables * max(linear, 2.0)


def held_weights_bytes(shape: ModelShape, served: ServedFormat, tensor_parallel: Num, data_ranks: Num = 1.0) -> Num:
    """Bytes of weights on each device: routed experts once over all devices, everything else once a data rank."""
    if not np.any(np.asarray(data_ranks) > 1):
        return weights_bytes(shape, served) / tensor_parallel
    experts = count_parameters(shape).experts * served.expert_bytes
    return (weights_bytes(shape, served) - experts + experts / data_ranks) / tensor_parallel


ENGINE_WORKSPACE_BYTES = from_gib(2.2)  # activations of one read, captured graphs, runtime
