"""Attention in one pass of inference: what it moves of keys, values and scores, and the kernels it is launched as."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.sizing.attention_operators import UNALIGNED_RATE
from tonnage.sizing.devices import GENERATIONS, Devices
from tonnage.sizing.engines import NO_LIMIT, Engine
from tonnage.sizing.estimates import Num
from tonnage.sizing.operators import ALIGNED_BYTES, Operator, Pass, elementwise
from tonnage.sizing.served_formats import ServedFormat
from tonnage.sizing.shifted_scores import shifted_operators, shifted_scores
from tonnage.workload.shapes import ModelShape

# Kernels of attention in a program as its authors wrote it (transformers), one by one.
ROTARY_KERNELS = 12.0
SCORE_KERNELS = 7.0
SCORE_PASSES = 8.0  # written, scaled, masked, through the softmax (read and written each), read
CACHE_KERNELS = 2.0
# Longest sequence of kernels that give a head one thread block, which holds a row of scores whole (64 to 512 tokens:
# NVIDIA/TensorRT@69b9d453, bertQKVToContextPlugin; facebookincubator/AITemplate, fmha_fprop_fp16_kernel.sm80.cu); what
# takes longer ones walks over the scores in tiles, in as many blocks as there are tiles of queries. BERT-base under
# AITemplate on an A100 says so: two sequences of 1,024 tokens take twice as long as one.
HEAD_A_BLOCK_TOKENS = 512.0
LAUNCHED_ELEMENT_BYTES = 4.0  # that kernels of a framework move an element of the cache at, if it is narrower
# Of the host's time for a module (its call, its checks, its views, then its kernel), what a further operation in the
# same function takes: no more than its dispatch. LLaMA-7B decodes in 1.75 times the time of MPT-7B, which has as many
# modules a layer and 27 kernels less (mosaicml/llm-foundry@8c8dd48f, batch 1: 26.8 and 15.4 ms a token), which
# alone would be 0.35; eager steps that we measured on an H100 and an H200, in no fit, are nearer to 0.6 (tried: 0.35,
# 0.6, 0.8).
CHAINED_SHARE = 0.6


def cache_traffic(shape: ModelShape, served: ServedFormat, engine: Engine) -> float:
    """What a decode step moves of keys and values, in readings of them at the width of the model's elements."""
    read = served.kv_bytes * served.cache_readings
    if engine.element_copies:
        read = max(read, LAUNCHED_ELEMENT_BYTES)
    moved = read * (1.0 + engine.element_copies) + served.kv_bytes * repeated_heads(shape, engine)
    return moved / served.element_bytes


def repeated_heads(shape: ModelShape, engine: Engine) -> float:
    """Times the cache is moved because shared keys and values are written out for each query head and read again.

    Programs as their authors wrote them do that (`repeat_kv` in transformers) where heads share keys.
    """
    shared = shape.heads / shape.kv_heads if shape.kv_heads else 1.0
    return 2.0 * shared if engine.spelt_out and shared > 1.0 else 0.0


def stores_scores(
    shape: ModelShape, served: ServedFormat, engine: Engine, query: Num, devices: Devices | None = None
) -> Num:
    """1 where attention scores pass through memory: no fused kernel, too long for it, fp32, or a bias per position.

    Kernels without a limit of length (FlashAttention, memory-efficient attention) take fp32 too. Those of TensorRT and
    FasterTransformer are made for Turing and newer (NVIDIA/TensorRT, plugin/bertQKVToContextPlugin: sm 72 to 90;
    NVIDIA/FasterTransformer, docs/bert_guide.md: fused attention from SM 75 on).
    """
    longest: Num = engine.fused_attention_tokens
    if 0.0 < engine.fused_attention_tokens < NO_LIMIT and devices is not None and devices.generation is not None:
        longest = np.where(devices.generation == GENERATIONS.index("Volta"), 0.0, longest)
    if shape.positions == "relative" or (served.element_bytes == 4.0 and engine.fused_attention_tokens < NO_LIMIT):
        return np.ones_like(np.asarray(query, dtype=np.float64))
    length = image_length(shape) if shape.architecture == "vision-transformer" else query
    return np.where(np.asarray(length) > longest, 1.0, 0.0)


def head_blocks(op: Operator, shape: ModelShape, span: Pass, engine: Engine) -> Num:
    """Thread blocks of a fused kernel that gives each head of each sequence one; 0 where it divides them."""
    if not engine.head_a_block:
        return 0.0
    blocks = np.asarray(span.batch) * (shape.heads / span.tensor_parallel)
    return np.where(np.asarray(op.query_length) > HEAD_A_BLOCK_TOKENS, 0.0, blocks)


def image_length(shape: ModelShape) -> float:
    """Patches and the class token."""
    return float((shape.image_side // shape.patch_side) ** 2 + 1)


def attention_operator(
    op: Operator, shape: ModelShape, span: Pass, kv: float, stored: Num, engine: Engine, padding: Num = 1.0
) -> Sequence[Operator]:
    """The attention operator at `kv` times the cache's 16-bit traffic in a decode step, and scores where stored.

    Scores are written by the first product, read and written by mask and softmax, read by the second: 6 transfers; a
    bias or a relative term per position adds a product and two transfers, shifted positions what `shifted_scores`
    lists. A program as written scales and masks them, takes the softmax, and copies queries, keys, values and the
    output into the order that its products want. Rows of scores of an odd number of patches do not start where tensor
    cores can read them (`UNALIGNED_RATE`); engines pad them, and texts are padded to lengths that they can read.
    `padding`: the length that sequences are padded to around attention over what is left of them elsewhere.
    """
    if op.kind != "attention":
        return (op,)
    relative = 1.0 if shape.positions == "relative" else 0.0
    cached = np.where(np.asarray(op.query_length) > 1, 1.0, kv)
    scores = (
        op.flop / (2.0 * (shape.head_dim + shape.value_width)) * np.where(stored > 0, 2.0 if shape.causal else 1.0, 1.0)
    )
    image = shape.architecture == "vision-transformer"
    masked = 0.0 if image else 1.0  # images are all of one length: their scores pass no mask
    passes = (SCORE_PASSES - 2.0 * (1.0 - masked) if engine.spelt_out else 6.0) + 4.0 * relative
    moved = np.asarray(stored) * scores * max(span.element_bytes, 2.0) * passes
    doubled = np.where(np.asarray(stored) > 0, 2.0 if shape.causal else 1.0, 1.0)
    flop = op.flop * np.where(np.asarray(op.query_length) > 1, doubled, 1.0) * (1.0 + relative)
    half = span.element_bytes == 2.0
    here = np.asarray(stored, dtype=np.float64)
    if image and half and engine.spelt_out and image_length(shape) * span.element_bytes % ALIGNED_BYTES:
        flop = flop * np.where(here > 0, 1.0 / UNALIGNED_RATE, 1.0)
    fused = replace(
        op,
        moved_bytes=op.moved_bytes * cached * np.where(here > 0, padding, 1.0),
        flop=np.where(here > 0, flop * np.square(padding), op.flop),
        kernels=op.kernels + here,
        blocks=np.where(here > 0, 0.0, head_blocks(op, shape, span, engine)),
    )
    if not np.any(here):
        return (fused,)
    if shape.shifted_positions:
        return (
            fused,
            *shifted_operators(
                shape, span, shifted_scores(engine.name), name=op.name + " scores", scores=scores,
                dispatch_share=CHAINED_SHARE if engine.spelt_out else 1.0,
            ),
        )  # fmt: skip
    return (
        fused,
        replace(
            elementwise(
                op.name + " scores",
                moved_bytes=moved,
                kernels=here * ((SCORE_KERNELS - 1.0 + masked if engine.spelt_out else 2.0) + 3.0 * relative),
                scores=True,
            ),
            dispatch_share=CHAINED_SHARE if engine.spelt_out else 1.0,
        ),
    )
