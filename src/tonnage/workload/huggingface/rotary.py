"""Readers of Llama-like decoders: rotary positions, grouped key/value heads, dense or with experts."""

from __future__ import annotations

from typing import Any

from tonnage.workload.huggingface.heads import decoder_heads
from tonnage.workload.huggingface.layer_types import every, read_windows
from tonnage.workload.huggingface.reader import ConfigReader


def read_llama(config: ConfigReader) -> dict[str, Any]:
    """Llama, and DeepSeek's first dense models."""
    biased = config.flag("attention_bias")
    return {**read_rotary_sizes(config), "qkv_bias": biased, "output_bias": biased, "mlp_bias": config.flag("mlp_bias")}


def read_windowed(config: ConfigReader) -> dict[str, Any]:
    """Mistral and Phi-3: Llama-like with a window over the keys in all layers."""
    return {**read_rotary_sizes(config), "sliding_window": config.window()}


def read_rotary(config: ConfigReader) -> dict[str, Any]:
    """Gemma and OLMo 2: Llama-like, attention biases as the file says."""
    biased = config.flag("attention_bias")
    return {**read_rotary_sizes(config), "qkv_bias": biased, "output_bias": biased}


def read_alternating(config: ConfigReader, *, period: int) -> dict[str, Any]:
    """Gemma 2 and 3: the last of every `period` layers looks at all tokens, the others through a window."""
    sizes = read_rotary(config)
    if config.has("sliding_window_pattern"):
        period = config.integer("sliding_window_pattern")
    return {**sizes, **read_windows(config, layers=sizes["layers"], windowed=every(period))}


def read_qwen2(config: ConfigReader) -> dict[str, Any]:
    """Qwen 2: a window only where `use_sliding_window`, and then from layer `max_window_layers` on."""
    return {**(sizes := read_rotary_sizes(config)), **_late_windows(config, sizes["layers"])}


def read_qwen3(config: ConfigReader) -> dict[str, Any]:
    return {**(sizes := read_rotary(config)), **_late_windows(config, sizes["layers"])}


def _late_windows(config: ConfigReader, layers: int) -> dict[str, Any]:
    if not config.flag("use_sliding_window"):
        return {}
    first = config.integer("max_window_layers", minimum=0)
    return read_windows(config, layers=layers, windowed=lambda layer: layer >= first)


def read_gpt_oss(config: ConfigReader) -> dict[str, Any]:
    """Every layer routes, every second one looks through a window, the experts' weights may be mxfp4."""
    sizes = {**read_rotary(config), **read_experts(config, "num_local_experts")}
    return {**sizes, **read_windows(config, layers=sizes["layers"], windowed=every(2))}


def read_llama4_text(config: ConfigReader) -> dict[str, Any]:
    """Llama 4: every `interleave_moe_layer_step`-th layer routes, three of four look at chunks of the text.

    A chunk counts as a window of its length, which it reaches at its last token: half as much on average, so
    attention over prompts longer than a chunk is counted up to twice.
    """
    sizes = read_rotary(config)
    layers, step = sizes["layers"], config.integer("interleave_moe_layer_step")
    routed = layers // step
    if config.has("moe_layers"):
        routed = len(config.integers("moe_layers", longest=layers, minimum=0))
    inner = config.integer("intermediate_size")
    return {
        **sizes,
        **read_experts(config, "num_local_experts"),
        "ffn": inner,
        "shared_expert_ffn": inner,
        "dense_layers": layers - routed,
        "dense_ffn": config.integer("intermediate_size_mlp") if routed < layers else 0,
        **read_windows(config, layers=layers, windowed=every(4), window_key="attention_chunk_size"),
    }


def read_mixtral(config: ConfigReader) -> dict[str, Any]:
    return {**read_windowed(config), **read_experts(config, "num_local_experts")}


def read_qwen_moe(config: ConfigReader) -> dict[str, Any]:
    """Qwen MoE models whose every layer routes; `intermediate_size` would be the width of a dense layer."""
    if config.integer("decoder_sparse_step") != 1:
        raise config.error("decoder_sparse_step", "layers that alternate are not supported; expected 1")
    if config.has("mlp_only_layers") and config.get("mlp_only_layers") != []:
        raise config.error("mlp_only_layers", "single dense layers are not supported; expected an empty list")
    sizes = {
        **(rotary := read_rotary_sizes(config)),
        **_late_windows(config, rotary["layers"]),
        "ffn": config.integer("moe_intermediate_size"),
        **read_experts(config, "num_experts" if config.has("num_experts") else "num_local_experts"),
    }
    if config.has("shared_expert_intermediate_size"):
        sizes["shared_expert_ffn"] = config.integer("shared_expert_intermediate_size", minimum=0)
    return sizes


def read_phi(config: ConfigReader) -> dict[str, Any]:
    if config.flag("qk_layernorm"):
        raise config.error("qk_layernorm", "norms over queries and keys are not supported here; expected false")
    return read_rotary_sizes(config)


def read_stablelm(config: ConfigReader) -> dict[str, Any]:
    if config.flag("qk_layernorm"):
        raise config.error("qk_layernorm", "a norm per head is not supported; expected false")
    one_norm = config.flag("use_parallel_residual")
    return {
        **read_rotary_sizes(config),
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


def read_rotary_sizes(config: ConfigReader) -> dict[str, Any]:
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
        "max_positions": longest_context(config),
        "tied_embeddings": config.flag("tie_word_embeddings"),
        **decoder_heads(config, config.integer("hidden_size")),
    }


STRETCHED_ALREADY = ("su", "longrope", "llama3", "mrope")  # `max_position_embeddings` counts what they add


def longest_context(config: ConfigReader) -> int:
    """Tokens that rotary positions reach: `max_position_embeddings`, times the factor of `rope_scaling`.

    The rule of vLLM (`_get_and_verify_max_len`): yarn stretches the length before it; kinds of STRETCHED_ALREADY and
    Gemma 3 state the stretched length.
    """
    longest = config.integer("max_position_embeddings")
    if not config.has("rope_scaling") or str(config.values.get("model_type", "")).startswith("gemma3"):
        return longest
    scaling = config.section("rope_scaling")
    kind = scaling.values.get("rope_type") or scaling.values.get("type")
    factor = scaling.values.get("factor")
    if kind in STRETCHED_ALREADY or isinstance(factor, bool) or not isinstance(factor, int | float) or factor <= 0:
        return longest
    if kind == "yarn" and scaling.has("original_max_position_embeddings"):
        longest = scaling.integer("original_max_position_embeddings")
    return int(longest * factor)


def read_experts(config: ConfigReader, key: str) -> dict[str, Any]:
    """How many experts a layer routes to, and how many of them a token visits."""
    experts, chosen = config.integer(key), config.integer("num_experts_per_tok")
    if chosen > experts:
        raise config.error("num_experts_per_tok", f"{chosen} of `{key}` = {experts} cannot be chosen")
    return {"experts": experts, "experts_per_token": chosen}
