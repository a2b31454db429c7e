"""A model described in the workload file itself, for one that is in no table and has no `config.json`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tonnage.workload.file.fields import Amount, Count, CountOrZero, Flag, Spelled, StrictModel, TokenLength, Word, key
from tonnage.workload.shapes import Convolution, ModelShape, Residual

LengthOrZero = Annotated[int, Field(ge=0, le=10**7), Spelled("whole number, 0 or more")]
ParametersOrZero = Annotated[int, Field(ge=0, le=10**13), Spelled("whole number, 0 or more")]


class ConvolutionFields(StrictModel):
    """One convolution of an `architecture: convolution` model."""

    in_channels: Count = key("Channels in.", example="3")
    out_channels: Count = key("Channels out.", example="64")
    kernel: Count = key("Side of the square kernel.", unit="pixels", example="7")
    output_side: Count = key("Side of the output.", unit="pixels", example="112")
    groups: Count = key("Groups the channels fall into.", default=1, example="1")
    count: Count = key("How many such convolutions.", default=1, example="1")
    residual: Residual = key(
        "Its part in a residual block: `closing`, whose output has the block's input added; `shortcut`, a projection "
        "of that input, without activation.",
        default="none",
        example="closing",
    )


class InlineShape(StrictModel):
    """A model's shape, key by key as in its paper.

    A transformer needs `layers`, `hidden`, `heads`, `vocab` and, with learned positions, `max_positions`; a
    vision transformer `image_side` and `patch_side` instead of the last two; a convolutional network
    `image_side` and `convolutions`. An encoder gets a norm over its embeddings and no output head (as BERT),
    all others a final norm.
    """

    name: Word = key("Name of the model in reports.", default="inline model", example="my-gpt")
    architecture: Literal["encoder", "decoder", "encoder-decoder", "vision-transformer", "convolution"] = key(
        "The family of the network.", example="decoder"
    )
    layers: Count | None = key(
        "Transformer layers (of the decoder, in an encoder-decoder).", default=None, example="32"
    )
    hidden: Count | None = key("Width of the residual stream.", default=None, example="4096")
    heads: Count | None = key("Attention heads.", default=None, example="32")
    vocab: Amount | None = key("Words in the vocabulary.", default=None, unit="tokens", example="32_000")
    kv_heads: Count | None = key("Key and value heads.", default=None, shown="`heads`", example="8")
    head_dim: Count | None = key("Width of one head.", default=None, shown="`hidden` / `heads`", example="128")
    ffn: Count | None = key(
        "Inner width of the MLP (of one expert).", default=None, shown="4 x `hidden`", example="11_008"
    )
    encoder_layers: CountOrZero = key("Layers of the encoder, in an encoder-decoder.", default=0, example="12")
    gated_mlp: Flag = key("Three matrices in the MLP (SwiGLU, GeGLU), not two.", default=False, example="true")
    tied_embeddings: Flag = key("Input and output embeddings are one table.", default=True, example="false")
    positions: Literal["learned", "rotary", "relative", "alibi", "sinusoidal", "none"] = key(
        "How positions are encoded.", default="learned", example="rotary"
    )
    max_positions: TokenLength | None = key(
        "Longest sequence; with `learned`, the rows of the table.",
        default=None,
        unit="tokens",
        example="4096",
    )
    norm: Literal["layer", "rms"] = key("Normalisation.", default="layer", example="rms")
    bias: Flag = key("Whether projections and the MLP carry biases.", default=True, example="false")
    experts: CountOrZero = key("Routed experts a layer; 0 is dense.", default=0, example="8")
    experts_per_token: CountOrZero = key("Experts each token visits.", default=0, example="2")
    shared_expert_ffn: CountOrZero = key("Inner width of an always-on expert.", default=0, example="2048")
    sliding_window: LengthOrZero = key(
        "Attention window; 0 is full attention.", default=0, unit="tokens", example="4096"
    )
    token_types: CountOrZero = key("Rows of a segment embedding (BERT: 2).", default=0, example="2")
    image_side: CountOrZero = key("Side of the image, for vision.", default=0, unit="pixels", example="224")
    patch_side: CountOrZero = key("Side of a patch, for a vision transformer.", default=0, unit="pixels", example="16")
    classes: CountOrZero = key("Classes of a classifier head.", default=0, example="1000")
    convolutions: Annotated[list[ConvolutionFields], Spelled("list of mappings, see Convolutions")] = key(
        "The layers of a convolutional network, in order.", default=list, shown="none"
    )
    extra_parameters: ParametersOrZero = key("Weights the keys above do not express.", default=0, example="0")


def find_shape_faults(shape: InlineShape) -> list[tuple[str, str]]:
    """(key, fault) for a shape that lacks a key its architecture needs, or contradicts itself."""
    needed: tuple[str, ...]
    if shape.architecture == "convolution":
        needed = ("image_side", "convolutions")
    elif shape.architecture == "vision-transformer":
        needed = ("layers", "hidden", "heads", "image_side", "patch_side")
    else:
        needed = ("layers", "hidden", "heads", "vocab")
    if shape.architecture == "encoder-decoder":
        needed = (*needed, "encoder_layers")
    if shape.positions == "learned" and shape.architecture in ("encoder", "decoder", "encoder-decoder"):
        needed = (*needed, "max_positions")
    faults = [
        (name, f"is missing: architecture {shape.architecture} needs it") for name in needed if not getattr(shape, name)
    ]
    return faults or _find_contradictions(shape)


def _find_contradictions(shape: InlineShape) -> list[tuple[str, str]]:
    faults = []
    if shape.hidden and shape.heads and not shape.head_dim and shape.hidden % shape.heads:
        faults.append(("heads", f"{shape.heads} heads do not divide hidden {shape.hidden}; give `head_dim`"))
    if shape.heads and shape.kv_heads and shape.heads % shape.kv_heads:
        faults.append(("kv_heads", f"{shape.kv_heads} does not divide the {shape.heads} heads"))
    if shape.experts_per_token > shape.experts:
        faults.append(("experts_per_token", f"{shape.experts_per_token} is above experts ({shape.experts})"))
    if shape.experts and not shape.experts_per_token:
        faults.append(("experts_per_token", "is missing: a model with experts needs it"))
    if shape.patch_side and shape.image_side % shape.patch_side:
        faults.append(("patch_side", f"patches of {shape.patch_side} do not divide an image of {shape.image_side}"))
    faults += [
        ("convolutions", f"entry {index + 1}: {layer.groups} groups do not divide its channels")
        for index, layer in enumerate(shape.convolutions)
        if layer.in_channels % layer.groups or layer.out_channels % layer.groups
    ]
    return faults


def freeze_shape(shape: InlineShape) -> ModelShape:
    """The `ModelShape` of an inline shape without faults."""
    heads, encoder = shape.heads or 0, shape.architecture == "encoder"
    hidden = shape.hidden or (shape.convolutions[-1].out_channels if shape.convolutions else 0)
    patches = (shape.image_side // shape.patch_side) ** 2 if shape.patch_side else 0
    return ModelShape(
        name=shape.name,
        architecture=shape.architecture,
        layers=shape.layers or 0,
        hidden=hidden,
        heads=heads,
        kv_heads=shape.kv_heads or heads,
        head_dim=shape.head_dim or (hidden // heads if heads else 0),
        ffn=shape.ffn or 4 * hidden,
        vocab=shape.vocab or 0,
        encoder_layers=shape.encoder_layers,
        gated_mlp=shape.gated_mlp,
        tied_embeddings=shape.tied_embeddings,
        lm_head=shape.architecture in ("decoder", "encoder-decoder"),
        final_norm=not encoder,
        embedding_norm=encoder,
        positions=shape.positions,
        max_positions=patches + 1 if patches else shape.max_positions or 0,
        token_types=shape.token_types,
        norm=shape.norm,
        norm_bias=shape.norm == "layer",
        qkv_bias=shape.bias,
        output_bias=shape.bias,
        mlp_bias=shape.bias,
        experts=shape.experts,
        experts_per_token=shape.experts_per_token,
        shared_expert_ffn=shape.shared_expert_ffn,
        sliding_window=shape.sliding_window,
        image_side=shape.image_side,
        class_tokens=1 if patches else 0,
        patch_side=shape.patch_side,
        classes=shape.classes,
        convolutions=tuple(Convolution(**layer.model_dump()) for layer in shape.convolutions),
        extra_parameters=shape.extra_parameters,
        source="workload file",
    )
