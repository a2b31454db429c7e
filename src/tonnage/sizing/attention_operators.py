"""Attention of one layer: projections, scores and values; latent (MLA) and relative positions among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage.sizing.estimates import Num
from tonnage.sizing.operators import ALIGNED_BYTES, TILE, Kind, Operator, Pass, elementwise, gemm
from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape


def attention_operators(shape: ModelShape, span: Pass, *, causal: bool, keys: Num, prefix: str = "") -> list[Operator]:
    """Attention of one layer; the mean layer where some look at all tokens and the others through a window."""
    if not shape.sliding_window:
        return _attention_over(shape, span, causal=causal, keys=keys, prefix=prefix)
    windowed = _attention_over(shape, span, causal=causal, keys=keys, window=shape.sliding_window, prefix=prefix)
    if not shape.full_layers:
        return windowed
    whole = _attention_over(shape, span, causal=causal, keys=keys, prefix=prefix)
    share = shape.full_layers / shape.layers
    return [*(_part(op, share) for op in whole), *(_part(op, 1.0 - share) for op in windowed)]


def _part(op: Operator, share: float) -> Operator:
    """The operator in that share of the layers."""
    return replace(op, count=op.count * share)


def _attention_over(
    shape: ModelShape, span: Pass, *, causal: bool, keys: Num, window: int = 0, prefix: str = ""
) -> list[Operator]:
    """Scores and their product with the values: 4·b·q·k·a·d FLOP, half of it where attention is causal and flash.

    Behind a window of w the mean causal query sees w - w²/2k of k keys.
    Eager attention writes the score matrix (s x s per head) several times; fused kernels do not.
    """
    width = shape.heads * shape.head_dim / span.tensor_parallel
    kv_width = shape.kv_heads * shape.head_dim / np.minimum(span.tensor_parallel, shape.kv_heads)
    seen = np.minimum(keys, window) if window else keys
    tokens, element = span.tokens, span.element_bytes
    scores = span.batch * (shape.heads / span.tensor_parallel) * span.query * seen
    fused = span.attention != "eager"
    reads = element * (2 * tokens * width + 2 * span.batch * seen * kv_width)
    halved = 1.0 - 0.5 * seen / keys if causal and fused else 1.0
    product = _product(shape, span, keys=seen)
    operators = [
        Operator(
            name=prefix + "attention",
            kind=product.kind,
            rows=product.rows,
            columns=product.columns,
            flop=4.0 * tokens * seen * width * np.where(np.asarray(span.query) > 1, halved, 1.0),
            moved_bytes=reads if fused else reads + 2 * element * scores,
            query_length=span.query,
            kernels=1.0 if fused else 2.0,
            peak_share=span.half_rate * (1.0 if fused or aligned(shape, span) else UNALIGNED_RATE),
            scores=True,
        )
    ]
    if shape.relative_projections:
        operators += relative_operators(shape, span, scores=scores, keys=seen, prefix=prefix)
    if not fused:
        softmax_bytes = 4.0 if span.residual_bytes > span.element_bytes else element
        moved = 4 * element + 2 * softmax_bytes
        if span.primitives:
            beside = 0.0 if shape.relative_projections else PRIMITIVE_SCALE_PASSES  # counted where positions are
            moved = PRIMITIVE_SOFTMAX_PASSES * softmax_bytes + (PRIMITIVE_DROPOUT_PASSES + beside) * element
        operators.append(
            elementwise(
                prefix + "softmax",
                moved_bytes=scores * moved,
                kernels=4,
                scores=True,
            )
        )
    return operators


# Thirds of the passes over scores that a graph of primitives takes, forward and backward (TensorFlow, softmax_op.h,
# nn_grad.py, nn_ops.py `dropout`). Softmax: three reads, a write; product of gradient and result (3), its sum (1),
# difference (2), product (3): 13. Dropout: numbers drawn (1), compared (2), cast (2), scale (2), product (3); product
# (3), scale (2): 15. Scale and mask before them: 2 each and the scale's gradient 2.
PRIMITIVE_SOFTMAX_PASSES, PRIMITIVE_DROPOUT_PASSES, PRIMITIVE_SCALE_PASSES = 13.0 / 3.0, 5.0, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """What runs the products over heads, and the outputs that its tiles cover."""

    kind: Kind
    rows: Num = 1.0
    columns: Num = 1.0


def _product(shape: ModelShape, span: Pass, *, keys: Num) -> _Product:
    """Eager products over heads in plain 32-bit arithmetic are batched matrix products: what a fused kernel reaches of
    tensor cores says nothing of them. Each head's outputs are tiles of their own (cuBLAS,
    `cublasSgemmStridedBatched`)."""
    if not (span.training and not span.tensor_cores and span.attention == "eager"):
        return _Product(kind="attention")
    groups = span.batch * (shape.heads / span.tensor_parallel)
    tall = np.ceil(np.asarray(span.query) / TILE) * TILE
    return _Product(kind="gemm", rows=groups * tall, columns=keys)


def projection_operators(shape: ModelShape, span: Pass) -> list[Operator]:
    """From the layer's input to queries, keys and values. Tokens of an earlier segment are joined to it before, so that
    queries are made of them too and dropped (NVIDIA's and the authors' Transformer-XL, `qkv_net(cat)`)."""
    hidden, tokens = shape.hidden, span.tokens
    if shape.kv_latent:
        return latent_projections(shape, span)
    width = shape.heads * shape.head_dim / span.tensor_parallel
    kv_width = shape.kv_heads * shape.head_dim / np.minimum(span.tensor_parallel, shape.kv_heads)
    operators = [gemm("qkv", span, rows=tokens, inner=hidden, columns=width + 2 * kv_width)]
    if np.any(np.asarray(span.cached_keys) > 0):
        rows = span.batch * span.cached_keys
        operators.append(gemm("cached qkv", span, rows=rows, inner=hidden, columns=width + 2 * kv_width))
    return operators


def latent_projections(shape: ModelShape, span: Pass) -> list[Operator]:
    """Multi-head latent attention: down to the compressed widths (on every rank), up to the heads of this rank.

    In decoding the upward matrix of the keys is applied to the queries and that of the values to the output instead:
    the same weights and the same products a new token. Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.3.
    """
    tokens, hidden = span.tokens, shape.hidden
    heads = shape.heads / span.tensor_parallel
    lifted = heads * (shape.head_dim - shape.rotary_dim + shape.value_width)
    down = shape.kv_latent + shape.rotary_dim + (shape.query_latent or heads * shape.head_dim)
    operators = [
        gemm("attention down", span, rows=tokens, inner=hidden, columns=down),
        gemm("key value up", span, rows=tokens, inner=shape.kv_latent, columns=lifted),
    ]
    if shape.query_latent:
        columns = heads * shape.head_dim
        operators.append(gemm("query up", span, rows=tokens, inner=shape.query_latent, columns=columns))
    return operators


def latent_attention(shape: ModelShape, span: Pass, *, keys: Num) -> list[Operator]:
    """Scores and values of multi-head latent attention, fused and causal.

    A prompt is read with keys and values lifted to all heads, 2·b·q·k·a·(d + v) FLOP, half of it causal. A decode step
    stays with the compressed ones: each head's query meets the c + r elements a token has in the cache and sums c of
    them, 2·b·k·a·(2c + r) FLOP over b·k·(c + r) elements read once. Source: DeepSeek-V2, arXiv:2405.04434, 2.1.3.
    """
    heads, tokens = shape.heads / span.tensor_parallel, span.tokens
    lifted, latent = shape.head_dim + shape.value_width, 2 * shape.kv_latent + shape.rotary_dim
    reads_prompt = np.asarray(span.query) > 1
    whole = heads * lifted * (tokens + span.batch * keys)
    cached = heads * latent * tokens + (shape.kv_latent + shape.rotary_dim) * span.batch * keys
    return [
        Operator(
            name="attention",
            kind="attention",
            flop=2.0 * tokens * keys * heads * np.where(reads_prompt, 0.5 * lifted, latent),
            moved_bytes=span.element_bytes * np.where(reads_prompt, whole, cached),
            query_length=span.query,
            peak_share=span.half_rate,
            scores=True,
        )
    ]


UNALIGNED_RATE = 1 / 8  # of the tensor cores' rate: what the plain 16-bit and 32-bit units give on V100 to H100


def aligned(shape: ModelShape, span: Pass) -> bool:
    """Whether the rows of an eager product over heads start at 16 bytes, as tensor cores want them (NVIDIA, «Matrix
    multiplication background», requirements to use tensor cores). Other widths of head run without."""
    return not span.training or shape.head_dim * span.element_bytes % ALIGNED_BYTES == 0


# A third of the passes over a score matrix, forward and backward, that line it up with the keys. NVIDIA's PyTorch
# (DeepLearningExamples, Transformer-XL/pytorch/mem_transformer.py): the second product's write, pad (read, write), sum
# and scale in one kernel (two reads, a write); backward the scale (read, write), the shift (zeros, read, write), a copy
# in the order of the product (read, write) and its two reads: 15. Pad, shift and copy go element by element.
SHIFT_PASSES, SHIFT_STRIDED = 5.0, 2.0
# TensorFlow's (Transformer-XL/tf/model.py): every primitive reads and writes (transpose behind the product, pad, slice,
# sum, scale, mask as two products and a difference, casts around the softmax), and so does its gradient: 36.
PRIMITIVE_SHIFT_PASSES, PRIMITIVE_SHIFT_STRIDED = 12.0, 4.0


def relative_operators(shape: ModelShape, span: Pass, *, scores: Num, keys: Num, prefix: str) -> list[Operator]:
    """Learned projections of relative positions: one more score product with them (two in encoders: content to
    position and back), and what lines it up with the keys (Dai et al. 2019, arXiv:1901.02860; He et al. 2020,
    arXiv:2006.03654)."""
    width = shape.heads * shape.head_dim / span.tensor_parallel
    ways = 1.0 if shape.causal else 2.0
    product = _product(shape, span, keys=keys)
    wide = 4.0 if span.residual_bytes > span.element_bytes else span.element_bytes
    passes, strided = SHIFT_PASSES, SHIFT_STRIDED
    if span.primitives:
        passes, strided = PRIMITIVE_SHIFT_PASSES, PRIMITIVE_SHIFT_STRIDED
    return [
        gemm(prefix + "position projection", span, rows=keys, inner=shape.hidden, columns=width * ways),
        Operator(
            name=prefix + "position scores",
            kind=product.kind,
            rows=product.rows,
            columns=product.columns,
            count=ways,
            flop=2.0 * span.tokens * keys * width,
            moved_bytes=span.element_bytes * (span.tokens + keys) * width,
            query_length=span.query,
            peak_share=span.half_rate,
            scores=True,
        ),
        elementwise(
            prefix + "position shift",
            moved_bytes=passes * wide * ways * scores,
            kernels=8 * ways,
            scores=True,
            strided_elements=strided * ways * scores,
        ),
    ]
