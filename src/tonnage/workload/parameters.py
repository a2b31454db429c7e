"""How many parameters a shape has, part by part: arithmetic alone, checked against published counts."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache

from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape

__all__ = ["ParameterCount", "count_parameters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters of a model by part. Matrices and tables are under their part, bias vectors under `biases`.

    `per_layer`: one repeated layer with its norms and biases (the decoder's in an encoder-decoder, an MoE
    layer where layers differ, the mean block of a convolutional network). `idle_experts`: parameters one
    token leaves untouched. A table that is stored once counts once: tied heads and shared layers add nothing.
    """

    embeddings: int = 0  # token and segment tables, class tokens
    positions: int = 0  # learned absolute and relative tables
    embedding_projection: int = 0  # factorised embeddings: between table width and hidden width
    attention: int = 0
    mlp: int = 0  # dense MLPs
    experts: int = 0  # routed and shared experts
    router: int = 0
    norms: int = 0  # scales and offsets
    biases: int = 0
    lm_head: int = 0  # an untied vocabulary projection
    heads: int = 0  # pooler, masked-LM transform, classification layer
    convolutions: int = 0  # kernels, also the patch projection of a vision transformer
    towers: int = 0  # networks stored beside this one
    extra: int = 0
    per_layer: int = 0
    idle_experts: int = 0

    @property
    def total(self) -> int:
        """All stored parameters."""
        return sum(getattr(self, part.name) for part in fields(self) if part.name not in _NOT_PARTS)

    @property
    def active(self) -> int:
        """Parameters one token passes through; `total` where there are no experts. Tables count whole."""
        return self.total - self.idle_experts

    @property
    def embedding_total(self) -> int:
        """Tables that are looked up rather than multiplied: tokens, segments, positions."""
        return self.embeddings + self.positions


_NOT_PARTS = frozenset({"per_layer", "idle_experts"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """One transformer layer, by part."""

    attention: int
    mlp: int
    experts: int
    router: int
    norms: int
    biases: int

    @property
    def total(self) -> int:
        return self.attention + self.mlp + self.experts + self.router + self.norms + self.biases


@lru_cache(maxsize=4096)
def count_parameters(shape: ModelShape) -> ParameterCount:
    """Parameters of `shape`, exactly as a framework would store them.

    Per layer, with h hidden, q = heads·head_dim, k = kv_heads·head_dim, f the MLP width, E experts:

        attention  h·q + 2·h·k + q·h                 (again for cross-attention in a decoder with an encoder)
                   or, compressed, `_latent_attention`
        MLP        2·h·f, or 3·h·f when gated        (x E and a router h·E with experts)
        norms      h each, 2·h with an offset
        tables     vocab·e + positions·e + segments·e, e the embedding width; vocab·e again for an untied head

    Vocabulary rows count as stored (padding included). Leaves out buffers that are not trained (rotary
    frequencies, batch-norm averages, position ids). Source: the layer definitions of Vaswani et al. 2017
    (arXiv:1706.03762) and the `config.json` conventions of Hugging Face transformers; every known model is
    tested against its published count.

    >>> gpt2 = ModelShape(name="gpt2", architecture="decoder", layers=12, hidden=768, heads=12, kv_heads=12,
    ...                   head_dim=64, ffn=3072, vocab=50257, max_positions=1024)
    >>> count_parameters(gpt2).total  # Hugging Face model card of gpt2: 124M
    124439808
    """
    if shape.architecture == "convolution":
        return _count_convolutional(shape)
    if shape.architecture == "diffusion":
        return ParameterCount(extra=shape.extra_parameters)
    layer, dense_first, encoder = _layer(shape), _dense_first_layer(shape), _encoder_layer(shape)
    layers = 1 if shape.shared_layers else shape.layers - shape.dense_layers
    stacks = ((layer, layers), (dense_first, shape.dense_layers), (encoder, shape.encoder_layers))

    def over_layers(part: str) -> int:
        return sum(int(getattr(kind, part)) * count for kind, count in stacks)

    return ParameterCount(
        embeddings=(shape.vocab + shape.token_types) * shape.embedding_width + shape.class_tokens * shape.hidden,
        positions=_position_tables(shape),
        embedding_projection=_embedding_projection(shape),
        attention=over_layers("attention"),
        mlp=over_layers("mlp"),
        experts=over_layers("experts"),
        router=over_layers("router"),
        norms=over_layers("norms") + _outer_norms(shape),
        biases=over_layers("biases") + _outer_biases(shape),
        lm_head=0 if shape.tied_embeddings or not shape.lm_head else shape.vocab * shape.embedding_width,
        heads=_heads(shape),
        convolutions=3 * shape.patch_side**2 * shape.hidden,
        towers=sum(count_parameters(tower).total for tower in shape.towers),
        extra=shape.extra_parameters,
        per_layer=layer.total,
        idle_experts=layers * _idle_experts(shape),
    )


def _layer(shape: ModelShape) -> _Layer:
    """The repeated layer: the decoder's, with cross-attention and its norm, where there is an encoder."""
    crossed = shape.architecture == "encoder-decoder"
    times = 2 if crossed else 1
    mlp = _mlp_matrix(shape) * shape.hidden * shape.ffn
    return _Layer(
        attention=times * _attention(shape),
        mlp=0 if shape.experts else mlp,
        experts=shape.experts * mlp + _shared_expert(shape),
        router=shape.hidden * (shape.experts + shape.shared_expert_gate),
        norms=(shape.norms_per_layer + crossed) * _norm(shape, shape.hidden) + _attention_norms(shape),
        biases=times * _attention_bias(shape)
        + max(1, shape.experts) * _mlp_bias(shape, shape.ffn)
        + shape.experts * shape.router_bias,
    )


def _dense_first_layer(shape: ModelShape) -> _Layer:
    """One of the layers of an MoE that stay dense."""
    return _Layer(
        attention=_attention(shape),
        mlp=_mlp_matrix(shape) * shape.hidden * shape.dense_ffn,
        experts=0,
        router=0,
        norms=shape.norms_per_layer * _norm(shape, shape.hidden) + _attention_norms(shape),
        biases=_attention_bias(shape) + _mlp_bias(shape, shape.dense_ffn),
    )


def _encoder_layer(shape: ModelShape) -> _Layer:
    """One layer of the encoder in front of a decoder: no cross-attention, one norm less."""
    return _Layer(
        attention=_attention(shape),
        mlp=_mlp_matrix(shape) * shape.hidden * shape.ffn,
        experts=0,
        router=0,
        norms=shape.norms_per_layer * _norm(shape, shape.hidden),
        biases=_attention_bias(shape) + _mlp_bias(shape, shape.ffn),
    )


def _norm(shape: ModelShape, width: int) -> int:
    return width * (2 if shape.norm == "layer" and shape.norm_bias else 1)


def _attention_norms(shape: ModelShape) -> int:
    """Norms inside attention: of queries and keys, or of the compressed ones (RMS norms: scales only)."""
    if shape.kv_latent:
        return shape.query_latent + shape.kv_latent
    heads = shape.heads + shape.kv_heads if shape.qk_norm_all_heads else 2
    return heads * shape.head_dim if shape.qk_norm else 0


def _latent_attention(shape: ModelShape) -> int:
    """Multi-head latent attention: matrices down to and up from the compressed queries, keys and values.

    With h hidden, q and c the compressed widths, r the rotary part of a head of width d with values v, a heads:
    h·q + q·a·d (h·a·d uncompressed) + h·(c + r) + c·a·(d - r + v) + a·v·h.
    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """
    hidden, heads = shape.hidden, shape.heads
    query = shape.query_latent * (hidden + heads * shape.head_dim) or hidden * heads * shape.head_dim
    down = hidden * (shape.kv_latent + shape.rotary_dim)
    up = shape.kv_latent * heads * (shape.head_dim - shape.rotary_dim + shape.value_width)
    return query + down + up + heads * shape.value_width * hidden


def _attention(shape: ModelShape) -> int:
    if shape.kv_latent:
        return _latent_attention(shape)
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    relative = relative_ways(shape) * shape.hidden * query
    return shape.hidden * (2 * query + 2 * key) + relative


def relative_ways(shape: ModelShape) -> int:
    """Projections of relative positions a layer: Transformer-XL's `r_net` (Dai et al. 2019, arXiv:1901.02860, section
    3.3: content to position alone), DeBERTa's two (He et al. 2020, arXiv:2006.03654: and back)."""
    return (1 if shape.causal else 2) if shape.relative_projections else 0


def _attention_bias(shape: ModelShape) -> int:
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    qkv = query + key * (2 if shape.key_bias else 1) if shape.qkv_bias else 0
    relative = query if relative_ways(shape) > 1 else 0  # DeBERTa: the position query alone has one
    sinks = shape.heads if shape.attention_sinks else 0
    return qkv + relative + sinks + (shape.hidden if shape.output_bias else 0)


def _mlp_matrix(shape: ModelShape) -> int:
    return 3 if shape.gated_mlp else 2


def _mlp_bias(shape: ModelShape, ffn: int) -> int:
    return (_mlp_matrix(shape) - 1) * ffn + shape.hidden if shape.mlp_bias else 0


def _shared_expert(shape: ModelShape) -> int:
    return _mlp_matrix(shape) * shape.hidden * shape.shared_expert_ffn


def _idle_experts(shape: ModelShape) -> int:
    """Parameters of one layer that a token's router does not choose."""
    idle = shape.experts - shape.experts_per_token if shape.experts else 0
    return idle * (_mlp_matrix(shape) * shape.hidden * shape.ffn + _mlp_bias(shape, shape.ffn))


def _sides(shape: ModelShape) -> int:
    """Encoder and decoder each own their position tables and outer norms."""
    return 2 if shape.architecture == "encoder-decoder" else 1


def _position_tables(shape: ModelShape) -> int:
    narrow = shape.embedding_projection == "after-norm"
    width = shape.embedding_width if narrow else shape.hidden
    learned = shape.max_positions * width if shape.positions == "learned" else 0
    relative = shape.relative_buckets * (shape.relative_width or shape.heads)
    return _sides(shape) * (learned + relative)


def _embedding_projection(shape: ModelShape) -> int:
    if not shape.embedding_dim or shape.embedding_dim == shape.hidden:
        return 0
    return shape.embedding_dim * shape.hidden * (1 if shape.embedding_projection == "after-norm" else 2)


def _outer_norms(shape: ModelShape) -> int:
    """Norms outside the layers: over embeddings, relative table and output, and in the masked-LM head."""
    outer = _norm(shape, shape.embedding_width) if shape.embedding_norm else 0
    outer += _norm(shape, shape.hidden) if shape.final_norm else 0
    relative = _norm(shape, shape.relative_width) if shape.relative_norm else 0
    return _sides(shape) * outer + relative + (_norm(shape, shape.embedding_width) if shape.mlm_transform else 0)


def _outer_biases(shape: ModelShape) -> int:
    widened = shape.embedding_projection == "after-norm" and _embedding_projection(shape) > 0
    return (
        (shape.hidden if widened else 0)
        + (shape.vocab if shape.lm_head and shape.lm_head_bias else 0)
        + (shape.hidden if shape.pooler else 0)
        + (shape.embedding_width if shape.mlm_transform else 0)
        + shape.classes
        + (shape.hidden if shape.patch_side and shape.patch_bias else 0)
    )


def _heads(shape: ModelShape) -> int:
    return (
        (shape.hidden**2 if shape.pooler else 0)
        + (shape.hidden * shape.embedding_width if shape.mlm_transform else 0)
        + shape.hidden * shape.classes
    )


def _count_convolutional(shape: ModelShape) -> ParameterCount:
    """Kernels without bias, a batch norm (scale and offset) after each, one classification layer."""
    kernels = sum(
        part.count * part.kernel**2 * (part.in_channels // part.groups) * part.out_channels
        for part in shape.convolutions
    )
    norms = sum(2 * part.count * part.out_channels for part in shape.convolutions)
    return ParameterCount(
        convolutions=kernels,
        norms=norms,
        heads=shape.hidden * shape.classes,
        biases=shape.classes,
        extra=shape.extra_parameters,
        per_layer=(kernels + norms) // max(1, shape.layers),
    )
