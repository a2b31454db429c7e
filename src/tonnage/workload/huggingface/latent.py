"""Readers of decoders with multi-head latent attention: DeepSeek V2, V3 and R1."""

from __future__ import annotations

from typing import Any

from tonnage.workload.huggingface.heads import decoder_heads
from tonnage.workload.huggingface.reader import ConfigReader
from tonnage.workload.huggingface.rotary import longest_context, read_experts, read_rotary_sizes


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
    """DeepSeek's experts: those shared by all tokens stand side by side as one wider expert."""
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
