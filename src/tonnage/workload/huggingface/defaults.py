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
_QWEN_WINDOW: Final = {"use_sliding_window": False, "max_window_layers": 28, "sliding_window": 4096}
_LATENT: Final = {
    "attention_bias": False,
    "tie_word_embeddings": False,
    "first_k_dense_replace": 0,
    "moe_layer_freq": 1,
    "n_shared_experts": 0,
}

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
        "qwen2": {**_LLAMA, **_QWEN_WINDOW, "num_key_value_heads": 32},
        "qwen2_moe": {**_LLAMA, **_QWEN_WINDOW, "num_key_value_heads": 16, "decoder_sparse_step": 1},
        "qwen3": {**_LLAMA, **_QWEN_WINDOW, "num_key_value_heads": 32, "head_dim": 128},
        "qwen3_moe": {**_LLAMA, **_QWEN_WINDOW, "num_key_value_heads": 4, "decoder_sparse_step": 1},
        "qwen2_5_vl_text": {**_LLAMA, **_QWEN_WINDOW, "num_key_value_heads": 8, "max_window_layers": 80},
        "deepseek": {
            **_LLAMA,
            "first_k_dense_replace": 0,
            "moe_layer_freq": 1,
            "n_shared_experts": 0,
            "n_routed_experts": 0,
            "num_experts_per_tok": 0,
        },
        "gemma": {**_GEMMA, "num_key_value_heads": 16, "head_dim": 256},
        "gemma2": {**_GEMMA, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096},
        "gemma3_text": {
            **_GEMMA,  # the published files of 4B to 27B leave the sizes below out of their `text_config`
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
            "sliding_window": 4096,
        },
        "gemma3": {
            "num_attention_heads": 12,
            "image_size": 224,
            "patch_size": 16,
            "vision_use_head": True,
            "tie_word_embeddings": True,
        },
        "olmo2": {**_LLAMA},
        "deepseek_v2": _LATENT,
        "deepseek_v3": {**_LATENT, "first_k_dense_replace": 3, "n_shared_experts": 1},
        "gpt_oss": {"attention_bias": True, "tie_word_embeddings": False, "head_dim": 64, "sliding_window": 128},
        "llama4_text": {
            **_LLAMA,
            "head_dim": 128,
            "interleave_moe_layer_step": 1,
            "attention_chunk_size": 8192,
        },
        "llama4": {  # the files as published leave `vision_config` out or whole
            "hidden_size": 768,
            "num_hidden_layers": 34,
            "num_attention_heads": 16,
            "intermediate_size": 5632,
            "image_size": 448,
            "patch_size": 14,
            "vision_output_dim": 7680,
            "projector_input_dim": 4096,
            "projector_output_dim": 4096,
        },
        "mistral3": {"spatial_merge_size": 2, "multimodal_projector_bias": False, "tie_word_embeddings": False},
        "qwen2_5_vl": {
            "tie_word_embeddings": False,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "patch_size": 14,
            "num_heads": 16,
            "in_channels": 3,
        },
        "mllama": {"max_num_tiles": 4, "num_global_layers": 8, "vision_output_dim": 7680},
        "mllama_text": {**_LLAMA, "num_key_value_heads": 8},
        "modernbert": {
            "global_attn_every_n_layers": 3,
            "local_attention": 128,
            "attention_bias": False,
            "mlp_bias": False,
            "norm_bias": False,
            "classifier_bias": False,
            "decoder_bias": True,
            "tie_word_embeddings": True,
        },
        "whisper": {
            "num_mel_bins": 80,
            "max_source_positions": 1500,
            "max_target_positions": 448,
            "tie_word_embeddings": True,
        },
        "clip": {"projection_dim": 512},
        # the published files of both leave every size out that is ViT-B/32's (SigLIP: ViT-B/16's)
        "clip_text": {
            "vocab_size": 49408,
            "hidden_size": 512,
            "intermediate_size": 2048,
            "num_hidden_layers": 12,
            "num_attention_heads": 8,
            "max_position_embeddings": 77,
        },
        "clip_vision": {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "image_size": 224,
            "patch_size": 32,
        },
        "siglip": {},
        "siglip_text": {
            "vocab_size": 32000,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "max_position_embeddings": 64,
        },
        "siglip_vision": {
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "image_size": 224,
            "patch_size": 16,
        },
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
