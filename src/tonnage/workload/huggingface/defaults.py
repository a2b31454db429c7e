"""What transformers assumes where a config.json leaves a key out, per model_type.

Sizes (layers, widths, heads, vocabulary) are not here although transformers has defaults for them: a file
that lacks them is broken, and a silent size would be a wrong answer that looks right. «=key» copies another
key. Source: the `configuration_*.py` of each model_type in github.com/huggingface/transformers; `deepseek`
from configuration_deepseek.py of huggingface.co/deepseek-ai/deepseek-moe-16b-base.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

_BERT: Final = {"type_vocab_size": 2, "max_position_embeddings": 512}
_LLAMA: Final = {
    "num_key_value_heads": "=num_attention_heads",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "sliding_window": 0,
}
_T5: Final = {
    "num_decoder_layers": "=num_layers",
    "feed_forward_proj": "relu",
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": True,
}
_VISION: Final = {"num_channels": 3, "qkv_bias": True}
_GEMMA: Final = {"attention_bias": False, "tie_word_embeddings": True}

TRANSFORMERS_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "bert": _BERT,
        "roberta": _BERT,
        "xlm-roberta": _BERT,
        "camembert": _BERT,
        "distilbert": {"max_position_embeddings": 512},
        "albert": _BERT,
        "electra": _BERT,
        "deberta": {
            "type_vocab_size": 0,
            "relative_attention": False,
            "max_relative_positions": -1,
            "position_biased_input": True,
            "pos_att_type": [],
        },
        "deberta-v2": {
            "type_vocab_size": 0,
            "relative_attention": False,
            "max_relative_positions": -1,
            "position_biased_input": True,
            "pos_att_type": [],
            "share_att_key": False,
            "position_buckets": -1,
            "norm_rel_ebd": "none",
            "conv_kernel_size": 0,
        },
        "mpnet": {"relative_attention_num_buckets": 32, "max_position_embeddings": 512},
        "gpt2": {"tie_word_embeddings": True},
        "gpt_neo": {"tie_word_embeddings": True},
        "gptj": {"tie_word_embeddings": False},
        "gpt_neox": {"tie_word_embeddings": False, "attention_bias": True},
        "opt": {
            "word_embed_proj_dim": "=hidden_size",
            "do_layer_norm_before": True,
            "_remove_final_layer_norm": False,
            "enable_bias": True,
            "tie_word_embeddings": True,
        },
        "bloom": {"tie_word_embeddings": True, "seq_length": 2048},
        "t5": _T5,
        "mt5": {**_T5, "feed_forward_proj": "gated-gelu"},
        "bart": {"tie_word_embeddings": True},
        "llama": _LLAMA,
        "mistral": {**_LLAMA, "num_key_value_heads": 8, "sliding_window": 4096},
        "mixtral": {**_LLAMA, "num_key_value_heads": 8},
        "qwen2": {**_LLAMA, "num_key_value_heads": 32},
        "qwen2_moe": {**_LLAMA, "num_key_value_heads": 16, "decoder_sparse_step": 1},
        "qwen3": {**_LLAMA, "num_key_value_heads": 32, "head_dim": 128},
        "qwen3_moe": {**_LLAMA, "num_key_value_heads": 4, "decoder_sparse_step": 1},
        "deepseek": {
            **_LLAMA,
            "first_k_dense_replace": 0,
            "moe_layer_freq": 1,
            "n_shared_experts": 0,
            "n_routed_experts": 0,
            "num_experts_per_tok": 0,
        },
        "gemma": {**_GEMMA, "num_key_value_heads": 16, "head_dim": 256},
        "gemma2": {**_GEMMA, "num_key_value_heads": 4, "head_dim": 256},
        "gemma3_text": {**_GEMMA, "num_key_value_heads": 4, "head_dim": 256},
        "phi": {
            "num_key_value_heads": "=num_attention_heads",
            "tie_word_embeddings": False,
            "qk_layernorm": False,
        },
        "phi3": {
            "num_key_value_heads": "=num_attention_heads",
            "tie_word_embeddings": False,
            "sliding_window": 0,
        },
        "mpt": {
            "expansion_ratio": 4,
            "max_seq_len": 2048,
            "no_bias": True,
            "learned_pos_emb": True,
            "tie_word_embeddings": True,
            "alibi": True,
            "attn_type": "multihead_attention",
            "qk_ln": False,
        },
        "falcon": {
            "multi_query": True,
            "num_kv_heads": "=num_attention_heads",
            "new_decoder_architecture": False,
            "parallel_attn": True,
            "num_ln_in_parallel_attn": 0,
            "alibi": False,
            "bias": False,
            "tie_word_embeddings": True,
            "max_position_embeddings": 2048,
        },
        "stablelm": {
            "num_key_value_heads": 32,
            "use_qkv_bias": False,
            "qk_layernorm": False,
            "use_parallel_residual": False,
            "tie_word_embeddings": False,
        },
        "starcoder2": {
            "num_key_value_heads": 2,
            "use_bias": True,
            "tie_word_embeddings": True,
            "sliding_window": 0,
        },
        "vit": _VISION,
        "deit": _VISION,
        "resnet": {
            "num_channels": 3,
            "embedding_size": 64,
            "layer_type": "bottleneck",
            "downsample_in_first_stage": False,
            "downsample_in_bottleneck": False,
        },
    }
)
