"""The MLP of one layer: dense, or tokens routed to experts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage.sizing.estimates import Num
from tonnage.sizing.operators import Operator, Pass, elementwise, gemm
from tonnage.workload.shapes import ModelShape


def mlp_operators(shape: ModelShape, span: Pass, *, ffn: float, experts: int, per_token: int) -> list[Operator]:
    """Two matrix products around an activation, or three where it is gated; per expert where tokens are routed."""
    if experts:
        return expert_operators(shape, span, ffn=ffn, experts=experts, per_token=per_token)
    hidden, element, tokens = shape.hidden, span.element_bytes, span.tokens
    inner = ffn / span.tensor_parallel
    ups = 2 if shape.gated_mlp else 1
    return [
        gemm("mlp up", span, rows=tokens, inner=hidden, columns=inner, count=ups),
        _activation(shape, span, element * tokens * inner),
        gemm("mlp down", span, rows=tokens, inner=inner, columns=hidden),
    ]


# Thirds of the passes over the output of the first product that a graph of primitives takes, forward and backward, its
# bias (2 and 1) among them. GELU by the error function (transformers and its copies in TensorFlow, `gelu`): two scales,
# error function, sum (2 each), product (3); its gradient: three products (9), two scales, square, sign, exponential,
# constant (2 each), a sum (3): 38. A rectifier (2, 3) with a dropout (10, 5) behind it (Transformer-XL,
# `positionwise_FF`): 23.
PRIMITIVE_GELU_PASSES, PRIMITIVE_RECTIFIER_PASSES = 38.0 / 3.0, 23.0 / 3.0


def _activation(shape: ModelShape, span: Pass, output_bytes: Num) -> Operator:
    """The activation between an MLP's products, whose output is that large."""
    gated = shape.gated_mlp
    passes = 6.0 if gated else 2.0
    if span.primitives and not gated:
        passes = PRIMITIVE_RECTIFIER_PASSES if shape.relative_projections else PRIMITIVE_GELU_PASSES
    return elementwise("mlp activation", moved_bytes=output_bytes * passes, kernels=2 if gated else 1)


def busy_experts(experts: int, per_token: int, tokens: Num) -> Num:
    """Experts that at least one of `tokens` goes to, expected, where routing is even: E·(1 - (1 - k/E)^tokens)."""
    return experts * (1.0 - (1.0 - per_token / experts) ** np.asarray(tokens, dtype=np.float64))


LEAST_GROUP_ROWS, MOST_GROUP_ROWS = 16.0, 128.0  # of one tile of a grouped product


def padded_rows(rows: Num) -> Num:
    """Rows that a grouped product multiplies for an expert with `rows` of them: whole tiles, the last half empty.

    Kernels choose a tile near the mean rows, from 16 to 128 (vLLM `fused_moe`, block size M).
    """
    return rows + np.clip(rows, LEAST_GROUP_ROWS, MOST_GROUP_ROWS) / 2.0


def busiest(mean: Num, ranks: Num, most: Num) -> Num:
    """What the busiest of `ranks` gets where each gets `mean` by chance, at most `most`.

    m + sqrt(2 ln n · m·(1 - 1/n)): the expected largest of n normal variables of the deviation that dealing by chance
    has (David and Nagaraja, «Order statistics», 2003, section 10.5). Leaves out that some experts are liked better,
    which engines even out by copies of them (DeepSeek-V3, arXiv:2412.19437, section 3.4).
    """
    count = np.asarray(ranks, dtype=np.float64)
    return np.minimum(mean + np.sqrt(2.0 * np.log(count) * mean * (1.0 - 1.0 / count)), np.maximum(most, mean))


def expert_operators(shape: ModelShape, span: Pass, *, ffn: float, experts: int, per_token: int) -> list[Operator]:
    """A routed MLP: router, tokens sorted to their experts and back, the products of those experts that have any.

    Grouped, as serving engines run it: all experts' rows go through one kernel per product (gate and up together), so
    weights of the busy ones are read once and tiles of all fill the device; tokens are read and written once on either
    side. Else each busy expert's product is a kernel of its own.

    Of a group of ranks, `expert_parallel` hold experts / expert_parallel each, whole; where that is fewer than all of
    them, the rest cut each expert. The operators are those of the rank that most tokens go to.
    """
    hidden, element, tokens = shape.hidden, span.element_bytes, span.routed_tokens
    dealt = span.expert_parallel
    inner = ffn * dealt / (span.tensor_parallel * span.data_ranks)
    busy = busiest(busy_experts(experts, per_token, tokens) / dealt, dealt, experts / dealt)
    routed = busiest(tokens * per_token / dealt, dealt, tokens * per_token)
    rows = routed / busy
    tokens = np.minimum(tokens, routed)
    ups = 2 if shape.gated_mlp else 1
    if span.grouped_experts:
        up = grouped(gemm("mlp up", span, rows=rows, inner=hidden, columns=inner * ups), busy)
        down = grouped(gemm("mlp down", span, rows=rows, inner=inner, columns=hidden), busy)
        sorted_bytes = 2 * element * (routed + tokens) * hidden
    else:
        up = gemm("mlp up", span, rows=rows, inner=hidden, columns=inner, count=busy * ups)
        down = gemm("mlp down", span, rows=rows, inner=inner, columns=hidden, count=busy)
        sorted_bytes = 4 * element * routed * hidden
    return [
        up,
        _activation(shape, span, element * routed * inner),
        down,
        gemm("router", span, rows=span.tokens, inner=hidden, columns=float(experts)),
        elementwise("dispatch", moved_bytes=sorted_bytes, kernels=6),
    ]


def grouped(product: Operator, groups: Num) -> Operator:
    """`groups` such products in one kernel, their rows padded to whole tiles."""
    padding = padded_rows(product.rows) / product.rows
    return replace(
        product,
        groups=groups,
        flop=product.flop * groups * padding,
        moved_bytes=product.moved_bytes * groups,
        weight_elements=product.weight_elements * groups,
    )
