"""Readers of the image (and text) encoders that are beside another network: each gives a shape of its own."""

from __future__ import annotations

from typing import Any

from tonnage.workload.huggingface.reader import ConfigReader, stack_sizes
from tonnage.workload.shapes import ModelShape


def clip_image_tower(config: ConfigReader) -> dict[str, Any]:
    """Sizes of CLIP's image encoder: a class token, a norm before the layers, patches without bias."""
    sizes = _image_encoder(config)
    return {
        **sizes,
        "class_tokens": 1,
        "max_positions": sizes["max_positions"] + 1,
        "embedding_norm": True,
        "patch_bias": False,
    }


def siglip_image_tower(config: ConfigReader, *, pooled: bool) -> dict[str, Any]:
    """Sizes of SigLIP's image encoder; `pooled`: with the attention layer that makes one vector of the patches."""
    sizes = _image_encoder(config)
    hidden, ffn = sizes["hidden"], sizes["ffn"]
    if pooled:  # a learned query, one attention layer, a norm, one MLP, all with biases
        attention = 4 * hidden * (hidden + 1)
        sizes["extra_parameters"] = hidden + attention + 2 * hidden + 2 * hidden * ffn + ffn + hidden
        sizes["notes"] = "extra parameters: the attention layer that pools the patches"
    return sizes


def _image_encoder(config: ConfigReader) -> dict[str, Any]:
    image, patch = (config.integer(key) for key in ("image_size", "patch_size"))
    return {
        **stack_sizes(config),
        "vocab": 0,
        "image_side": image,
        "patch_side": patch,
        "max_positions": (image // patch) ** 2,
    }


def text_tower(config: ConfigReader, *, causal: bool, head: int) -> ModelShape:
    """The text encoder of CLIP (causal) and SigLIP; `head`: parameters after its last norm."""
    heads, hidden = config.integer("num_attention_heads"), config.integer("hidden_size")
    return ModelShape(
        name=f"{config.name} text encoder",
        architecture="decoder" if causal else "encoder",
        layers=config.integer("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=config.divided("hidden_size", "num_attention_heads", heads),
        ffn=config.integer("intermediate_size"),
        vocab=config.integer("vocab_size"),
        max_positions=config.integer("max_position_embeddings"),
        lm_head=False,
        extra_parameters=head,
        notes="extra parameters: the projection of the last hidden state",
    )


def image_tower(config: ConfigReader, sizes: dict[str, Any]) -> ModelShape:
    """An image encoder as a shape of its own."""
    sizes.setdefault("kv_heads", sizes["heads"])
    return ModelShape(
        **{"name": f"{config.name} image encoder", "architecture": "vision-transformer", "lm_head": False, **sizes}
    )


def pixtral_tower(config: ConfigReader) -> ModelShape:
    """Pixtral's image encoder: rotary positions, gated MLP, RMS norms, no biases."""
    sizes = _image_encoder(config)
    plain = dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias", "patch_bias", "final_norm"), False)
    gated = {"positions": "rotary", "norm": "rms", "gated_mlp": True, "embedding_norm": True}
    return image_tower(config, {**sizes, **gated, **plain})


def qwen_tower(config: ConfigReader) -> ModelShape:
    """Qwen2.5-VL's image encoder over pairs of frames, four patches merged into one token for the text model."""
    heads, hidden, patch = config.integer("num_heads"), config.integer("hidden_size"), config.integer("patch_size")
    frames, channels = config.integer("temporal_patch_size"), config.integer("in_channels")
    merged = hidden * config.integer("spatial_merge_size") ** 2
    merger = merged * (merged + 1) + (merged + 1) * config.integer("out_hidden_size")
    sizes: dict[str, Any] = {
        "layers": config.integer("depth"),
        "hidden": hidden,
        "heads": heads,
        "head_dim": config.divided("hidden_size", "num_heads", heads),
        "ffn": config.integer("intermediate_size"),
        "vocab": 0,
        "patch_side": patch,
        "patch_bias": False,
        "positions": "rotary",
        "norm": "rms",
        "gated_mlp": True,
        "extra_parameters": merger + (frames * channels - 3) * patch**2 * hidden,
        "notes": "extra parameters: what merges four patches into one token; patches of the second frame",
    }
    return image_tower(config, sizes)


def mllama_tower(config: ConfigReader) -> ModelShape:
    """Llama 3.2 Vision's image encoder: tiles of an image, a second stack of gated layers, embeddings of tiles."""
    heads, image, patch = (config.integer(key) for key in ("attention_heads", "image_size", "patch_size"))
    hidden, tiles = config.integer("hidden_size"), config.integer("max_num_tiles")
    gated = config.integer("num_global_layers", minimum=0)
    ratios = len(config.get("supported_aspect_ratios")) + 1  # and «none»
    rows = (image // patch) ** 2 + 1
    tables = ratios * tiles * hidden * (rows + 2) + 3
    sizes: dict[str, Any] = {
        "layers": config.integer("num_hidden_layers") + gated,
        "hidden": hidden,
        "heads": heads,
        "head_dim": config.divided("hidden_size", "attention_heads", heads),
        "ffn": config.integer("intermediate_size"),
        "vocab": 0,
        "image_side": image,
        "patch_side": patch,
        "class_tokens": 1,
        "max_positions": rows,
        "embedding_norm": True,
        "extra_parameters": tables + 2 * gated,
        "notes": "extra parameters: embeddings of tiles and aspect ratios, gates",
        **dict.fromkeys(("qkv_bias", "output_bias", "patch_bias"), False),
    }
    return image_tower(config, sizes)


def llama4_tower(config: ConfigReader) -> ModelShape:
    """Llama 4's image encoder, with the adapter that shuffles pixels into wider tokens."""
    sizes = clip_image_tower(config)
    inner, outer = config.integer("projector_input_dim"), config.integer("projector_output_dim")
    sizes["extra_parameters"] = config.integer("intermediate_size") * inner + outer**2
    sizes["notes"] = "extra parameters: the adapter after the last norm"
    return image_tower(config, sizes)
