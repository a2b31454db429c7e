"""Shape -> operators: what one forward pass does (FLOP) and moves (bytes). `kept_activations` has what it keeps.

A column in (micro-batch, tensor parallel degree...) gives columns out. FLOP counts a multiply-add as two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from tonnage.sizing.estimates import Num
from tonnage.workload.shapes import ModelShape

Kind = Literal["gemm", "attention", "elementwise", "convolution"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One kind of work in a forward pass, done `count` times.

    `flop` and `moved_bytes` are for one time. `rows` x `columns` is the output of a matrix product (what tiles cover);
    `weight_elements` are read once per time. `kernels` counts the launches of one time in an unfused framework.
    """

    name: str
    kind: Kind
    count: Num = 1.0
    flop: Num = 0.0
    moved_bytes: Num = 0.0
    rows: Num = 1.0
    columns: Num = 1.0
    weight_elements: Num = 0.0
    kernels: Num = 1.0
    groups: Num = 1.0  # matrix products one kernel does side by side, each of rows x columns (experts)
    query_length: Num = 1.0
    peak_share: Num = 1.0  # of the peak rate: work that stays at 16 bit beside 8-bit matrix products
    strided_elements: Num = 0.0  # of those moved, the ones that kernels take one by one, out of order
    scores: bool = False  # keeps the score matrix; selective recomputation does it again


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one forward pass covers: `batch` sequences of `query` new tokens looking at `keys` tokens.

    `element_bytes` / `residual_bytes` as in `precision.TrainingNumbers`; `weight_bytes` per weight as read by kernels.
    """

    batch: Num
    query: Num
    keys: Num
    element_bytes: float = 2.0
    residual_bytes: float = 2.0
    weight_bytes: float = 2.0
    expert_weight_bytes: float = 0.0  # of routed experts; 0: as the rest
    tensor_parallel: Num = 1.0
    attention: str = "sdpa"
    training: bool = True
    cached_keys: Num = 0.0  # of `keys`, tokens of an earlier segment whose keys and values are made anew
    sequence_parallel: bool = True  # tensor-parallel ranks share norms, dropout and residual adds
    transposed: bool = False  # 16-bit convolutions of a program that keeps channels first
    half_rate: float = 1.0  # rate of 16-bit work as a share of the peak (0.5 where the peak is the 8-bit one)
    grouped_experts: bool = False  # one kernel multiplies the rows of all experts (serving engines), or one each

    @property
    def tokens(self) -> Num:
        return self.batch * self.query


def gemm(name: str, span: Pass, *, rows: Num, inner: Num, columns: Num, count: Num = 1.0) -> Operator:
    """rows x inner times inner x columns: 2·m·k·n FLOP; input, weights and output each move once."""
    element, weight = span.element_bytes, span.weight_bytes
    return Operator(
        name=name,
        kind="gemm",
        count=count,
        flop=2.0 * rows * inner * columns,
        moved_bytes=element * (rows * inner + rows * columns) + weight * inner * columns,
        rows=rows,
        columns=columns,
        weight_elements=inner * columns,
    )


def elementwise(
    name: str,
    *,
    moved_bytes: Num,
    kernels: Num = 1.0,
    count: Num = 1.0,
    scores: bool = False,
    strided_elements: Num = 0.0,
) -> Operator:
    """Work bound by memory: norms, activations, residual adds, dropout, look-ups."""
    return Operator(
        name=name,
        kind="elementwise",
        count=count,
        moved_bytes=moved_bytes,
        kernels=kernels,
        scores=scores,
        strided_elements=strided_elements,
    )


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
    operators = [
        Operator(
            name=prefix + "attention",
            kind="attention",
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
        operators.append(
            elementwise(
                prefix + "softmax",
                moved_bytes=scores * (4 * element + 2 * softmax_bytes),
                kernels=4,
                scores=True,
            )
        )
    return operators


def projection_operators(shape: ModelShape, span: Pass) -> list[Operator]:
    """From the layer's input to queries, keys and values."""
    hidden, tokens = shape.hidden, span.tokens
    if shape.kv_latent:
        return latent_projections(shape, span)
    width = shape.heads * shape.head_dim / span.tensor_parallel
    kv_width = shape.kv_heads * shape.head_dim / np.minimum(span.tensor_parallel, shape.kv_heads)
    operators = [gemm("qkv", span, rows=tokens, inner=hidden, columns=width + 2 * kv_width)]
    if np.any(np.asarray(span.cached_keys) > 0):
        rows = span.batch * span.cached_keys
        operators.append(gemm("cached key value", span, rows=rows, inner=hidden, columns=2 * kv_width))
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
    return not span.training or shape.head_dim * span.element_bytes % 16 == 0


# Passes over a score matrix that line it up with the keys: the second product's write, pad (read, write), the shift's
# copy (read, write), the sum (two reads, a write), scale and mask in place (read and write each).
SHIFT_PASSES = 12


def relative_operators(shape: ModelShape, span: Pass, *, scores: Num, keys: Num, prefix: str) -> list[Operator]:
    """Learned projections of relative positions: one more score product with them (two in encoders: content to
    position and back), and what lines it up with the keys (Dai et al. 2019, arXiv:1901.02860; He et al. 2020,
    arXiv:2006.03654)."""
    width = shape.heads * shape.head_dim / span.tensor_parallel
    ways = 1.0 if shape.causal else 2.0
    wide = 4.0 if span.residual_bytes > span.element_bytes else span.element_bytes
    return [
        gemm(prefix + "position projection", span, rows=keys, inner=shape.hidden, columns=width * ways),
        Operator(
            name=prefix + "position scores",
            kind="attention",
            count=ways,
            flop=2.0 * span.tokens * keys * width,
            moved_bytes=span.element_bytes * (span.tokens + keys) * width,
            query_length=span.query,
            peak_share=span.half_rate,
            scores=True,
        ),
        elementwise(
            prefix + "position shift",
            moved_bytes=SHIFT_PASSES * wide * ways * scores,
            kernels=8 * ways,
            scores=True,
            strided_elements=SHIFT_PASSES * ways * scores,
        ),
    ]


def mlp_operators(shape: ModelShape, span: Pass, *, ffn: float, experts: int, per_token: int) -> list[Operator]:
    """Two matrix products around an activation, or three where it is gated; per expert where tokens are routed."""
    if experts:
        return expert_operators(shape, span, ffn=ffn, experts=experts, per_token=per_token)
    hidden, element, tokens = shape.hidden, span.element_bytes, span.tokens
    inner = ffn / span.tensor_parallel
    ups = 2 if shape.gated_mlp else 1
    return [
        gemm("mlp up", span, rows=tokens, inner=hidden, columns=inner, count=ups),
        _activation(shape, element * tokens * inner),
        gemm("mlp down", span, rows=tokens, inner=inner, columns=hidden),
    ]


def _activation(shape: ModelShape, output_bytes: Num) -> Operator:
    """The activation between an MLP's products, whose output is that large."""
    gated = shape.gated_mlp
    return elementwise(
        "mlp activation",
        moved_bytes=output_bytes * (6 if gated else 2),
        kernels=2 if gated else 1,
    )


def busy_experts(experts: int, per_token: int, tokens: Num) -> Num:
    """Experts that at least one of `tokens` goes to, expected, where routing is even: E·(1 - (1 - k/E)^tokens)."""
    return experts * (1.0 - (1.0 - per_token / experts) ** np.asarray(tokens, dtype=np.float64))


LEAST_GROUP_ROWS, MOST_GROUP_ROWS = 16.0, 128.0  # of one tile of a grouped product


def padded_rows(rows: Num) -> Num:
    """Rows that a grouped product multiplies for an expert with `rows` of them: whole tiles, the last half empty.

    Kernels choose a tile near the mean rows, from 16 to 128 (vLLM `fused_moe`, block size M).
    """
    return rows + np.clip(rows, LEAST_GROUP_ROWS, MOST_GROUP_ROWS) / 2.0


def expert_operators(shape: ModelShape, span: Pass, *, ffn: float, experts: int, per_token: int) -> list[Operator]:
    """A routed MLP: router, tokens sorted to their experts and back, the products of those experts that have any.

    Grouped, as serving engines run it: all experts' rows go through one kernel per product (gate and up together), so
    weights of the busy ones are read once and tiles of all fill the device; tokens are read and written once on either
    side. Else each busy expert's product is a kernel of its own.
    """
    hidden, element, tokens = shape.hidden, span.element_bytes, span.tokens
    inner = ffn / span.tensor_parallel
    busy = busy_experts(experts, per_token, tokens)
    rows, routed = tokens * per_token / busy, tokens * per_token
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
        _activation(shape, element * routed * inner),
        down,
        gemm("router", span, rows=tokens, inner=hidden, columns=float(experts)),
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
    operators.append(
        elementwise(
            "norms and residuals",
            moved_bytes=norms * tokens * hidden * (4 * residual + 2 * element + dropped) / shared,
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
        product = gemm("vocabulary", span, rows=logit_tokens, inner=shape.embedding_width, columns=shape.vocab / t)
        operators.append(replace(product, peak_share=span.half_rate))
        if span.training:
            operators.append(elementwise("loss", moved_bytes=16.0 * logit_tokens * shape.vocab / t, kernels=5))
    return operators


# Passes over a convolution's output: norm (two reads, a write) and rectifier (a read, a write); with gated activations
# (sigmoid times input, squeeze-and-excitation: pool, scale) and drop-connect seven more. The 1 x 1 convolution that
# ends a bottleneck block is added to the block's input: three more.
PLAIN_PASSES, GATED_PASSES, ADDED_PASSES = 5, 12, 3


def convolution_operators(shape: ModelShape, span: Pass) -> list[Operator]:
    """Convolutions as implicit matrix products (rows: batch x output pixels), each with a norm and an activation."""
    operators: list[Operator] = []
    for conv in shape.convolutions:
        passes = GATED_PASSES if shape.gated_mlp else PLAIN_PASSES
        if span.training and not shape.gated_mlp and conv.kernel == 1 and conv.out_channels > conv.in_channels:
            passes += ADDED_PASSES
        rows = span.batch * float(conv.output_side**2)
        inner = conv.in_channels / conv.groups * conv.kernel**2
        outputs = rows * conv.out_channels
        inputs = rows * conv.in_channels
        operators.append(
            Operator(
                name=f"convolution {conv.kernel}x{conv.kernel}",
                kind="convolution",
                count=float(conv.count),
                flop=2.0 * rows * inner * conv.out_channels,
                moved_bytes=span.element_bytes * (inputs + outputs),
                rows=rows,
                columns=float(conv.out_channels),
                weight_elements=inner * conv.out_channels,
            )
        )
        operators.append(
            elementwise(
                "norm and activation",
                count=float(conv.count),
                moved_bytes=span.element_bytes * outputs * passes,
                kernels=8 if shape.gated_mlp else 3,
            )
        )
        if span.transposed:  # tensor cores want channels last: input and output are turned round and back
            moved = 2.0 * span.element_bytes * (inputs + outputs)
            operators.append(elementwise("layout", count=float(conv.count), moved_bytes=moved, kernels=2))
    return operators
