"""Readers of models of several networks: vision-language models, and pairs of an image and a text encoder.

The shape is that of the network a job runs: the language model of the one, the image encoder of the other. The rest
are its towers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tonnage.workload.huggingface import towers
from tonnage.workload.huggingface.defaults import TRANSFORMERS_DEFAULTS
from tonnage.workload.huggingface.reader import ConfigReader
from tonnage.workload.huggingface.rotary import (
    read_alternating,
    read_llama,
    read_llama4_text,
    read_qwen2,
    read_windowed,
)

IMAGES_LEFT_OUT = "the passes of the image encoder are in no figure of a job"


def read_gemma3(config: ConfigReader) -> dict[str, Any]:
    """Gemma 3 from 4B on: a SigLIP encoder, one matrix and a norm between."""
    return _with_images(
        config,
        text=("gemma3_text", lambda inner: read_alternating(inner, period=6)),
        tower=lambda vision: towers.image_tower(
            vision, towers.siglip_image_tower(vision, pooled=vision.flag("vision_use_head"))
        ),
        between=lambda text, image: image + image * text,
        tied=config.flag("tie_word_embeddings"),
    )


def read_mistral3(config: ConfigReader) -> dict[str, Any]:
    """Mistral Small 3.1 and 3.2: a Pixtral encoder, merged patches, two matrices between."""
    merged, biased = config.integer("spatial_merge_size") ** 2, config.flag("multimodal_projector_bias")
    return _with_images(
        config,
        text=("mistral", read_windowed),
        tower=towers.pixtral_tower,
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
        tower=towers.llama4_tower,
        between=lambda text, _image: width * text,
        tied=False,
    )


def read_qwen2_5_vl(config: ConfigReader) -> dict[str, Any]:
    """Qwen2.5-VL; older files have the text model's keys beside `vision_config`, newer ones inside `text_config`."""
    return _with_images(
        config,
        text=("qwen2_5_vl_text", read_qwen2),
        tower=towers.qwen_tower,
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
        tower=towers.mllama_tower,
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
    sizes = towers.clip_image_tower(vision)
    head = text.integer("hidden_size") * width
    return {
        **sizes,
        "towers": (towers.text_tower(text, causal=True, head=head),),
        "extra_parameters": sizes["hidden"] * width + 1,
        "notes": "extra parameters: the image projection and the logit scale. A job runs the image encoder",
    }


def read_siglip(config: ConfigReader) -> dict[str, Any]:
    """SigLIP: the image encoder with its pooling, and the text encoder beside it."""
    text, vision, _ = _pair(config, "siglip")
    sizes = towers.siglip_image_tower(vision, pooled=True)
    width = text.integer("hidden_size")
    out = text.integer("projection_size") if text.has("projection_size") else width
    return {
        **sizes,
        "towers": (towers.text_tower(text, causal=False, head=(width + 1) * out),),
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
