"""Readers of image models: vision transformers and residual networks."""

from __future__ import annotations

from typing import Any

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
