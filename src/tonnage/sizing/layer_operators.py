"""Shape -> operators: a transformer layer, and what is before and after the layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage.sizing.attention_operators import (
    PRIMITIVE_DROPOUT_PASSES,
    attention_operators,
    latent_attention,
    projection_operators,
)
from tonnage.sizing.estimates import Num
from tonnage.sizing.mlp_operators import mlp_operators
from tonnage.sizing.operators import ALIGNED_BYTES, Operator, Pass, elementwise, gemm
from tonnage.workload.shapes import ModelShape

# Thirds of the passes that a graph of primitives takes, forward and backward, for a residual sum (3, and 3 to add up
# its gradients) and a norm of moments. TensorFlow, nn_impl.py `moments`, `batch_normalization`: mean 1, squared
# difference 2, its mean 1, scale 2, shift 2; their gradients: two products 6, one summed 1, two means spread out 4,
# difference and product 5, a sum of three 4.
PRIMITIVE_NORM_PASSES = 34.0 / 3.0


def layer_operators(
    shape: ModelShape, span: Pass, *, causal: bool, cross_keys: Num | None = None, dense: bool = False
) -> list[Operator]:
    """One transformer layer, forward. `cross_keys`: length of the encoder output a decoder layer also attends to.

    The residual stream and the inputs of norms are at `residual_bytes`; tensor parallelism is assumed with sequence
    parallelism where `span` says so: then everything divides by its degree.
    """
    hidden, element, residual = shape.hidden, span.element_bytes, span.residual_bytes
    tokens, t = span.tokens, span.tensor_parallel
    width = shape.heads * shape.value_width / t
    kv_width = shape.kv_heads * shape.head_dim / np.minimum(t, shape.kv_heads)
    attention = (
        latent_attention(shape, span, keys=span.keys)
        if shape.kv_latent
        else attention_operators(shape, span, causal=causal, keys=span.keys)
    )
    operators = [
        *projection_operators(shape, span),
        *attention,
        gemm("attention output", span, rows=tokens, inner=width, columns=hidden),
    ]
    if cross_keys is not None:
        operators += [
            gemm("cross query", span, rows=tokens, inner=hidden, columns=width),
            *attention_operators(shape, span, causal=False, keys=cross_keys, prefix="cross "),
            gemm("cross output", span, rows=tokens, inner=width, columns=hidden),
        ]
        if span.training:  # at inference the encoder's keys and values are computed once, in prefill
            rows = span.batch * cross_keys
            operators.append(gemm("cross key value", span, rows=rows, inner=hidden, columns=2 * kv_width))
    if shape.experts and not dense:
        expert_span = replace(span, weight_bytes=span.expert_weight_bytes or span.weight_bytes)
        routed = (shape.experts, shape.experts_per_token)
        operators += mlp_operators(shape, expert_span, ffn=shape.ffn, experts=routed[0], per_token=routed[1])
        if shape.shared_expert_ffn:
            operators += mlp_operators(shape, span, ffn=shape.shared_expert_ffn, experts=0, per_token=0)
    else:
        ffn = shape.dense_ffn if dense and shape.dense_ffn else shape.ffn
        operators += mlp_operators(shape, span, ffn=ffn, experts=0, per_token=0)
    shared = t if span.sequence_parallel else 1.0
    norms = shape.norms_per_layer + (1 if cross_keys is not None else 0)
    dropped = 1.0 if span.training and not shape.gated_mlp else 0.0  # today's gated decoders train without dropout
    moved = 4 * residual + 2 * element + dropped
    if span.primitives:
        moved = PRIMITIVE_NORM_PASSES * residual + PRIMITIVE_DROPOUT_PASSES * element
    operators.append(
        elementwise(
            "norms and residuals",
            moved_bytes=norms * tokens * hidden * moved / shared,
            kernels=norms * (3 + 2 * dropped),
        )
    )
    if shape.positions == "rotary":
        turned = shape.rotary_dim * (shape.heads / t + 1) if shape.kv_latent else width + kv_width
        operators.append(elementwise("rotary", moved_bytes=4 * element * tokens * turned, kernels=4))
    return operators


def head_operators(shape: ModelShape, span: Pass, *, logit_tokens: Num) -> list[Operator]:
    """Embedding look-up and vocabulary projection over `logit_tokens` positions (0: the job has no vocabulary loss)."""
    t, tokens = span.tensor_parallel, span.tokens
    operators = [
        elementwise("embedding", moved_bytes=2 * span.residual_bytes * tokens * shape.hidden, kernels=3),
    ]
    if shape.vocab and np.any(np.asarray(logit_tokens) > 0):
        operators += _logits(shape, span, "vocabulary", tokens=logit_tokens, words=shape.vocab / t)
        if span.training:
            for share, words in span.rare_words:
                operators += _logits(shape, span, "rare words", tokens=logit_tokens * share, words=words / t)
    return operators


def _logits(shape: ModelShape, span: Pass, name: str, *, tokens: Num, words: Num) -> list[Operator]:
    """Logits of some tokens over some words, and in training their loss."""
    product = gemm(name, span, rows=tokens, inner=shape.embedding_width, columns=words)
    product = replace(product, peak_share=span.half_rate)
    if not span.training:
        return [product]
    if span.odd_rows and not span.winograd:  # 32-bit arithmetic without tensor cores asks for no alignment
        bits = np.gcd(np.rint(np.asarray(words) * span.element_bytes).astype(np.int64), ALIGNED_BYTES)
        product = replace(product, row_alignment=bits.astype(np.float64))
    loss = "loss" if name == "vocabulary" else f"{name} loss"
    return [product, elementwise(loss, moved_bytes=span.loss_bytes * tokens * words, kernels=5)]
