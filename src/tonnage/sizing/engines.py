"""Engines: what the software between a model and a device costs, as a few physical figures each.

An engine is judged by its class. Frameworks that launch one kernel an operation are bound by the host at small sizes;
compilers fuse element-wise work; fused-kernel engines replay captured kernels; LLM engines add a scheduler to every
step. Here is what holds before any fit (`PRIORS`) and how far a fit may move it; fitted figures are an argument of
the functions that use them (`calibration.store.calibrated_engines` has those of the packaged calibration).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from tonnage.errors import UnknownName, did_you_mean, nearest
from tonnage.sizing.assumption_table import Assumption, listed, parameter
from tonnage.values import dataclass

NO_LIMIT: Final = float("inf")
ANY_LENGTH: Final = 1e6  # tokens; unlike NO_LIMIT, of 16 and 8 bits alone
_fitted: Final = partial(parameter, fitted_by="inference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One class of inference software. A figure with a range is fitted inside it to the rows of the class.

    Fractions are of the rate a device sustains (`sizing/inference_devices.py`) or of its memory bandwidth.
    """

    # fmt: off
    name: str
    # Of the sustained matrix rate, for an output of very many tiles.
    gemm_fraction: float = _fitted(0.85, 0.55, 1.0, source="of the rate the best large product reached")
    # 128 x 128 output tiles at which half of that is reached, on 108 multiprocessors.
    tiles_to_half: float = _fitted(8.0, 0.2, 30.0, source="measured products of 108 multiprocessors: 8 to 15")
    # Of bandwidth, streaming weights and keys.
    memory_fraction: float = _fitted(0.80, 0.55, 0.95, source="measured products at 1 to 64 tokens: 0.74 to 0.92")
    # Device time of one kernel however small, at 1.41 GHz.
    kernel_floor_us: float = _fitted(
        4.0, 1.0, 12.0, source="at 1.41 GHz: 1.5 us the launch gap in a captured graph, 4 to 10 us measured alone"
    )
    # Element-wise kernels and traffic left by fusion.
    elementwise_left: float = _fitted(
        0.5, 0.1, 6.0, source="0: all fused into products; over 1: casts and copies that the operator list lacks"
    )
    # Of the sustained rate inside the attention kernel at long queries.
    attention_fraction: float = _fitted(
        0.4, 0.05, 0.8, source="FlashAttention-2 reaches 0.5 to 0.73 of peak; short sequences far less"
    )
    # 0: kernels are captured, the host never bounds.
    host_us_per_kernel: float = _fitted(
        0.0, 1.0, 40.0, source="Python dispatch 5 to 15 us an operation, more on slow hosts"
    )
    # One pass or one decode step, whatever its size: input, scheduler, output.
    call_us: float = _fitted(
        100.0, 5.0, 6000.0, source="scheduler, sampler and input preparation: 0.3 to 2.5 ms measured for Python engines"
    )
    sequence_us: float = _fitted(  # each sequence of a pass
        0.0, 0.5, 200.0, source="sampling, detokenising and bookkeeping of one sequence"
    )
    # The front end's work on a request, one after another.
    request_us: float = _fitted(
        0.0, 200.0, 20000.0, source="HTTP front end, tokeniser and the way to the scheduler, one after another"
    )
    # What each request waits in the front end beside the others.
    reply_us: float = _fitted(
        0.0, 500.0, 60000.0, source="connection, hand-over between processes and the first token's way out"
    )
    # Share of int8 / fp8 matrix rates, beside the same engine's share at 16 bit.
    low_bit_fraction: float = _fitted(
        0.8, 0.4, 1.2, source="quantising, dequantising and scaling around 8-bit products"
    )
    dequantise_bytes: float = 0.45  # per weight stored in fewer bits than it is multiplied in, as if it were streamed
    # Of the sustained rate in convolutions, as gemm_fraction.
    convolution_fraction: float = _fitted(
        0.6, 0.1, 1.0, source="implicit products; first layer and small channels reach little"
    )
    # tiles_to_half of convolutions, whose inner length is not split.
    convolution_tiles_to_half: float = _fitted(
        27.0, 4.0, 110.0, source="no split of the inner length: a multiprocessor each for 64 x 64 tiles, 4 of 128 x 128"
    )
    # elementwise_left of norms and activations behind convolutions.
    convolution_elementwise_left: float = _fitted(
        0.5, 0.02, 3.0, source="norm and activation fold into the convolution, or stay kernels"
    )
    exchange_us: float = _fitted(  # a small all-reduce of four ranks
        30.0, 5.0, 90.0, source="30 to 60 us measured with NCCL below 1 MB; custom kernels less"
    )
    fused_attention_tokens: float = NO_LIMIT  # longest sequence whose scores stay on the chip; 0: never
    element_copies: float = 0.0  # times the KV cache is moved each step beside being read, in elements of 4 bytes
    layer_buffers: float = 0.0  # buffers as wide as the model that a layer keeps for each token; 0: memory is reused
    workspace_gib: float = 0.0  # kept beside weights, activations and the device's context
    head_a_block: bool = False  # its fused attention is one thread block for each head of each sequence
    fused_blocks: bool = False  # blocks of transformers are few kernels of its own, counted as they are
    spelt_out: bool = False  # RMS norms and rotary positions are chains of small kernels, as their authors wrote them
    quantises_apart: bool = False  # 8-bit products have kernels of their own that quantise their input and widen theirs
    quantises_inputs: bool = False  # 8-bit products are scaled by the values of each step: a kernel before each
    channels_first: bool = False  # convolutions take images in the framework's order, channels before rows and columns
    lays_out_half: bool = False  # but 16-bit ones channels last, as a compiler lays them out for tensor cores
    scheduled_nodes: bool = False  # TensorFlow's executor: nodes that wait for nothing run on threads of their own
    mixed_residual: bool = False  # 16 bit is autocast: residual stream and weights in fp32
    # fmt: on

    def with_figures(self, values: Mapping[str, float]) -> Engine:
        """The class with these figures, by name, in place of its own."""
        changed: dict[str, Any] = dict(values)
        return replace(self, **changed)


# What a class's structure says before any row; fits start here. Python dispatches an operation in some 20 us, a C++
# executor in 8 (6 where a transformer is rewritten into a few fused nodes, or where a library calls each kernel itself:
# NVIDIA/FasterTransformer, models/bert/Bert.cc, a loop over layers on one stream, no graph). Frameworks run norm,
# activation and residual as kernels of their own; compilers fuse them with one another; engines fuse them into the
# products, which leaves a residual read, a pool and reformats; one whose whole network is its own takes one call, as a
# captured one does, and its attention any length (AITemplate's flash attention; TensorRT 10; its plugins before took
# 512), in one thread block for each head of each sequence (NVIDIA/TensorRT@69b9d453, bertQKVToContextPlugin,
# fused_multihead_attention.h: a grid of params.h x params.b, as of 7.1; facebookincubator/AITemplate, backend/cuda/
# attention, fmha_fprop_fp16_kernel.sm80.cu: the same): 12 heads leave most of an A100 idle. FasterTransformer's divides
# a head's rows among blocks where there are few (fused_multihead_attention_v2.h, `forceUnroll`). A captured framework
# replays its kernels as they are, today's with fused attention, in one call. A convolution is an
# implicit product on the same units as a product. A framework that generates grows its cache by concatenation (read and
# written: 2 times), in kernels that take an element a thread, of whatever width, as do its products of one row for each
# head and sequence: in 16 bits they reach half of the bandwidth or less. One more sequence of 544 tokens costs a step
# of LLaMA-7B and MPT-7B in bf16 as much as 5.6 to 6.6 readings of its cache (mosaicml/llm-foundry@8c8dd48f, batches of
# 8 to 64), 96 more tokens of GPT-2 at batch 128 as much as 6 in fp16 and 3.3 in fp32 (microsoft/onnxruntime,
# transformers README, V100). PyTorch and ONNX lay images out channels first unless asked otherwise (pytorch.org,
# «Channels last memory format»), TensorFlow channels last; XLA takes 16-bit convolutions channels last and others first
# (openxla/xla, gpu_layout_assignment.cc). In a network written for the engine norm and
# activation are inside the convolution; what a block adds to its output is read once more: half of all values
# (ResNet-50: 16 of 53 outputs, the wide ones) once of the 5 times that are counted. TensorFlow's graph runs norm,
# activation and that sum as one kernel in inference, in 32 and in 16 bit (tensorflow/tensorflow@599ec864, grappler/
# optimizers/remapper.cc: FusedBatchNorm + SideInput + Activation -> _FusedBatchNormEx): read and written once, half of
# it read once more, 2.5 of 5.
# Engines that time many kernels for each convolution and fuse what follows (TensorRT's builder, AITemplate's profiler)
# start nearer to the rate of products than libraries that choose among few: judgement.
_PRIORS: Final = (
    Engine(
        name="eager", host_us_per_kernel=20.0, elementwise_left=1.5, convolution_fraction=0.85,
        convolution_elementwise_left=1.0, sequence_us=5.0, fused_attention_tokens=0.0, element_copies=2.0,
        exchange_us=60.0, spelt_out=True, channels_first=True,
    ),
    Engine(
        name="captured", elementwise_left=1.0, convolution_fraction=0.85, convolution_elementwise_left=1.0,
        call_us=20.0, sequence_us=5.0, spelt_out=True, channels_first=True,
    ),
    Engine(
        name="graph", host_us_per_kernel=8.0, elementwise_left=1.5, convolution_fraction=0.85,
        convolution_elementwise_left=0.5, sequence_us=5.0, fused_attention_tokens=0.0, mixed_residual=True,
        scheduled_nodes=True,
    ),
    Engine(
        name="traced", host_us_per_kernel=8.0, elementwise_left=1.5, convolution_fraction=0.85,
        convolution_elementwise_left=1.0, sequence_us=5.0, fused_attention_tokens=0.0, channels_first=True,
        element_copies=2.0,
    ),
    Engine(
        name="compiled", host_us_per_kernel=8.0, elementwise_left=0.8, convolution_fraction=0.85,
        convolution_elementwise_left=1.0, sequence_us=5.0, fused_attention_tokens=0.0,
        channels_first=True, lays_out_half=True,
    ),
    Engine(  # torch.compile: fused as others compile, attention by PyTorch's own kernels
        name="inductor", host_us_per_kernel=8.0, elementwise_left=0.8, convolution_fraction=0.85,
        convolution_elementwise_left=1.0, sequence_us=5.0,
    ),
    Engine(
        name="optimised", host_us_per_kernel=6.0, elementwise_left=0.5, convolution_fraction=0.85,
        sequence_us=5.0, fused_attention_tokens=0.0, channels_first=True,
    ),
    Engine(
        name="converted", elementwise_left=0.25, convolution_fraction=0.95, convolution_elementwise_left=0.2,
        sequence_us=5.0, fused_attention_tokens=0.0,
    ),
    Engine(
        name="library", host_us_per_kernel=6.0, elementwise_left=0.25, convolution_fraction=0.95,
        convolution_elementwise_left=0.2,
        sequence_us=5.0, fused_attention_tokens=384.0, quantises_apart=True,
    ),
    Engine(
        name="fused", elementwise_left=0.25, call_us=20.0, convolution_fraction=0.95, convolution_elementwise_left=0.1,
        sequence_us=5.0, fused_attention_tokens=ANY_LENGTH, fused_blocks=True,
        head_a_block=True,
    ),
    Engine(
        # 42 peaks of FasterTransformer (its gpt_guide): 2.2 GiB are beside weights, cache and activations.
        name="static-llm", attention_fraction=0.55, kernel_floor_us=6.0, sequence_us=5.0, layer_buffers=28.0,
        workspace_gib=1.6,
    ),
    Engine(
        name="hosted-llm", attention_fraction=0.55, host_us_per_kernel=9.0, sequence_us=5.0, element_copies=2.0,
    ),
    Engine(name="llm", attention_fraction=0.55, sequence_us=5.0, request_us=1000.0, reply_us=2500.0),
    Engine(
        name="llm-python", gemm_fraction=0.7, attention_fraction=0.55, call_us=700.0, sequence_us=30.0,
        request_us=3000.0, reply_us=30000.0, quantises_inputs=True,
    ),
)  # fmt: skip
PRIORS: Final[Mapping[str, Engine]] = MappingProxyType({engine.name: engine for engine in _PRIORS})
# Engines of one class behind the HTTP server of another: what a request takes in the front end is the server's. Both
# `trtllm-serve` and LMDeploy's `api_server` are Python, as those of vLLM and SGLang (uvicorn and FastAPI:
# NVIDIA/TensorRT-LLM, tensorrt_llm/serve/openai_server.py; InternLM/lmdeploy, lmdeploy/serve/openai/api_server.py).
BEHIND: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({"llm-http": ("llm", "llm-python")})
_SERVED_BY: Final = MappingProxyType({"tensorrt-llm": "llm-http", "lmdeploy": "llm-http"})


def with_fronts(engines: Mapping[str, Engine]) -> dict[str, Engine]:
    """The classes, and those behind the server of another one."""
    behind = {
        name: engines[own].with_figures({"request_us": engines[front].request_us, "reply_us": engines[front].reply_us})
        for name, (own, front) in BEHIND.items()
    }
    return {**engines, **behind}


# What a fit may set of a class, by its name.
FIGURES: Final[Mapping[str, Assumption]] = MappingProxyType({one.name: one for one in listed(PRIORS["eager"])})

# Words of an engine's name -> its class, the first that is found; a server in front («triton+») does not count, a
# name with «xla» or «compile» is compiled whatever is before it. An exported ONNX network that a server runs is not
# rewritten for transformers: its operators are launched one by one, as TorchScript's.
_WORDS: Final = (
    ("cudagraph", "captured"), ("cuda-graph", "captured"),
    ("onnxruntime-trt", "converted"), ("onnxruntime-tensorrt", "converted"), ("triton+onnxruntime", "traced"),
    ("xla", "compiled"), ("torch.compile", "inductor"), ("torch-compile", "inductor"), ("torch_compile", "inductor"),
    ("compile", "compiled"), ("torchscript", "traced"), ("triton+pytorch", "traced"),
    ("inductor", "inductor"), ("triton+trt", "converted"), ("torch-tensorrt", "converted"),
    ("torch2trt", "converted"), ("trtllm-serve", "llm-http"), ("trtllm", "llm"), ("trt-llm", "llm"),
    ("tensorrt-llm", "llm"),
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

# What a class is called where it decodes: one call of an engine runs a whole generation, a framework launches each
# step.
_GENERATING: Final = {
    "fused": "static-llm", "library": "static-llm", "converted": "static-llm", "compiled": "hosted-llm",
    "inductor": "hosted-llm",
    "optimised": "hosted-llm", "graph": "hosted-llm",
}  # fmt: skip


def engine_class(name: str, *, generates: bool = False) -> str:
    """The class of the engine called `name`; `generates`: it decodes tokens one by one.

    A class's own name is that class. Raises UnknownName listing the words known. A fused-kernel engine that decodes is
    a static LLM engine.

    >>> engine_class("triton+onnxruntime-trt"), engine_class("llm-python")
    ('converted', 'llm-python')
    """
    folded = name.strip().casefold()
    if folded in PRIORS:
        return _GENERATING.get(folded, folded) if generates else folded
    for word, kind in (*_GENERATING_WORDS, *_WORDS) if generates else _WORDS:
        if word in folded:
            return _GENERATING.get(kind, kind) if generates else kind
    known = [word for word, _ in _WORDS]
    raise UnknownName(
        f"no class is known for the engine '{name}'; known: {', '.join(known)}",
        suggestions=nearest(folded, known),
        hint=did_you_mean(nearest(folded, known), f"or name a class: {', '.join(PRIORS)}"),
    )


def server_class(name: str) -> str:
    """The class of the engine called `name` behind the HTTP server that it is started with.

    >>> server_class("tensorrt-llm"), server_class("vllm"), server_class("llama.cpp")
    ('llm-http', 'llm-python', 'llm')
    """
    return _SERVED_BY.get(name, engine_class(name, generates=True))


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
