"""What one transformer layer keeps for backward, tensor by tensor, as PyTorch programs keep it.

The terms are those of Korthikanti et al. 2022 (arXiv:2205.05198, section 4) for hand-fused kernels, and, for eager
programs, the tensors that autograd saves in the layers of transformers 5 and peft 0.21, counted with
`torch.autograd.graph.saved_tensors_hooks` (tests/sizing/test_kept_activations.py counts them again).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from tonnage.sizing.estimates import Num
from tonnage.sizing.operators import Pass
from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape

FP32, MASK = 4.0, 1.0
Kernels = Literal["eager", "compiled", "fused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStoring:
    """What adapters keep: `copy_bytes` an element of their input (the width they compute in); `every`: all linear
    layers have one, else query and value; `dropout`: on their input; `outputs`: they rescale what the frozen layer
    puts out (DoRA), so that is kept; `copied`: each has a copy of its input to itself; `low_rank`: false for kinds that
    put nothing beside a linear layer (prefix, prompt, LLaMA-Adapter); `prompted`: a second attention, to learnt tokens,
    whose output is gated (LLaMA-Adapter); `scaled`: every linear layer's output is shifted and scaled, and norms are
    trained (its second version)."""

    copy_bytes: float
    every: bool
    copied: bool
    dropout: bool = False
    outputs: bool = False
    low_rank: bool = True
    prompted: bool = False
    scaled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Storing:
    """How a program stores what backward needs.

    `output_bytes`: an element that a matrix product puts out, where that is not the element it computes in (4-bit
    layers give back what they took). `casts`: autocast, where every product casts a 32-bit input for itself.
    `norm_copies`: RMS norms in primitives, which keep a 32-bit input and the normalised values; a fused norm keeps its
    input. `repeats_kv`: keys and values are repeated for grouped queries before attention.
    """

    kernels: Kernels = "eager"
    casts: bool = False
    norm_copies: bool = True
    repeats_kv: bool = False
    output_bytes: float = 0.0
    adapters: AdapterStoring | None = None  # None: every weight is trained
    input_copies: bool = False  # products on a quantised base keep their inputs although nothing needs them


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKept:
    """Bytes one layer keeps for a micro-batch, by what keeps them; and what recomputation keeps instead."""

    norms: Num
    inputs: Num  # of matrix products, where their weights (or adapters) are trained
    attention: Num
    scores: Num
    mlp: Num
    boundary: Num  # the layer's input, all that full recomputation keeps
    per_op: Num  # kept where attention and every second matrix product are
    working: Num  # gradients of one layer that are kept while its backward runs
    quantised_inputs: Num = 0.0  # of `total`, inputs of products on a quantised base

    @property
    def total(self) -> Num:
        return self.norms + self.inputs + self.attention + self.scores + self.mlp


@dataclass(frozen=True, slots=True, kw_only=True)
class _Widths:
    """Elements a token has in each kind of tensor, on one device."""

    hidden: Num
    query: Num
    key: Num  # lifted to all heads where keys and values are compressed (MLA)
    output: Num  # of attention
    value: Num
    latent: float  # of what MLA compresses queries, keys and values to
    ffn: Num  # of all experts a token visits
    routed: float  # copies of a token that experts take


def layer_kept(
    shape: ModelShape, span: Pass, how: Storing, *, cross_keys: Num | None = None, dense: bool = False
) -> LayerKept:
    """Kept bytes of one layer over `span`. `cross_keys`: tokens of an encoder that the layer also attends to."""
    width = _widths(shape, span, dense=dense)
    tokens = np.asarray(span.tokens, dtype=np.float64)
    crossed = cross_keys is not None
    scores = _score_bytes(shape, span, how, span.keys)
    attention = _attention_bytes(shape, span, how, width, tokens, tokens)
    if cross_keys is not None:
        scores = scores + _score_bytes(shape, span, how, cross_keys)
        attention = attention + _attention_bytes(shape, span, how, width, tokens, span.batch * cross_keys)
    mlp = tokens * _mlp_width(shape, span, how, width)
    return LayerKept(
        norms=tokens * _norm_width(shape, span, how, width, crossed=crossed),
        inputs=tokens * _input_width(shape, span, how, width, crossed=crossed),
        attention=attention,
        scores=scores,
        mlp=mlp,
        boundary=tokens * span.residual_bytes * width.hidden,
        per_op=tokens * _per_op_width(shape, span, how, width),
        working=tokens * (span.element_bytes * width.ffn * (3 if shape.gated_mlp else 2) + 2 * FP32 * width.hidden),
        quantised_inputs=tokens * _quantised_width(shape, span, width) if how.input_copies else 0.0,
    )


def _widths(shape: ModelShape, span: Pass, *, dense: bool) -> _Widths:
    t = span.tensor_parallel
    routed = 0.0 if dense or not shape.experts else float(shape.experts_per_token)
    inner = shape.dense_ffn if dense and shape.dense_ffn else shape.ffn
    groups = shape.kv_heads / np.minimum(t, shape.kv_heads)
    ffn = inner * (routed or 1.0) + (shape.shared_expert_ffn if routed else 0)
    return _Widths(
        hidden=shape.hidden / (t if span.sequence_parallel else 1.0),
        query=shape.heads * shape.head_dim / t,
        key=(shape.heads / t if shape.kv_latent else groups) * shape.head_dim,
        output=shape.heads * shape.value_width / t,
        value=(shape.heads / t if shape.kv_latent else groups) * shape.value_width,
        latent=float(shape.query_latent + shape.kv_latent),
        ffn=ffn / t,
        routed=routed,
    )


def _norm_width(shape: ModelShape, span: Pass, how: Storing, width: _Widths, *, crossed: bool) -> Num:
    """Inputs of norms, normalised values, dropout masks; the residual stream itself is the first norm's input."""
    residual, element = span.residual_bytes, span.element_bytes
    norms = shape.norms_per_layer + crossed
    eager = how.kernels == "eager"
    per_norm = residual
    if eager and shape.norm == "rms" and how.norm_copies:
        per_norm = FP32 + (residual if how.adapters is None or how.adapters.scaled else 0.0)
    kept: Num = per_norm * (norms * width.hidden + width.latent)
    if how.kernels == "compiled":  # the layer's input, and what attention adds to it
        kept = (residual + (norms - 1) * element) * width.hidden + element * width.latent
    if shape.qk_norm and eager:
        kept = kept + (FP32 + element) * (width.query + width.key)
    masks = drops_out(shape) and how.kernels != "compiled"  # a compiler makes the mask again from its seed
    return kept + (MASK * norms * width.hidden if masks else 0.0)


def drops_out(shape: ModelShape) -> bool:
    """Whether a model trains with dropout: by the defaults of its configuration class in transformers, those with
    learned or bucketed positions and a plain MLP do (BERT, GPT-2, OPT, T5: 0.1); rotary and alibi decoders, gated
    ones and vision transformers do not (0.0)."""
    recent = shape.gated_mlp or shape.positions in ("rotary", "alibi")
    return not recent and shape.architecture != "vision-transformer"


def _input_width(shape: ModelShape, span: Pass, how: Storing, width: _Widths, *, crossed: bool) -> Num:
    """Inputs of the products behind norms: one tensor shared, or one cast for each product under autocast."""
    first = 1 if shape.fused_qkv else 3
    ups = 2 if shape.gated_mlp else 1
    if how.adapters is not None:
        frozen = _adapter_width(how.adapters, span, width, first=first, ups=ups)
        return frozen + (span.element_bytes * 2.0 * width.hidden if how.input_copies else 0.0)
    casts = how.casts and how.kernels == "eager"
    attention = (first if casts else 1) + (1 if crossed else 0)
    shares = shape.norms_per_layer == 1 and not casts  # parallel attention and MLP read one norm
    mlp = 0.0 if shares else (ups if casts else 1.0)
    if width.routed:
        mlp = mlp + 2.0 * width.routed  # gathered for the experts, and what they give back
    return span.element_bytes * (width.hidden * (attention + mlp) + width.latent)


def _quantised_width(shape: ModelShape, span: Pass, width: _Widths) -> Num:
    """Of products behind norms (one, where attention and MLP share it), behind attention and at the end of the MLP."""
    return span.element_bytes * (shape.norms_per_layer * width.hidden + width.output + width.ffn)


def _adapter_width(adapters: AdapterStoring, span: Pass, width: _Widths, *, first: int, ups: int) -> Num:
    """Inputs of adapters: of q and v, or of all linear layers but the last of the MLP (`_mlp_width` has that).

    A gate keeps what it multiplies, the output of the attention to learnt tokens; a scale what it multiplies, the
    output of its linear layer (Lightning-AI/litgpt, adapter.py and adapter_v2.py: `AdapterV2Linear.forward`).
    """
    if not adapters.low_rank:
        scaled = 2.0 * width.key + width.query + 2.0 * width.hidden + ups * width.ffn if adapters.scaled else 0.0
        return adapters.copy_bytes * scaled + (span.element_bytes * width.query if adapters.prompted else 0.0)
    copy = adapters.copy_bytes
    behind_norms = (first if adapters.every else min(first, 2)) + (ups if adapters.every else 0)
    mask = MASK if adapters.dropout else 0.0
    outputs: Num = 0.0
    if adapters.outputs:
        every = width.hidden * 2 + width.key + ups * width.ffn if adapters.every else 0.0
        outputs = 2.0 * span.element_bytes * (width.query + width.key + every)
    if not (adapters.copied or adapters.dropout):  # as they are; the attention output's adapter shares its tensor
        return outputs + span.element_bytes * width.hidden * (2.0 if adapters.every else 1.0)
    own = behind_norms * width.hidden + (width.query if adapters.every else 0.0)
    return outputs + own * (copy + mask)


def _attention_bytes(shape: ModelShape, span: Pass, how: Storing, width: _Widths, tokens: Num, key_tokens: Num) -> Num:
    """Queries, keys, values and output; a fused kernel adds one log-sum a row and head."""
    fused = span.attention != "eager"
    repeated = how.repeats_kv or not fused
    keys = width.query + width.output if repeated else width.key + width.value
    rows = FP32 * tokens * shape.heads / span.tensor_parallel if fused else 0.0
    return span.element_bytes * (tokens * (width.query + width.output) + key_tokens * keys) + rows


def _score_bytes(shape: ModelShape, span: Pass, how: Storing, keys: Num) -> Num:
    """Score matrices of eager attention: the softmax (32 bit under autocast and in gated decoders), what it becomes by
    dropout or a cast, and dropout's mask; 5 bytes at 16 bit. A program that learns relative positions keeps theirs."""
    if span.attention != "eager":
        return 0.0
    if shape.sliding_window:
        whole = shape.full_layers / shape.layers
        keys = whole * keys + (1.0 - whole) * np.minimum(keys, shape.sliding_window)
    element, dropped = span.element_bytes, drops_out(shape)
    wide = span.residual_bytes > element or shape.gated_mlp
    softmax = FP32 if wide and how.kernels != "fused" else element
    again = element if dropped or softmax != element else 0.0
    ways = 0.0 if not shape.relative_projections else 1.0 if shape.causal else 2.0
    each = softmax + again + (MASK if dropped else 0.0) + ways * element
    return each * span.batch * (shape.heads / span.tensor_parallel) * span.query * keys


def _mlp_width(shape: ModelShape, span: Pass, how: Storing, width: _Widths) -> Num:
    """What the activation needs, and the input of the last product where its weights are trained."""
    element, adapters = span.element_bytes, how.adapters
    output = how.output_bytes or element
    passes = 1 if not shape.gated_mlp else 3 if how.kernels == "eager" else 2  # fused: the activated gate again
    kept = output * width.ffn * passes
    if shape.composite_gelu and how.kernels == "eager":  # cube's input, tanh, one more than that, half of the input
        kept = (3.0 * (FP32 if how.casts else element) + element) * width.ffn
    if adapters is None:
        return kept + element * width.ffn
    kept = kept + (element * width.ffn if how.input_copies else 0.0)
    if not (adapters.every and adapters.low_rank):
        return kept
    own = adapters.copied or adapters.dropout
    last = (adapters.copy_bytes if own else element) + (MASK if adapters.dropout else 0.0)
    return kept + last * width.ffn + (2.0 * element * width.hidden if adapters.outputs else 0.0)


def _per_op_width(shape: ModelShape, span: Pass, how: Storing, width: _Widths) -> Num:
    """The layer's input, the attention output with its log-sums, and every second matrix product from the first on
    (pytorch/torchtitan, torchtitan/models/llama3/parallelize.py at 2024-12: `_apply_ac_to_transformer_block`, which
    counts the products of each block). A compiler drops what of those no backward reads: the last product's output,
    which the residual stream only adds (torch/_functorch/partitioners.py)."""
    element = span.element_bytes
    behind = [width.query + 2 * width.key] if shape.fused_qkv else [width.query, width.key, width.key]
    inner = [width.ffn, width.ffn] if shape.gated_mlp else [width.ffn]
    products = [*behind, width.hidden, *inner, width.hidden]
    read = products[:-1] if how.kernels == "compiled" else products
    kept: Num = sum(read[::2], start=np.float64(0.0))
    rows = FP32 * shape.heads / span.tensor_parallel
    return span.residual_bytes * width.hidden + element * (width.output + kept) + rows


def embeddings_kept(shape: ModelShape, span: Pass, how: Storing) -> Num:
    """The mask of the dropout behind the embeddings: a byte an element, of each micro-batch in flight on the first
    stage of a pipeline (Korthikanti et al. 2022, section 4.3). A compiler makes it again from its seed."""
    if how.kernels == "compiled" or how.adapters is not None or not drops_out(shape):
        return 0.0
    return MASK * span.tokens * shape.hidden / (span.tensor_parallel if span.sequence_parallel else 1.0)


def convolutions_kept(shape: ModelShape, span: Pass) -> Num:
    """Of each convolution its output, which the norm behind it needs, and the norm's, which the rectifier does."""
    outputs = sum(float(conv.output_side**2) * conv.out_channels * conv.count for conv in shape.convolutions)
    return 2.0 * span.element_bytes * span.batch * outputs
