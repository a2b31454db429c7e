"""Engines: what the software between a model and a device costs, as a few physical figures each.

An engine is judged by its class. Frameworks that launch one kernel an operation are bound by the host at small sizes;
compilers fuse element-wise work; fused-kernel engines replay captured kernels; LLM engines add a scheduler to every
step. The figures are fitted by `calibration/inference_fit.py`; `RANGES` there says how far each may go. They stand in
one place, the packaged calibration; here stands what holds before any fit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from tonnage.errors import UnknownName, did_you_mean, nearest
from tonnage.values import dataclass

NO_LIMIT: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One class of inference software.

    Fractions are of the rate a device sustains (`sizing/inference_devices.py`) or of its memory bandwidth.
    """

    name: str
    gemm_fraction: float = 0.85  # of the sustained matrix rate, for an output of very many tiles
    tiles_to_half: float = 8.0  # 128 x 128 output tiles at which half of that is reached, on 108 multiprocessors
    memory_fraction: float = 0.80  # of bandwidth, streaming weights and keys
    kernel_floor_us: float = 4.0  # device time of one kernel however small, at 1.41 GHz
    elementwise_left: float = 0.5  # element-wise kernels and traffic left by fusion (over 1: casts and copies added)
    attention_fraction: float = 0.4  # of the sustained rate inside the attention kernel at long queries
    host_us_per_kernel: float = 0.0  # 0: kernels are captured, the host never bounds
    call_us: float = 100.0  # one pass or one decode step, whatever its size: input, scheduler, output
    sequence_us: float = 0.0  # each sequence of a pass: sampling, detokenising, copies
    low_bit_fraction: float = 0.8  # share of int8 / fp8 matrix rates, beside the same engine's share at 16 bit
    dequantise_bytes: float = 0.45  # per weight stored in fewer bits than it is multiplied in, as if it were streamed
    convolution_fraction: float = 0.6  # of the sustained rate in convolutions, as gemm_fraction
    convolution_elementwise_left: float = 0.5  # elementwise_left of norms and activations behind convolutions
    exchange_us: float = 30.0  # a small all-reduce
    request_us: float = 0.0  # the front end's work on a request, one after another: HTTP, tokeniser, hand-over
    reply_us: float = 0.0  # what each request waits in the front end beside the others: connection, first token out
    fused_attention_tokens: float = NO_LIMIT  # longest sequence whose scores stay on the chip; 0: never
    cache_copies: float = 0.0  # times the KV cache is moved each step beside being read (2: grown by concatenation)
    layer_buffers: float = 0.0  # buffers as wide as the model that a layer keeps for each token; 0: memory is reused
    spelt_out: bool = False  # RMS norms and rotary positions are chains of small kernels, as their authors wrote them
    mixed_residual: bool = False  # 16-bit passes keep the residual stream in fp32 (autocast)


# What a class's structure says before any row; fits start here. Python dispatches an operation in some 20 us, a C++
# executor in 8 (6 where a transformer is rewritten into a few fused nodes). Frameworks run norm, activation and
# residual as kernels of their own; compilers fuse them with one another; engines fuse them into the products, which
# leaves a residual read, a pool and reformats. A captured framework replays its kernels as they are, today's with fused
# attention, in one call. A convolution is an implicit product on the same units as a product.
_PRIORS: Final = (
    Engine(
        name="eager", host_us_per_kernel=20.0, elementwise_left=1.5, convolution_fraction=0.85,
        convolution_elementwise_left=1.0, sequence_us=5.0, fused_attention_tokens=0.0, cache_copies=2.0,
        exchange_us=60.0, spelt_out=True,
    ),
    Engine(
        name="captured", elementwise_left=1.0, convolution_fraction=0.85, convolution_elementwise_left=1.0,
        call_us=20.0, sequence_us=5.0, spelt_out=True,
    ),
    Engine(
        name="graph", host_us_per_kernel=8.0, elementwise_left=1.5, convolution_fraction=0.85,
        convolution_elementwise_left=1.0, sequence_us=5.0, fused_attention_tokens=0.0, mixed_residual=True,
    ),
    Engine(
        name="traced", host_us_per_kernel=8.0, elementwise_left=1.5, convolution_fraction=0.85,
        convolution_elementwise_left=1.0, sequence_us=5.0, fused_attention_tokens=0.0,
    ),
    Engine(
        name="compiled", host_us_per_kernel=8.0, elementwise_left=0.8, convolution_fraction=0.85,
        convolution_elementwise_left=1.0, sequence_us=5.0, fused_attention_tokens=0.0,
    ),
    Engine(
        name="optimised", host_us_per_kernel=6.0, elementwise_left=0.5, convolution_fraction=0.85,
        sequence_us=5.0, fused_attention_tokens=0.0,
    ),
    Engine(
        name="converted", elementwise_left=0.25, convolution_fraction=0.85, convolution_elementwise_left=0.2,
        sequence_us=5.0, fused_attention_tokens=0.0,
    ),
    Engine(
        name="library", elementwise_left=0.25, convolution_fraction=0.85, convolution_elementwise_left=0.2,
        sequence_us=5.0, fused_attention_tokens=384.0,
    ),
    Engine(
        name="fused", elementwise_left=0.25, convolution_fraction=0.85, convolution_elementwise_left=0.2,
        sequence_us=5.0, fused_attention_tokens=512.0,
    ),
    Engine(
        name="static-llm", attention_fraction=0.55, kernel_floor_us=6.0, sequence_us=5.0, layer_buffers=28.0,
    ),
    Engine(
        name="hosted-llm", attention_fraction=0.55, host_us_per_kernel=9.0, sequence_us=5.0, cache_copies=1.0,
    ),
    Engine(name="llm", attention_fraction=0.55, sequence_us=5.0, request_us=1000.0, reply_us=2500.0),
    Engine(
        name="llm-python", gemm_fraction=0.7, attention_fraction=0.55, call_us=700.0, sequence_us=30.0,
        request_us=3000.0, reply_us=30000.0,
    ),
)  # fmt: skip
PRIORS: Final[Mapping[str, Engine]] = MappingProxyType({engine.name: engine for engine in _PRIORS})


def _packaged() -> Mapping[str, Engine]:
    """Every class as the packaged calibration has it; as its structure says where there is no calibration of it.

    A figure that this build no longer has is passed over, one that the file does not know yet keeps its prior.
    """
    place = files("tonnage") / "calibration" / "data" / "calibration-v1.json"
    document = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    fitted = (document.get("inference") or {}).get("engines", {})
    known = {field.name: type(getattr(PRIORS["eager"], field.name)) for field in fields(Engine)}
    found = {}
    for name, prior in PRIORS.items():
        values: dict[str, Any] = {key: known[key](value) for key, value in fitted.get(name, {}).items() if key in known}
        found[name] = replace(prior, **values)
    return MappingProxyType(found)


ENGINES: Final[Mapping[str, Engine]] = _packaged()

# Words of an engine's name -> its class, the first that is found; a server in front («triton+») does not count, a
# name with «xla» or «compile» is compiled whatever stands before it. An exported ONNX network that a server runs is not
# rewritten for transformers: its operators are launched one by one, as TorchScript's.
_WORDS: Final = (
    ("cudagraph", "captured"), ("cuda-graph", "captured"),
    ("onnxruntime-trt", "converted"), ("onnxruntime-tensorrt", "converted"), ("triton+onnxruntime", "traced"),
    ("xla", "compiled"), ("compile", "compiled"), ("torchscript", "traced"), ("triton+pytorch", "traced"),
    ("inductor", "compiled"), ("triton+trt", "converted"), ("torch-tensorrt", "converted"),
    ("torch2trt", "converted"), ("trtllm", "llm"), ("trt-llm", "llm"), ("tensorrt-llm", "llm"),
    ("tensorrt_llm", "llm"), ("vllm", "llm-python"), ("sglang", "llm-python"), ("lmdeploy", "llm"),
    ("turbomind", "llm"), ("tgi", "llm-python"), ("text-generation-inference", "llm-python"),
    ("lightllm", "llm-python"), ("mlc", "llm"), ("exllama", "llm-python"), ("llama.cpp", "llm"), ("llamacpp", "llm"),
    ("nim", "llm"), ("ctranslate2", "library"), ("fastertransformer", "library"), ("lightseq", "library"),
    ("bytetransformer", "library"), ("turbotransformers", "library"), ("aitemplate", "fused"), ("tensorrt", "fused"),
    ("trt", "fused"), ("onnxruntime", "optimised"), ("ort", "optimised"), ("onnx", "optimised"),
    ("openvino", "optimised"), ("jax", "compiled"), ("deepspeed", "optimised"), ("autoawq", "eager"),
    ("hf-", "eager"), ("transformers", "eager"), ("huggingface", "eager"), ("pytorch", "eager"), ("torch", "eager"),
    ("paddle", "eager"), ("tensorflow", "graph"), ("tf", "graph"),
)  # fmt: skip


# DeepSpeed has kernels of its own for encoders; to generate it runs the framework's modules, sharded.
_GENERATING_WORDS: Final = (("deepspeed", "eager"),)

# What a class is called where it decodes: captured kernels run a whole generation, launched ones each step.
_GENERATING: Final = {
    "fused": "static-llm", "library": "static-llm", "converted": "static-llm", "compiled": "hosted-llm",
    "optimised": "hosted-llm", "graph": "hosted-llm", "traced": "eager",
}  # fmt: skip


def engine_class(name: str, *, generates: bool = False) -> str:
    """The class of the engine called `name`; `generates`: it decodes tokens one by one.

    Raises UnknownName listing the words known. A fused-kernel engine that decodes is a static LLM engine.

    >>> engine_class("triton+onnxruntime-trt")
    'converted'
    """
    folded = name.strip().casefold()
    for word, kind in (*_GENERATING_WORDS, *_WORDS) if generates else _WORDS:
        if word in folded:
            return _GENERATING.get(kind, kind) if generates else kind
    known = [word for word, _ in _WORDS]
    raise UnknownName(
        f"no class is known for the engine '{name}'; known: {', '.join(known)}",
        suggestions=nearest(folded, known),
        hint=did_you_mean(nearest(folded, known), f"or name a class: {', '.join(ENGINES)}"),
    )


# TensorRT and all that builds on it (TensorRT-LLM, NIM, ONNX Runtime's provider), FasterTransformer and LMDeploy's
# TurboMind are written in CUDA alone; their documentation lists NVIDIA devices only.
_NVIDIA_WORDS: Final = ("tensorrt", "trt", "nim", "fastertransformer", "lmdeploy", "turbomind")


def nvidia_only(name: str) -> bool:
    """Whether the engine called `name` runs on NVIDIA devices only.

    >>> nvidia_only("triton+trtllm"), nvidia_only("vllm")
    (True, False)
    """
    folded = name.casefold()
    return any(word in folded for word in _NVIDIA_WORDS)


def find_engine(name: str, *, generates: bool = False) -> Engine:
    """The figures of a class, or of the class of the engine called `name`; UnknownName when there is none."""
    folded = name.strip().casefold()
    return ENGINES[folded] if folded in ENGINES else ENGINES[engine_class(name, generates=generates)]
