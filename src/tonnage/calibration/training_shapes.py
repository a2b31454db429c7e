"""The model shape a training row describes, from its own columns."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

from tonnage.calibration.efficientnet import efficientnet_shape
from tonnage.calibration.rows import TrainingRow
from tonnage.errors import TonnageError
from tonnage.workload.known import find_model
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import Architecture, ModelShape

ENCODER_WORDS = re.compile(r"(?<![a-z])(?:\w*bert\w*|electra|mpnet|xlnet|ernie|e5|bge|minilm)", re.IGNORECASE)
ENCODER_DECODER_WORDS = re.compile(
    r"bart|(?<![a-z])m?t5|t0|mt0|pegasus|transformer.*(en-de|en-fr|wmt)|nmt", re.IGNORECASE
)
RELATIVE_WORDS = re.compile(r"transformer-?xl", re.IGNORECASE)
# Adaptive softmax on WikiText-103: words of the first cluster, which most tokens fall in, and of the whole table
# (Dai et al. 2019, arXiv:1901.02860; Merity et al. 2016, arXiv:1609.07843).
ADAPTIVE_SOFTMAX_HEAD, ADAPTIVE_SOFTMAX_TABLE = 20_000, 267_735
# Its further clusters, (share of the tokens, words): up to the 40,000th and 200,000th word and the rest. Words by rank
# r follow 1/r, from a rank on 1/r² (Ferrer i Cancho and Solé 2001, doi:10.1076/jqul.8.3.165.4101). That rank, 24,000,
# is derived for WikiText-103 and is not the paper's: 103.2 million tokens, the last word seen three times (Merity et
# al. 2016, table 1).
RARE_WORDS = ((0.050, 20_000.0), (0.042, 160_000.0), (0.003, 67_735.0))
USUAL_VOCABULARY = {"encoder": 30_522, "decoder": 50_304, "encoder-decoder": 32_128}  # where a row does not say

# Published sizes of the «big» translation model: Vaswani et al. 2017, arXiv:1706.03762, table 3.
TRANSFORMER_BIG = {"layers": 6, "hidden": 1024, "heads": 16, "ffn": 4096}


class NoShape(Exception):
    """A row from which no shape can be built; the text says why."""


def row_shape(row: TrainingRow) -> ModelShape:
    """The shape of the model a row trains; raises NoShape."""
    if row.model.lower().startswith("efficientnet"):
        return _efficientnet(row)
    known = _known(row)
    if row.n_layers is None or row.d_model is None:
        if known is not None:
            return known
        if ENCODER_DECODER_WORDS.search(row.model) and "transformer-big" in row.model.lower():
            return _encoder_decoder(row, {**TRANSFORMER_BIG, "vocab": row.vocab or 0})
        raise NoShape("layers or width not stated, and no known shape of that name")
    if known is not None and _same(known, row):
        return known if row.vocab is None else replace(known, vocab=row.vocab)
    return _from_columns(row)


def architecture(model: str) -> Architecture:
    """What the name says about the architecture; decoders are what remains."""
    if ENCODER_DECODER_WORDS.search(model):
        return "encoder-decoder"
    return "encoder" if ENCODER_WORDS.search(model) else "decoder"


@cache
def _named(model: str) -> ModelShape | None:
    try:
        return find_model(model)
    except TonnageError:
        return None


def _known(row: TrainingRow) -> ModelShape | None:
    shape = _named(row.model)
    if shape is None:
        return None
    side = row.image_side or 0
    if shape.architecture == "convolution" and side not in (0, 224):
        raise NoShape(f"image side {side}: known shape is of 224")
    return shape


def _same(shape: ModelShape, row: TrainingRow) -> bool:
    layers = shape.layers + shape.encoder_layers
    return shape.hidden == row.d_model and row.n_layers in (layers, shape.layers) and row.d_ff in (None, shape.ffn)


def _from_columns(row: TrainingRow) -> ModelShape:
    assert row.d_model is not None
    assert row.n_layers is not None
    kind = architecture(row.family or row.model)  # a model of one's own is called as its folder is
    heads = row.n_heads or max(1, row.d_model // 128)
    vocab = ADAPTIVE_SOFTMAX_HEAD if row.softmax == "adaptive" else row.vocab or USUAL_VOCABULARY[kind]
    sizes: dict[str, Any] = {
        "layers": row.n_layers,
        "hidden": row.d_model,
        "heads": heads,
        "ffn": row.d_ff or 4 * row.d_model,
        "vocab": vocab,
    }
    if kind == "encoder-decoder":
        return _encoder_decoder(row, {**sizes, "layers": row.n_layers // 2})
    relative = bool(RELATIVE_WORDS.search(row.model))
    plain = ModelShape(
        name=row.model,
        architecture=kind,
        kv_heads=row.n_kv_heads or heads,
        head_dim=row.d_model // heads,
        max_positions=0 if relative else min(row.seq_len or 0, 1 << 17),
        positions="relative" if relative else "learned",
        relative_projections=relative,
        qkv_bias=not relative,  # kimiyoung/transformer-xl, pytorch/mem_transformer.py: `qkv_net`, `o_net` without bias
        output_bias=not relative,
        fused_qkv=relative,
        extra_parameters=(ADAPTIVE_SOFTMAX_TABLE - sizes["vocab"]) * row.d_model if row.softmax == "adaptive" else 0,
        token_types=2 if kind == "encoder" else 0,
        **sizes,
    )
    return _closest(row, plain)


def _closest(row: TrainingRow, plain: ModelShape) -> ModelShape:
    """Plain or gated MLP, tied or untied embeddings: whichever comes nearest the stated parameter count."""
    gated = replace(
        plain, gated_mlp=True, positions="rotary", norm="rms", qkv_bias=False, output_bias=False, mlp_bias=False
    )
    if row.params is None or plain.architecture == "encoder":
        return plain
    candidates = [replace(shape, tied_embeddings=tied) for shape in (plain, gated) for tied in (True, False)]
    stated = row.params
    return min(candidates, key=lambda shape: abs(count_parameters(shape).total / stated - 1.0))


def _encoder_decoder(row: TrainingRow, sizes: dict[str, Any]) -> ModelShape:
    heads = sizes["heads"]
    return ModelShape(
        name=row.model,
        architecture="encoder-decoder",
        encoder_layers=sizes["layers"],
        kv_heads=heads,
        head_dim=sizes["hidden"] // heads,
        positions="sinusoidal",
        norms_per_layer=2,
        **sizes,
    )


def _efficientnet(row: TrainingRow) -> ModelShape:
    variant = re.search(r"b(\d)", row.model.lower())
    if variant is None:
        raise NoShape("which EfficientNet is not stated")
    return efficientnet_shape(int(variant[1]), image_side=row.image_side or 0)
