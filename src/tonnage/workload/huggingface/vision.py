"""Readers of image models: vision transformers and residual networks."""

from __future__ import annotations

from typing import Any, Final

from tonnage.workload.convolutions import resnet_sizes
from tonnage.workload.huggingface.heads import two_classifiers, vision_heads
from tonnage.workload.huggingface.reader import ConfigReader, shown

RESNET_IMAGE_SIDE = 224  # a ResNet file states no image size; its published figures are for 224 x 224
MOST_STAGES = 16


def read_vit(config: ConfigReader, class_tokens: int) -> dict[str, Any]:
    heads = config.integer("num_attention_heads")
    hidden, image_side, patch_side = (config.integer(key) for key in ("hidden_size", "image_size", "patch_size"))
    if image_side % patch_side:
        raise config.error("patch_size", f"{patch_side} does not divide `image_size` = {image_side}")
    if config.integer("num_channels") != 3:
        raise config.error("num_channels", f"{config.integer('num_channels')} is not supported; expected 3")
    sizes = {
        "layers": config.integer("num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "head_dim": config.divided("hidden_size", "num_attention_heads", heads),
        "ffn": config.integer("intermediate_size"),
        "vocab": 0,
        "qkv_bias": config.flag("qkv_bias"),
        "image_side": image_side,
        "patch_side": patch_side,
        "max_positions": (image_side // patch_side) ** 2 + class_tokens,
        **vision_heads(config),
    }
    if two_classifiers(config):
        sizes["extra_parameters"] = (hidden + 1) * sizes["classes"]
        sizes["notes"] = "extra parameters: the second classification layer (distillation)"
    return sizes


def read_resnet(config: ConfigReader) -> dict[str, Any]:
    for key in ("downsample_in_first_stage", "downsample_in_bottleneck"):
        if config.flag(key):
            raise config.error(key, "this variant of ResNet is not supported; expected false")
    depths = config.integers("depths", longest=MOST_STAGES)
    widths = config.integers("hidden_sizes", longest=MOST_STAGES)
    if len(depths) != len(widths):
        raise config.error("depths", f"has {len(depths)} stages, `hidden_sizes` has {len(widths)}; expected as many")
    if any(width % 4 for width in widths):
        raise config.error("hidden_sizes", f"{shown(list(widths))} do not all divide by 4, as bottlenecks need")
    bottleneck = config.choice("layer_type", ("basic", "bottleneck")) == "bottleneck"
    if config.integer("num_channels") != 3:
        raise config.error("num_channels", f"{config.integer('num_channels')} is not supported; expected 3")
    sizes = resnet_sizes(
        depths,
        "bottleneck" if bottleneck else "basic",
        image_side=RESNET_IMAGE_SIDE,
        widths=widths,
        stem_channels=config.integer("embedding_size"),
    )
    heads = vision_heads(config)
    return {**sizes, "image_side": RESNET_IMAGE_SIDE, **heads, "pooler": False}


NOT_MODELLED: Final = (
    "the decoder of a speech model starts from a few tokens while its encoder reads 1,500 frames: "
    "work that differs so on the two sides is not modelled"
)


def read_whisper(config: ConfigReader) -> dict[str, Any]:
    """Whisper: positions of the encoder are stored too, keys have no bias."""
    width, bins = config.integer("d_model"), config.integer("num_mel_bins")
    heads, frames = config.integer("decoder_attention_heads"), config.integer("max_source_positions")
    ffn, positions = config.integer("decoder_ffn_dim"), config.integer("max_target_positions")
    for key, expected in (("encoder_attention_heads", heads), ("encoder_ffn_dim", ffn)):
        if config.integer(key) != expected:
            raise config.error(key, f"{config.integer(key)} differs from the decoder's {expected}: not supported")
    return {
        "layers": config.integer("decoder_layers"),
        "encoder_layers": config.integer("encoder_layers"),
        "hidden": width,
        "heads": heads,
        "head_dim": config.divided("d_model", "decoder_attention_heads", heads),
        "ffn": ffn,
        "vocab": config.integer("vocab_size"),
        "max_positions": positions,
        "tied_embeddings": config.flag("tie_word_embeddings"),
        "extra_parameters": (frames - positions + 3 * bins + 3 * width + 2) * width,
        "notes": "extra parameters: two convolutions over the spectrogram, further rows of the encoder's positions",
        "not_modelled": NOT_MODELLED,
    }
