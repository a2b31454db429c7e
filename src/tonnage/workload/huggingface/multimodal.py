"""Readers of models of several networks: vision-language models, and pairs of an image and a text encoder.

The shape is that of the network a job runs: the language model of the one, the image encoder of the other. The rest
are its towers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tonnage.workload.huggingface.defaults import TRANSFORMERS_DEFAULTS
from tonnage.workload.huggingface.reader import ConfigReader, stack_sizes
from tonnage.workload.huggingface.rotary import (
    read_alternating,
    read_llama,
    read_llama4_text,
    read_qwen2,
    read_windowed,
)
from tonnage.workload.shapes import ModelShape

IMAGES_LEFT_OUT = "the passes of the image encoder are in no figure of a job"


def read_gemma3(config: ConfigReader) -> dict[str, Any]:
    """Gemma 3 from 4B on: a SigLIP encoder, one matrix and a norm between."""
    return _with_images(
        config,
        text=("gemma3_text", lambda inner: read_alternating(inner, period=6)),
        tower=lambda vision: _image_tower(vision, _siglip_image_tower(vision, pooled=vision.flag("vision_use_head"))),
        between=lambda text, image: image + image * text,
        tied=config.flag("tie_word_embeddings"),
    )


def read_mistral3(config: ConfigReader) -> dict[str, Any]:
    """Mistral Small 3.1 and 3.2: a Pixtral encoder, merged patches, two matrices between."""
    merged, biased = config.integer("spatial_merge_size") ** 2, config.flag("multimodal_projector_bias")
    return _with_images(
        config,
        text=("mistral", read_windowed),
        tower=_pixtral_tower,
        between=lambda text, image: image * (1 + merged * image) + (image + text + 2 * biased) * text,
        tied=config.flag("tie_word_embeddings"),
    )


def read_llama4(config: ConfigReader) -> dict[str, Any]:
    """Llama 4 with its image encoder."""
    vision = config.nested("vision_config", TRANSFORMERS_DEFAULTS["llama4"])
    width = vision.integer("vision_output_dim")
    return _with_images(
        config,
        text=("llama4_text", read_llama4_text),
        tower=_llama4_tower,
        between=lambda text, _image: width * text,
        tied=False,
    )


def read_qwen2_5_vl(config: ConfigReader) -> dict[str, Any]:
    """Qwen2.5-VL; older files have the text model's keys beside `vision_config`, newer ones inside `text_config`."""
    return _with_images(
        config,
        text=("qwen2_5_vl_text", read_qwen2),
        tower=_qwen_tower,
        between=lambda _text, _image: 0,
        tied=config.flag("tie_word_embeddings"),
    )


def read_mllama(config: ConfigReader) -> dict[str, Any]:
    """Llama 3.2 Vision: among the text layers are some that attend to the image alone; text skips them."""
    vision = config.nested("vision_config", TRANSFORMERS_DEFAULTS["mllama"])
    inner = config.nested("text_config", TRANSFORMERS_DEFAULTS["mllama_text"])
    crossing = len(inner.integers("cross_attention_layers", longest=inner.integer("num_hidden_layers"), minimum=0))
    width = vision.integer("vision_output_dim")
    sizes = _with_images(
        config,
        text=("mllama_text", read_llama),
        tower=_mllama_tower,
        between=lambda text, _image: (width + 1) * text,
        tied=inner.flag("tie_word_embeddings"),
    )
    hidden, heads, kv_heads, dim = (sizes[key] for key in ("hidden", "heads", "kv_heads", "head_dim"))
    layer = hidden * (2 * (heads + kv_heads) * dim + 3 * sizes["ffn"] + 2) + 2 * dim + 2
    sizes["layers"] -= crossing
    sizes["extra_parameters"] += crossing * layer + 8 * hidden
    sizes["notes"] = f"{sizes['notes']}; {crossing} layers that attend to images, rows of image tokens. " + (
        "A request with an image runs those layers too: left out"
    )
    return sizes


def read_clip(config: ConfigReader) -> dict[str, Any]:
    """CLIP: the image encoder, with the text encoder and both projections beside it."""
    text, vision, width = _pair(config, "clip")
    sizes = _clip_image_tower(vision)
    head = text.integer("hidden_size") * width
    return {
        **sizes,
        "towers": (_text_tower(text, causal=True, head=head),),
        "extra_parameters": sizes["hidden"] * width + 1,
        "notes": "extra parameters: the image projection and the logit scale. A job runs the image encoder",
    }


def read_siglip(config: ConfigReader) -> dict[str, Any]:
    """SigLIP: the image encoder with its pooling, and the text encoder beside it."""
    text, vision, _ = _pair(config, "siglip")
    sizes = _siglip_image_tower(vision, pooled=True)
    width = text.integer("hidden_size")
    out = text.integer("projection_size") if text.has("projection_size") else width
    return {
        **sizes,
        "towers": (_text_tower(text, causal=False, head=(width + 1) * out),),
        "extra_parameters": sizes["extra_parameters"] + 2,
        "notes": f"{sizes['notes']}; logit scale and bias. A job runs the image encoder",
    }


def _pair(config: ConfigReader, model_type: str) -> tuple[ConfigReader, ConfigReader, int]:
    text = config.nested("text_config", TRANSFORMERS_DEFAULTS[f"{model_type}_text"])
    vision = config.nested("vision_config", TRANSFORMERS_DEFAULTS[f"{model_type}_vision"])
    return text, vision, config.integer("projection_dim") if model_type == "clip" else 0


def _with_images(
    config: ConfigReader,
    *,
    text: tuple[str, Callable[[ConfigReader], dict[str, Any]]],
    tower: Callable[[ConfigReader], Any],
    between: Callable[[int, int], int],
    tied: bool,
) -> dict[str, Any]:
    """The text model's sizes with an image encoder; `between`: parameters between, from both widths."""
    model_type, read = text
    inner = config.nested("text_config", TRANSFORMERS_DEFAULTS[model_type], flat=True)
    vision = config.nested("vision_config", TRANSFORMERS_DEFAULTS[str(config.get("model_type"))])
    sizes, images = read(inner), tower(vision)
    extra = between(sizes["hidden"], images.hidden) + sizes.get("extra_parameters", 0)
    return {
        **sizes,
        "tied_embeddings": tied,
        "towers": (images,),
        "extra_parameters": extra,
        "notes": (f"extra parameters: between image encoder and text. {IMAGES_LEFT_OUT}" if extra else IMAGES_LEFT_OUT),
    }


def _clip_image_tower(config: ConfigReader) -> dict[str, Any]:
    """Sizes of CLIP's image encoder: a class token, a norm before the layers, patches without bias."""
    sizes = _image_encoder(config)
    return {
        **sizes,
        "class_tokens": 1,
        "max_positions": sizes["max_positions"] + 1,
        "embedding_norm": True,
        "patch_bias": False,
    }


def _siglip_image_tower(config: ConfigReader, *, pooled: bool) -> dict[str, Any]:
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


def _text_tower(config: ConfigReader, *, causal: bool, head: int) -> ModelShape:
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


def _image_tower(config: ConfigReader, sizes: dict[str, Any]) -> ModelShape:
    """An image encoder as a shape of its own."""
    sizes.setdefault("kv_heads", sizes["heads"])
    return ModelShape(
        **{"name": f"{config.name} image encoder", "architecture": "vision-transformer", "lm_head": False, **sizes}
    )


def _pixtral_tower(config: ConfigReader) -> ModelShape:
    """Pixtral's image encoder: rotary positions, gated MLP, RMS norms, no biases."""
    sizes = _image_encoder(config)
    plain = dict.fromkeys(("qkv_bias", "output_bias", "mlp_bias", "patch_bias", "final_norm"), False)
    gated = {"positions": "rotary", "norm": "rms", "gated_mlp": True, "embedding_norm": True}
    return _image_tower(config, {**sizes, **gated, **plain})


def _qwen_tower(config: ConfigReader) -> ModelShape:
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
    return _image_tower(config, sizes)


def _mllama_tower(config: ConfigReader) -> ModelShape:
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
    return _image_tower(config, sizes)


def _llama4_tower(config: ConfigReader) -> ModelShape:
    """Llama 4's image encoder, with the adapter that shuffles pixels into wider tokens."""
    sizes = _clip_image_tower(config)
    inner, outer = config.integer("projector_input_dim"), config.integer("projector_output_dim")
    sizes["extra_parameters"] = config.integer("intermediate_size") * inner + outer**2
    sizes["notes"] = "extra parameters: the adapter after the last norm"
    return _image_tower(config, sizes)
