"""Readers of Llama-like decoders: rotary positions, grouped key/value heads, dense or with experts."""

from __future__ import annotations

from typing import Any

from tonnage.workload.huggingface.heads import decoder_heads
from tonnage.workload.huggingface.reader import ConfigReader


def read_llama(config: ConfigReader) -> dict[str, Any]:
    """Llama, and DeepSeek's first dense models."""
    biased = config.flag("attention_bias")
    return {**_rotary(config), "qkv_bias": biased, "output_bias": biased, "mlp_bias": config.flag("mlp_bias")}


def read_windowed(config: ConfigReader) -> dict[str, Any]:
    """Mistral and Phi-3: Llama-like with a window over the keys in all layers."""
    return {**_rotary(config), "sliding_window": config.window()}


def read_rotary(config: ConfigReader) -> dict[str, Any]:
    """Qwen 3 and Gemma: Llama-like, attention biases as the file says.

    Gemma 2 and 3 mix windowed layers with full ones; all count as full, the larger need.
    """
    biased = config.flag("attention_bias")
    return {**_rotary(config), "qkv_bias": biased, "output_bias": biased}


def read_qwen2(config: ConfigReader) -> dict[str, Any]:
    return _rotary(config)


def read_mixtral(config: ConfigReader) -> dict[str, Any]:
    return {**read_windowed(config), **_experts(config, "num_local_experts")}


def read_qwen_moe(config: ConfigReader) -> dict[str, Any]:
    """Qwen MoE models whose every layer routes; `intermediate_size` would be the width of a dense layer."""
    if config.integer("decoder_sparse_step") != 1:
        raise config.error("decoder_sparse_step", "layers that alternate are not supported; expected 1")
    if config.has("mlp_only_layers") and config.get("mlp_only_layers") != []:
        raise config.error("mlp_only_layers", "single dense layers are not supported; expected an empty list")
    sizes = {
        **_rotary(config),
        "ffn": config.integer("moe_intermediate_size"),
        **_experts(config, "num_experts"),
    }
    if config.has("shared_expert_intermediate_size"):
        sizes["shared_expert_ffn"] = config.integer("shared_expert_intermediate_size", minimum=0)
    return sizes


def read_deepseek(config: ConfigReader) -> dict[str, Any]:
    """The first DeepSeek MoE: shared experts side by side are one wider expert."""
    if config.integer("moe_layer_freq") != 1:
        raise config.error("moe_layer_freq", "layers that alternate are not supported; expected 1")
    sizes = _rotary(config)
    dense = config.integer("first_k_dense_replace", minimum=0)
    if dense >= sizes["layers"]:
        raise config.error("first_k_dense_replace", f"{dense} leaves no layer with experts of {sizes['layers']}")
    inner = config.integer("moe_intermediate_size")
    return {
        **sizes,
        **_experts(config, "n_routed_experts"),
        "ffn": inner,
        "shared_expert_ffn": inner * config.integer("n_shared_experts", minimum=0),
        "dense_layers": dense,
        "dense_ffn": config.integer("intermediate_size") if dense else 0,
    }


def read_phi(config: ConfigReader) -> dict[str, Any]:
    if config.flag("qk_layernorm"):
        raise config.error("qk_layernorm", "norms over queries and keys are not supported here; expected false")
    return _rotary(config)


def read_stablelm(config: ConfigReader) -> dict[str, Any]:
    if config.flag("qk_layernorm"):
        raise config.error("qk_layernorm", "a norm per head is not supported; expected false")
    one_norm = config.flag("use_parallel_residual")
    return {
        **_rotary(config),
        "qkv_bias": config.flag("use_qkv_bias"),
        "norms_per_layer": 1 if one_norm else 2,
    }


def read_starcoder2(config: ConfigReader) -> dict[str, Any]:
    biased = config.flag("use_bias")
    return {**read_windowed(config), **dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias"), biased)}


def read_gptj(config: ConfigReader) -> dict[str, Any]:
    hidden, heads = config.integer("n_embd"), config.integer("n_head")
    return {
        "layers": config.integer("n_layer"),
        "hidden": hidden,
        "heads": heads,
        "head_dim": config.divided("n_embd", "n_head", heads),
        "ffn": config.integer("n_inner") if config.has("n_inner") else 4 * hidden,
        "vocab": config.integer("vocab_size"),
        "max_positions": config.integer("n_positions"),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, hidden),
    }


def _rotary(config: ConfigReader) -> dict[str, Any]:
    heads, kv_heads = config.integer("num_attention_heads"), config.integer("num_key_value_heads")
    if heads % kv_heads:
        raise config.error("num_key_value_heads", f"{kv_heads} does not divide `num_attention_heads` = {heads}")
    explicit = config.has("head_dim") or "head_dim" in config.defaults
    return {
        "layers": config.integer("num_hidden_layers"),
        "hidden": config.integer("hidden_size"),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": config.integer("head_dim")
        if explicit
        else config.divided("hidden_size", "num_attention_heads", heads),
        "ffn": config.integer("intermediate_size"),
        "vocab": config.integer("vocab_size"),
        "max_positions": config.integer("max_position_embeddings"),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, config.integer("hidden_size")),
    }


def _experts(config: ConfigReader, key: str) -> dict[str, Any]:
    experts, chosen = config.integer(key), config.integer("num_experts_per_tok")
    if chosen > experts:
        raise config.error("num_experts_per_tok", f"{chosen} of `{key}` = {experts} cannot be chosen")
    return {"experts": experts, "experts_per_token": chosen}
