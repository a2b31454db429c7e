"""The published shape of a model: operator list, parameter count and KV cache all follow from it."""

from __future__ import annotations

from typing import Literal

from tonnage.values import dataclass

Architecture = Literal["encoder", "decoder", "encoder-decoder", "vision-transformer", "convolution", "diffusion"]
Residual = Literal["none", "closing", "shortcut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One convolution: channels in and out, square kernel, output side length in pixels, groups, repeats.

    `residual`: what it is to a residual block. The `closing` one's output has the block's input added before the
    activation; a `shortcut` projects that input, with a norm and no activation.
    """

    in_channels: int
    out_channels: int
    kernel: int
    output_side: int
    groups: int = 1
    count: int = 1
    residual: Residual = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A transformer (or a convolutional network) as its paper or `config.json` gives it.

    Lengths and widths are in elements. For an encoder-decoder `layers` counts decoder layers and
    `encoder_layers` the rest. `parameters` is not stored: `count_parameters(shape)` computes it.
    """

    name: str
    architecture: Architecture
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int  # inner width of the MLP (of one expert, where there are experts)
    vocab: int
    encoder_layers: int = 0
    composite_gelu: bool = False  # GELU by its tanh formula, which transformers spells out in primitives (gelu_new)
    gated_mlp: bool = False  # SwiGLU / GeGLU: three matrices instead of two
    tied_embeddings: bool = True
    lm_head: bool = True  # has a vocabulary projection (also a masked-LM head)
    positions: Literal["learned", "rotary", "relative", "alibi", "sinusoidal", "none"] = "learned"
    max_positions: int = 0  # rows of the learned table; for other kinds the longest supported length
    token_types: int = 0  # rows of a segment embedding
    norm: Literal["layer", "rms"] = "layer"
    norms_per_layer: int = 2
    final_norm: bool = True
    embedding_norm: bool = False
    norm_bias: bool = True  # layer norms only
    qkv_bias: bool = True
    key_bias: bool = True  # False: where qkv_bias, the key has none (DeBERTa)
    fused_qkv: bool = False  # one matrix makes q, k and v (GPT-2, BLOOM, NeoX, Falcon, MPT, Phi-3); as LoRA sees it
    output_bias: bool = True  # of the attention output projection
    mlp_bias: bool = True
    lm_head_bias: bool = False
    qk_norm: bool = False  # one norm of head_dim for q and one for k per layer
    qk_norm_all_heads: bool = False  # those norms span all heads together (OLMo 2)
    attention_sinks: bool = False  # one learned score a head and layer, beside those of the keys (gpt-oss)
    query_latent: int = 0  # MLA: width queries are compressed to; 0: not compressed
    kv_latent: int = 0  # MLA: width keys and values are compressed to, cached in their place; 0: no MLA
    rotary_dim: int = 0  # MLA: the part of head_dim that carries positions; one key of it serves all heads
    value_dim: int = 0  # width of one head's values where it is not head_dim (MLA)
    pooler: bool = False  # BERT's dense layer over the first token
    mlm_transform: bool = False  # BERT's dense + norm before the vocabulary projection
    embedding_dim: int = 0  # factorised embeddings (ALBERT, OPT-350m, ELECTRA-small); 0: equals hidden
    embedding_projection: Literal["after-norm", "tokens-only"] = "after-norm"
    # after-norm: positions, segments and norm are narrow too, one biased matrix widens (ALBERT, ELECTRA);
    # tokens-only: the token table alone is narrow, matrices without bias in and out (OPT-350m)
    shared_layers: bool = False  # ALBERT: one layer's weights used `layers` times
    experts: int = 0  # routed experts a layer; 0: dense
    experts_per_token: int = 0
    shared_expert_ffn: int = 0  # inner width of the always-on expert; 0: none
    shared_expert_gate: bool = False  # a learned gate in front of it (Qwen2-MoE)
    router_bias: bool = False
    dense_layers: int = 0  # layers that stay dense in an MoE: the first ones, or every second (Llama 4 Maverick)
    dense_ffn: int = 0  # their inner width
    sliding_window: int = 0  # attention window in tokens, of all layers but `full_layers`; 0: full attention
    full_layers: int = 0  # where there is a window: layers that look at all tokens all the same
    reserved_positions: int = 0  # rows of the learned table no token can use (RoBERTa, OPT, BART: 2)
    relative_buckets: int = 0  # rows of a relative-position table
    relative_width: int = 0  # its columns; 0: one bias per head (T5, MPNet)
    relative_norm: bool = False  # a norm over that table (DeBERTa-v3)
    relative_projections: bool = False  # for positions: a key and a query (DeBERTa), a key (Transformer-XL)
    shifted_positions: bool = False  # XLNet: scores of positions over twice the length, shifted, and of segments
    fused_attention: bool = False  # transformers runs its attention as one kernel by default; False also: unknown
    speech: bool = False  # its encoder reads frames of sound (Whisper)
    image_side: int = 0  # vision only, pixels
    patch_side: int = 0
    patch_bias: bool = True  # of the projection of patches
    class_tokens: int = 0  # learned tokens in front of the patches (ViT 1, distilled DeiT 2)
    classes: int = 0  # outputs of a classification layer with bias; 0: none
    convolutions: tuple[Convolution, ...] = ()
    towers: tuple[ModelShape, ...] = ()
    # networks stored with this one that a text pass does not run: the image encoder of a vision-language model, the
    # text encoder of CLIP beside its image encoder
    stored_weights: str = ""  # format the checkpoint holds its weights in (fp8, mxfp4, int4); "": 16 or 32 bit
    not_modelled: str = ""  # why no time or memory of a job can be said; "": it can
    extra_parameters: int = 0  # what the fields above do not express, explained in `notes`
    notes: str = ""
    source: str = ""

    @property
    def causal(self) -> bool:
        """Whether attention looks back only (decoders)."""
        return self.architecture in ("decoder", "encoder-decoder")

    @property
    def embedding_width(self) -> int:
        return self.embedding_dim or self.hidden

    @property
    def value_width(self) -> int:
        """Width of one head's values."""
        return self.value_dim or self.head_dim

    @property
    def left_out(self) -> str:
        """What figures of a job with this model leave out; "": nothing."""
        if not self.towers:
            return ""
        if self.causal:
            return "passes of the image encoder: its weights are counted; count image tokens as input tokens"
        return "passes of the text encoder: its weights are counted; a job runs the image encoder"
