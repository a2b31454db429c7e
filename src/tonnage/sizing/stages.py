"""A job's forward pass, cut into what repeats per layer and what occurs once: the common ground of time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.sizing.convolution_operators import convolution_operators
from tonnage.sizing.estimates import Num
from tonnage.sizing.layer_operators import head_operators, layer_operators
from tonnage.sizing.operators import Operator, Pass, gemm
from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Operators of one block and how often the block occurs in the model."""

    name: str
    repeats: float
    operators: Sequence[Operator]
    layered: bool  # pipeline parallelism may cut between repeats


def forward_stages(shape: ModelShape, span: Pass, *, logit_tokens: Num, target_tokens: Num = 0.0) -> list[Stage]:
    """The blocks of one forward pass over `span`.

    In training an encoder-decoder sees `span.query` tokens on both sides, or `target_tokens` on the decoder's.
    `logit_tokens` is how many positions go through the vocabulary projection (0 for a classification head, whose cost
    is negligible).
    """
    if shape.architecture == "convolution":
        return [Stage(name="convolutions", repeats=1, operators=convolution_operators(shape, span), layered=False)]
    if shape.architecture == "vision-transformer":
        tokens = image_tokens(shape)
        span = replace(span, query=tokens, keys=tokens)
        patch = gemm("patches", span, rows=span.tokens, inner=3.0 * shape.patch_side**2, columns=float(shape.hidden))
        return [
            Stage(name="patches", repeats=1, operators=[patch], layered=False),
            Stage(
                name="layers",
                repeats=shape.layers,
                operators=layer_operators(shape, span, causal=False),
                layered=True,
            ),
        ]
    stages = [Stage(name="head", repeats=1, operators=head_operators(shape, span, logit_tokens=logit_tokens),
                    layered=False)]  # fmt: skip
    if shape.architecture == "encoder-decoder":
        stages.append(
            Stage(name="encoder", repeats=shape.encoder_layers, operators=layer_operators(shape, span, causal=False),
                  layered=True)
        )  # fmt: skip
        inner = replace(span, query=target_tokens, keys=target_tokens) if np.any(target_tokens) else span
        decoder = layer_operators(shape, inner, causal=True, cross_keys=span.keys)
        return [*stages, Stage(name="decoder", repeats=shape.layers, operators=decoder, layered=True)]
    if shape.dense_layers and shape.experts:
        dense = layer_operators(shape, span, causal=shape.causal, dense=True)
        stages.append(Stage(name="dense layers", repeats=shape.dense_layers, operators=dense, layered=True))
    repeats = shape.layers - (shape.dense_layers if shape.experts else 0)
    stages.append(
        Stage(
            name="layers",
            repeats=repeats,
            operators=layer_operators(shape, span, causal=shape.causal),
            layered=True,
        )
    )
    return stages


def image_tokens(shape: ModelShape) -> float:
    """Sequence length of a vision transformer: one token a patch and the class token."""
    return float((shape.image_side // shape.patch_side) ** 2 + 1)
