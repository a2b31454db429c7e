"""Models that an engine does not run, by what their shapes have, and which engine does from which version.

Only what an engine's own list of models leaves out and no fallback of it brings back is here: vLLM, SGLang and TGI run
most other decoders through transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """What an engine does not run: `has` of the shape, in words, and the engines that do."""

    engine: str
    has: Callable[[ModelShape], bool]
    kind: str
    instead: str


def _encoder_decoder(shape: ModelShape) -> bool:
    return shape.architecture == "encoder-decoder" and not shape.speech


def _learned(shape: ModelShape) -> bool:
    return shape.architecture == "decoder" and shape.positions == "learned"


def _plain_rotary(shape: ModelShape) -> bool:
    """LayerNorm and a plain MLP on rotary positions, but StarCoder2, whose queries, keys and values are apart."""
    plain = shape.architecture == "decoder" and shape.positions == "rotary" and not shape.gated_mlp
    return plain and shape.norm == "layer" and (shape.fused_qkv or shape.norms_per_layer == 1)


# NVIDIA/TensorRT-LLM, release notes of 0.7.1: «BART and mBART support in encoder-decoder models», T5 before them. TGI:
# docs/source/supported_models.md lists FLAN-T5, and seq2seq models of transformers run too.
_BOTH_SIDES: Final = "use tensorrt-llm (0.7 and later) or tgi (1.0 and later)"
# docs.vllm.ai, 0.4.0: GPT-2, OPT, BLOOM, MPT, Falcon, GPT-J, GPT-NeoX and Phi among its models
_PLAIN: Final = "use vllm (0.4 and later)"
NOT_RUN: Final = (
    # vllm-project/vllm pull request 24907 (September 2025) takes out what ran BART; T5 never ran (issue 13903). Whisper
    # stayed; docs/usage/v1_guide.md sends other encoder-decoders to plugins, of which vllm-project/bart-plugin is one.
    NotRun(
        engine="vllm", has=lambda shape: _encoder_decoder(shape) and shape.positions == "learned",
        kind="an encoder-decoder without a plugin",
        instead=f"{_BOTH_SIDES}; vllm runs BART with vllm-project/bart-plugin, and without it up to 0.10; neither is "
        "sized",
    ),
    NotRun(engine="vllm", has=_encoder_decoder, kind="an encoder-decoder", instead=_BOTH_SIDES),
    # sgl-project/sglang, docs/supported_models: decoders, and «most decoder-style language models» of transformers.
    NotRun(engine="sglang", has=_encoder_decoder, kind="an encoder-decoder", instead=_BOTH_SIDES),
    # InternLM/lmdeploy issue 104, and docs/en/supported_models/supported_models.md: rotary decoders, and Baichuan.
    NotRun(engine="lmdeploy", has=_encoder_decoder, kind="an encoder-decoder", instead=_BOTH_SIDES),
    NotRun(engine="lmdeploy", has=_learned, kind="a decoder with learned positions", instead=_PLAIN),
    NotRun(
        engine="lmdeploy", has=lambda shape: shape.positions == "alibi" and not shape.gated_mlp,
        kind="a decoder with ALiBi and a plain MLP (BLOOM, MPT)", instead=_PLAIN,
    ),
    # lmdeploy/pytorch/models/module_map.py has none of their classes, StarCoder2's alone of such models.
    NotRun(
        engine="lmdeploy", has=_plain_rotary, instead=_PLAIN,
        kind="a rotary decoder with LayerNorm and a plain MLP (Falcon, GPT-J, GPT-NeoX, Phi-2)",
    ),
    NotRun(
        engine="lmdeploy", has=lambda shape: shape.qk_norm_all_heads,
        kind="a decoder that normalises all heads together (OLMo 2)", instead="use vllm (0.7 and later)",
    ),
    # ggml-org/llama.cpp, README: T5 and Flan-T5 are its encoder-decoders, whose positions are relative.
    NotRun(
        engine="llama.cpp", has=lambda shape: _encoder_decoder(shape) and shape.positions != "relative",
        kind="an encoder-decoder with learned positions (BART)", instead=_BOTH_SIDES,
    ),
)  # fmt: skip


def not_run(engine: str, shape: ModelShape) -> NotRun | None:
    """Why `engine` does not run a model of this shape; None where it does.

    >>> from tonnage.workload.known import find_model
    >>> not_run("vllm", find_model("t5-base")).kind, not_run("vllm", find_model("gpt2")), not_run("lmdeploy",
    ...     find_model("gpt2")).instead
    ('an encoder-decoder', None, 'use vllm (0.4 and later)')
    """
    return next((rule for rule in NOT_RUN if rule.engine == engine and rule.has(shape)), None)
