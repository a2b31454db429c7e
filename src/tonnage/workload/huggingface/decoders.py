"""Readers of decoder and encoder-decoder configurations. Each returns the sizes that complete a family."""

from __future__ import annotations

from typing import Any

from tonnage.workload.huggingface.heads import decoder_heads, is_encoder_only
from tonnage.workload.huggingface.reader import ConfigReader
from tonnage.workload.huggingface.rotary import longest_context, read_experts, read_rotary_sizes


def read_gpt2(config: ConfigReader) -> dict[str, Any]:
    hidden = config.integer("n_embd")
    return {
        **_plain(config, layers="n_layer", hidden="n_embd", heads="n_head"),
        "ffn": config.integer("n_inner") if config.has("n_inner") else 4 * hidden,
        "max_positions": config.integer("n_positions"),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, hidden),
    }


def read_gpt_neo(config: ConfigReader) -> dict[str, Any]:
    hidden = config.integer("hidden_size")
    return {
        **_plain(config, layers="num_layers", hidden="hidden_size", heads="num_heads"),
        "ffn": config.integer("intermediate_size") if config.has("intermediate_size") else 4 * hidden,
        "max_positions": config.integer("max_position_embeddings"),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, hidden),
    }


def read_gpt_neox(config: ConfigReader) -> dict[str, Any]:
    biased = config.flag("attention_bias")
    return {
        **_plain(config),
        "ffn": config.integer("intermediate_size"),
        "max_positions": config.integer("max_position_embeddings"),
        "qkv_bias": biased,
        "output_bias": biased,
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, config.integer("hidden_size")),
    }


def read_opt(config: ConfigReader) -> dict[str, Any]:
    hidden, width = config.integer("hidden_size"), config.integer("word_embed_proj_dim")
    biased = config.flag("enable_bias")
    return {
        **_plain(config),
        "ffn": config.integer("ffn_dim"),
        "max_positions": config.integer("max_position_embeddings") + 2,  # the table has two rows more
        "embedding_dim": width if width != hidden else 0,
        "embedding_projection": "tokens-only" if width != hidden else "after-norm",
        "final_norm": config.flag("do_layer_norm_before") and not config.flag("_remove_final_layer_norm"),
        **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), biased),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, hidden),
    }


def read_bloom(config: ConfigReader) -> dict[str, Any]:
    """BLOOM files name the width `hidden_size` or `n_embed`, the depth `n_layer` or `num_hidden_layers`."""
    hidden = _first(config, "hidden_size", "n_embed")
    return {
        **_plain(
            config,
            layers=_first(config, "n_layer", "num_hidden_layers"),
            hidden=hidden,
            heads=_first(config, "n_head", "num_attention_heads"),
        ),
        "ffn": 4 * config.integer(hidden),
        "max_positions": config.integer("seq_length"),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, config.integer(hidden)),
    }


def read_t5(config: ConfigReader) -> dict[str, Any]:
    feed_forward = config.get("feed_forward_proj")
    if not isinstance(feed_forward, str):
        raise config.error("feed_forward_proj", "is not a name such as relu or gated-gelu")
    encoder_only = is_encoder_only(config)
    layers = config.integer("num_layers")
    sizes = {
        "hidden": config.integer("d_model"),
        "heads": config.integer("num_heads"),
        "head_dim": config.integer("d_kv"),
        "ffn": config.integer("d_ff"),
        "vocab": config.integer("vocab_size"),
        "relative_buckets": config.integer("relative_attention_num_buckets"),
        "gated_mlp": feed_forward.startswith("gated"),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        "max_positions": config.integer("n_positions") if config.has("n_positions") else 0,
    }
    if encoder_only:
        return {**sizes, "architecture": "encoder", "layers": layers, "lm_head": False}
    decoder = config.integer("num_decoder_layers")
    return {
        **sizes,
        "layers": decoder,
        "encoder_layers": layers,
        **decoder_heads(config, config.integer("d_model")),
    }


def read_bart(config: ConfigReader) -> dict[str, Any]:
    heads, ffn = config.integer("decoder_attention_heads"), config.integer("decoder_ffn_dim")
    for key, other in (("encoder_attention_heads", heads), ("encoder_ffn_dim", ffn)):
        if config.integer(key) != other:
            raise config.error(key, f"{config.integer(key)} differs from the decoder's {other}; expected one width")
    return {
        "layers": config.integer("decoder_layers"),
        "encoder_layers": config.integer("encoder_layers"),
        "hidden": config.integer("d_model"),
        "heads": heads,
        "head_dim": config.divided("d_model", "decoder_attention_heads", heads),
        "ffn": ffn,
        "vocab": config.integer("vocab_size"),
        "max_positions": config.integer("max_position_embeddings") + 2,  # the tables have two rows more
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, config.integer("d_model")),
    }


def read_mpt(config: ConfigReader) -> dict[str, Any]:
    attention = config.section("attn_config")
    alibi = attention.flag("alibi")
    if attention.choice("attn_type", ("multihead_attention", "multiquery_attention")) == "multiquery_attention":
        raise config.error("attn_config.attn_type", "multi-query MPT is not supported; expected multihead_attention")
    if attention.flag("qk_ln"):
        raise config.error("attn_config.qk_ln", "norms over queries and keys are not supported; expected false")
    unbiased = config.flag("no_bias")
    learned = config.flag("learned_pos_emb") and not alibi
    return {
        **_plain(config, layers="n_layers", hidden="d_model", heads="n_heads"),
        "ffn": config.integer("expansion_ratio") * config.integer("d_model"),
        "max_positions": config.integer("max_seq_len"),
        "positions": "learned" if learned else "alibi" if alibi else "none",
        **dict.fromkeys(("norm_bias", "qkv_bias", "output_bias", "mlp_bias"), not unbiased),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, config.integer("d_model")),
    }


def read_falcon(config: ConfigReader) -> dict[str, Any]:
    """Falcon: one key/value head (7B) or a few (40B, 180B); attention beside MLP behind one or two norms."""
    hidden, wide = config.integer("hidden_size"), config.flag("new_decoder_architecture")
    sizes = _plain(config)
    kv_heads = config.integer("num_kv_heads") if wide else 1 if config.flag("multi_query") else sizes["heads"]
    single = config.integer("num_ln_in_parallel_attn", minimum=0) == 1
    one_norm = single if wide else config.flag("parallel_attn")
    return {
        **sizes,
        "kv_heads": kv_heads,
        "ffn": config.integer("ffn_hidden_size") if config.has("ffn_hidden_size") else 4 * hidden,
        "max_positions": config.integer("max_position_embeddings"),
        "positions": "alibi" if config.flag("alibi") else "rotary",
        "norms_per_layer": 1 if one_norm else 2,
        **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), config.flag("bias")),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, hidden),
    }


def _plain(
    config: ConfigReader,
    *,
    layers: str = "num_hidden_layers",
    hidden: str = "hidden_size",
    heads: str = "num_attention_heads",
) -> dict[str, Any]:
    """The sizes every decoder has; a head is the hidden width divided by the heads."""
    count = config.integer(heads)
    return {
        "layers": config.integer(layers),
        "hidden": config.integer(hidden),
        "heads": count,
        "head_dim": config.divided(hidden, heads, count),
        "vocab": config.integer("vocab_size"),
    }


def _first(config: ConfigReader, *keys: str) -> str:
    """The first key that the file has; the first of all where it has none, for the error to name."""
    return next((key for key in keys if config.has(key)), keys[0])


def read_latent(config: ConfigReader) -> dict[str, Any]:
    """Compressed keys and values, shared experts beside the routed ones, the first layers dense."""
    if config.flag("attention_bias"):
        raise config.error("attention_bias", "biases of compressed projections are not supported; expected false")
    layers, heads = config.integer("num_hidden_layers"), config.integer("num_attention_heads")
    plain, rotary = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
    return {
        "layers": layers,
        "hidden": config.integer("hidden_size"),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": plain + rotary,
        "rotary_dim": rotary,
        "value_dim": config.integer("v_head_dim"),
        "kv_latent": config.integer("kv_lora_rank"),
        "query_latent": config.integer("q_lora_rank") if config.has("q_lora_rank") else 0,
        "vocab": config.integer("vocab_size"),
        "max_positions": longest_context(config),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, config.integer("hidden_size")),
        **read_shared_experts(config, layers),
    }


def read_shared_experts(config: ConfigReader, layers: int) -> dict[str, Any]:
    """DeepSeek's experts: those shared by all tokens are side by side as one wider expert."""
    if config.integer("moe_layer_freq") != 1:
        raise config.error("moe_layer_freq", "layers that alternate are not supported; expected 1")
    dense = config.integer("first_k_dense_replace", minimum=0)
    if dense >= layers:
        raise config.error("first_k_dense_replace", f"{dense} leaves no layer with experts of {layers}")
    inner = config.integer("moe_intermediate_size")
    return {
        **read_experts(config, "n_routed_experts"),
        "ffn": inner,
        "shared_expert_ffn": inner * config.integer("n_shared_experts", minimum=0),
        "dense_layers": dense,
        "dense_ffn": config.integer("intermediate_size") if dense else 0,
    }


def read_deepseek(config: ConfigReader) -> dict[str, Any]:
    """The first DeepSeek MoE: plain multi-head attention."""
    sizes = read_rotary_sizes(config)
    return {**sizes, **read_shared_experts(config, sizes["layers"])}
