"""Memory of a served model per device, part by part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.engines import NO_LIMIT, Engine
from tonnage.sizing.estimates import Array, Num, column
from tonnage.sizing.served_formats import ServedFormat
from tonnage.units import from_gib
from tonnage.values import dataclass
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import ModelShape

KV_ELEMENT_BYTES = 2.0  # fp16 / bf16 cache whatever the weights
# cuBLAS's workspace as PyTorch sets it, which its allocator counts: 32 MiB on Hopper, 8 before (PyTorch, notes on CUDA
# semantics, «cuBLAS workspaces»). Engines with libraries of their own take more.
CUBLAS_WORKSPACE_BYTES = 32.0 * 2**20
OF_PYTORCH = ("eager", "captured", "traced", "inductor")
ACTIVATION_ELEMENT_BYTES = 2.0  # at least: between 8-bit products activations are 16 bit


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMemory:
    """Bytes per device of one replica, one row per candidate. `kv_bytes_per_token` is per device."""

    weights_bytes: Array
    activations_bytes: Array
    workspace_bytes: Array  # of libraries, inside the framework's allocator
    context_bytes: Array
    kv_bytes_per_token: Array

    @property
    def fixed_bytes(self) -> Array:
        """What a replica needs before its first request."""
        return self.allocated_bytes + self.context_bytes

    @property
    def allocated_bytes(self) -> Array:
        """What the framework's allocator counts of it."""
        return self.weights_bytes + self.activations_bytes + self.workspace_bytes

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


def activation_bytes(
    shape: ModelShape, served: ServedFormat, engine: Engine | None, *, batch: Num, tokens: Num, tensor_parallel: Num
) -> Num:
    """Activations at the widest instant of a pass over `batch` sequences of `tokens`, bytes per device.

    Nothing is kept for backward. An attention holds queries, keys, values and its output, and scores where the engine
    writes them (before and after their softmax); an MLP the outputs of its first products and what the activation
    makes of them; the layer's input and the residual are beside them, and a normalised copy in a layer that
    normalises first. `engine` None: scores stay on the chip.
    """
    if shape.architecture == "convolution":
        element = max(served.element_bytes, ACTIVATION_ELEMENT_BYTES)
        return (
            batch * tokens * max(conv.out_channels * conv.output_side**2 for conv in shape.convolutions) * 4 * element
        )
    scores: Num = 0.0
    if engine is not None:
        written = np.asarray(tokens) > engine.fused_attention_tokens
        scores = np.where(written, 2.0 * batch * shape.heads * np.square(tokens), 0.0)
    return _widest_bytes(shape, served, batch * tokens, scores, tensor_parallel)


def attending(engine: Engine, fused: bool | None) -> Engine:
    """`engine` with attention in one kernel, or with scores in memory; None: as its class has it."""
    return engine if fused is None else replace(engine, fused_attention_tokens=NO_LIMIT if fused else 0.0)


def attends_today(engine: Engine, shape: ModelShape) -> bool | None:
    """Whether PyTorch runs a model's attention as one kernel, where nothing else is stated: transformers takes
    `scaled_dot_product_attention` by default (its documentation, «Attention interface») in the families whose code has
    it; scores of the others, and of shapes of no known family, are in memory. None: as the engine's class does."""
    return shape.fused_attention if engine.name in OF_PYTORCH else None


def cublas_alone(engine: Engine | None, shape: ModelShape) -> bool:
    """Whether a pass keeps cuBLAS's workspace alone, of the size that PyTorch sets: transformers under PyTorch, as
    measured on encoders. Convolutions take workspaces of cuDNN, and other engines have libraries of their own."""
    return engine is not None and engine.name in OF_PYTORCH and shape.architecture != "convolution"


def token_bytes(shape: ModelShape, served: ServedFormat, tensor_parallel: Num = 1.0) -> Num:
    """`activation_bytes` of one token of a transformer whose scores stay on the chip."""
    return _widest_bytes(shape, served, 1.0, 0.0, tensor_parallel)


def _widest_bytes(shape: ModelShape, served: ServedFormat, tokens: Num, scores: Num, tensor_parallel: Num) -> Num:
    beside = shape.hidden * (2.0 if shape.architecture == "encoder" else 3.0)
    attention = 2.0 * (shape.heads + shape.kv_heads) * shape.head_dim
    experts = max(shape.experts_per_token, 1)
    mlp = (3.0 if shape.gated_mlp else 2.0) * shape.ffn * experts
    routed = shape.hidden * experts if shape.experts_per_token else 0.0  # what each expert gives back
    widest = np.maximum(tokens * attention + scores, tokens * mlp) / tensor_parallel
    return (tokens * (beside + routed) + widest) * max(served.element_bytes, ACTIVATION_ELEMENT_BYTES)


def estimate_serving_memory(
    shape: ModelShape,
    *,
    served: ServedFormat,
    tensor_parallel: Array,
    batch: Num,
    tokens: Num,
    engine: Engine | None = None,
    assumed: Assumptions | None = None,
) -> ServingMemory:
    """Memory of one replica: weights, the activations of one pass over `batch` sequences of `tokens`, runtime; bytes
    per device. int4 keeps embeddings and head at 16 bit."""
    assumed = assumed or Assumptions()
    rows, t = len(tensor_parallel), tensor_parallel
    several = np.where(t > 1, assumed.collective_buffers_gib, 0.0)
    activations = activation_bytes(shape, served, engine, batch=batch, tokens=tokens, tensor_parallel=t)
    alone = cublas_alone(engine, shape)
    workspace = CUBLAS_WORKSPACE_BYTES if alone else from_gib(assumed.library_workspace_gib)
    return ServingMemory(
        weights_bytes=column(weights_bytes(shape, served) / t, rows),
        activations_bytes=column(activations, rows),
        workspace_bytes=column(workspace, rows),
        context_bytes=column(from_gib(1.0) * (assumed.runtime_context_gib + several), rows),
        kv_bytes_per_token=column(kv_bytes_per_token(shape, t), rows),
    )


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
