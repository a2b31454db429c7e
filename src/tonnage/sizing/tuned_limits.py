"""What NVIDIA's benchmark tool sets a TensorRT-LLM engine to for prompts and answers of known lengths."""

from __future__ import annotations

from math import ceil
from typing import Final

from tonnage.sizing.inference_memory import kv_bytes_per_token
from tonnage.sizing.served_formats import ServedFormat
from tonnage.units import GB, from_gib
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import ModelShape

DECIMAL_GIB_BYTES: Final = float(GB)
TUNED_SHARE: Final = 0.95  # kv_cache_gpu_mem_fraction of calc_engine_setting
MOST_TUNED: Final = 4096  # requests
MOST_TUNED_TOKENS: Final = 32768


def tuned_limits(
    shape: ModelShape,
    served: ServedFormat,
    *,
    memory_bytes: float,
    ranks: int,
    prompt: float,
    answer: float,
    weights_gib_bytes: float = from_gib(1.0),
) -> tuple[float, float]:
    """Requests and tokens of a step that `trtllm-bench` sets an engine to for prompts and answers of these lengths.

    Requests whose cache fits into 0.95 of what weights leave, at most 4,096, and the tokens that keep as many prompts
    coming; both rounded up (NVIDIA/TensorRT-LLM 1.0 and later, tensorrt_llm/bench/build/tuning.py,
    `calc_engine_setting`: «slightly optimistic»). `weights_gib_bytes`: what the tool takes for a GiB of weights; 0.17
    counted parameters in 10^9 and took `DECIMAL_GIB_BYTES`.

    >>> from tonnage.sizing.served_formats import FORMATS
    >>> from tonnage.workload.known import find_model
    >>> tuned_limits(find_model("llama3.1-8b"), FORMATS["fp16"], memory_bytes=85e9, ranks=1, prompt=128, answer=2048)
    (256.0, 2048.0)
    """
    weights_gib = count_parameters(shape).total * served.weight_bytes / weights_gib_bytes
    free = memory_bytes * ranks - from_gib(weights_gib)
    heads = max(shape.kv_heads or shape.heads, ranks) / (shape.kv_heads or shape.heads)  # one at least a rank
    token = float(kv_bytes_per_token(shape, 1.0, element_bytes=served.kv_bytes)) * heads
    held = min(max(free, 0.0) * TUNED_SHARE / token / (prompt + answer), float(MOST_TUNED))
    tokens = min(held * (1.0 + prompt / answer), float(MOST_TUNED_TOKENS))
    each = 32 if held < 256 else 128 if held < 1024 else 256
    together = 256 if tokens < 4096 else 512 if tokens < 8192 else 1024
    return max(64.0, float(each * ceil(held / each))), max(2048.0, float(together * ceil(tokens / together)))
