"""Readers of encoder configurations (BERT and its relatives): each returns the sizes to complete a family."""

from __future__ import annotations

from typing import Any

from tonnage.workload.huggingface.heads import encoder_heads, modernbert_heads
from tonnage.workload.huggingface.layer_types import read_windows
from tonnage.workload.huggingface.reader import ConfigReader, shown, stack_sizes


def read_bert(config: ConfigReader) -> dict[str, Any]:
    return {
        **_stack(config),
        "max_positions": config.integer("max_position_embeddings"),
        "token_types": config.integer("type_vocab_size", minimum=0),
        **encoder_heads(config, "bert"),
    }


def read_distilbert(config: ConfigReader) -> dict[str, Any]:
    heads = config.integer("n_heads")
    return {
        "layers": config.integer("n_layers"),
        "hidden": config.integer("dim"),
        "heads": heads,
        "head_dim": config.divided("dim", "n_heads", heads),
        "ffn": config.integer("hidden_dim"),
        "vocab": config.integer("vocab_size"),
        "max_positions": config.integer("max_position_embeddings"),
        **encoder_heads(config, "distilbert"),
    }


def read_factorised(config: ConfigReader, model_type: str) -> dict[str, Any]:
    """ALBERT and ELECTRA: the embedding tables may be narrower than the layers."""
    width, hidden = config.integer("embedding_size"), config.integer("hidden_size")
    if model_type == "albert":
        for key in ("num_hidden_groups", "inner_group_num"):
            if config.has(key) and config.integer(key) != 1:
                raise config.error(key, "only one shared layer is supported; expected 1")
    return {
        **_stack(config),
        "embedding_dim": width if width != hidden or model_type == "albert" else 0,
        "max_positions": config.integer("max_position_embeddings"),
        "token_types": config.integer("type_vocab_size", minimum=0),
        **encoder_heads(config, model_type),
    }


def read_deberta(config: ConfigReader) -> dict[str, Any]:
    """DeBERTa v1: both position projections, a table of twice the relative span."""
    kinds = _position_attention(config)
    if set(kinds) != {"c2p", "p2c"}:
        raise config.error("pos_att_type", f"{shown(kinds)} is not supported; expected c2p and p2c")
    return {**_deberta(config, _relative_span(config)), **encoder_heads(config, "deberta")}


def read_deberta_v2(config: ConfigReader) -> dict[str, Any]:
    """DeBERTa v2 and v3: buckets instead of a span, keys shared between content and position."""
    if not config.flag("share_att_key"):
        raise config.error("share_att_key", "projections of their own for positions are not supported; expected true")
    if config.integer("conv_kernel_size", minimum=0):
        raise config.error(
            "conv_kernel_size", "the convolution layer of DeBERTa-v2-xlarge is not supported; expected 0"
        )
    buckets = config.get("position_buckets")
    span = config.integer("position_buckets") if buckets != -1 else _relative_span(config)
    normed = config.choice("norm_rel_ebd", ("none", "layer_norm")) == "layer_norm"
    return {**_deberta(config, span), "relative_norm": normed, **encoder_heads(config, "deberta-v2")}


def read_mpnet(config: ConfigReader) -> dict[str, Any]:
    return {
        **_stack(config),
        "max_positions": config.integer("max_position_embeddings"),
        "relative_buckets": config.integer("relative_attention_num_buckets"),
        **encoder_heads(config, "mpnet"),
    }


def read_modernbert(config: ConfigReader) -> dict[str, Any]:
    """ModernBERT: rotary, gated, every `global_attn_every_n_layers`-th layer looks at all tokens.

    The norm over its embeddings takes the place of the first layer's first.
    """
    sizes, period = _stack(config), config.integer("global_attn_every_n_layers")
    biased = config.flag("attention_bias")
    windows = read_windows(
        config, layers=sizes["layers"], windowed=lambda layer: layer % period != 0, window_key="local_attention"
    )
    return {
        **sizes,
        **windows,
        "max_positions": config.integer("max_position_embeddings"),
        "norm_bias": config.flag("norm_bias"),
        "qkv_bias": biased,
        "output_bias": biased,
        "mlp_bias": config.flag("mlp_bias"),
        **modernbert_heads(config, sizes["hidden"]),
    }


def _deberta(config: ConfigReader, span: int) -> dict[str, Any]:
    if not config.flag("relative_attention"):
        raise config.error("relative_attention", "DeBERTa without relative positions is not supported; expected true")
    learned = config.flag("position_biased_input")
    return {
        **_stack(config),
        "positions": "learned" if learned else "relative",
        "max_positions": config.integer("max_position_embeddings"),
        "token_types": config.integer("type_vocab_size", minimum=0),
        "relative_buckets": 2 * span,
        "relative_width": config.integer("hidden_size"),
    }


def _relative_span(config: ConfigReader) -> int:
    unlimited = config.get("max_relative_positions") == -1
    return config.integer("max_position_embeddings" if unlimited else "max_relative_positions")


def _position_attention(config: ConfigReader) -> list[str]:
    """`pos_att_type` as a list; older files write «c2p|p2c»."""
    kinds = config.get("pos_att_type")
    if isinstance(kinds, str):
        return kinds.split("|")
    if not isinstance(kinds, list) or not all(isinstance(kind, str) for kind in kinds):
        raise config.error("pos_att_type", "is not a list of names; expected c2p and p2c")
    return kinds


def _stack(config: ConfigReader) -> dict[str, Any]:
    return {**stack_sizes(config), "vocab": config.integer("vocab_size")}
