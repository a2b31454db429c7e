"""Which requests an engine's scheduler puts into a step, by the engine's name; one step time serves them all."""

from __future__ import annotations

from typing import Final

from tonnage.catalog.hardware import Accelerator
from tonnage.sizing.continuous_batching import ContinuousBatching

LARGE_GIB: Final = 70.0

# vLLM mixes prompts into decode steps. SGLang and TGI stop the decodes while prompts are read, and SGLang (as
# TensorRT-LLM) admits what the cache holds to the end. TensorRT-LLM reads prompts whole beside the decodes.
_PROMPTS_FIRST: Final = ("sglang", "tgi", "text-generation-inference", "lightllm")
_WHOLE: Final = ("trtllm", "trt-llm", "tensorrt")
_RESERVING: Final = (*_WHOLE, *_PROMPTS_FIRST)
_UNBOUNDED: Final = (*_WHOLE, "sglang")  # most requests: 2,048 and more


def usual_policy(engine: str, device: Accelerator, *, kv_tokens: int) -> ContinuousBatching:
    """The scheduler of the engine called `engine` as it is set up by default, over a cache of `kv_tokens`.

    vLLM's online defaults: 8,192 tokens and 1,024 requests a step on devices of 70 GiB and more, but not of the A100
    generation; 2,048 and 256 elsewhere. TensorRT-LLM: 8,192 tokens and 2,048 requests.
    """
    name = engine.casefold()
    large = (device.memory_gib or 0.0) >= LARGE_GIB and device.dense_fp8_tflops is not None
    unbounded = any(word in name for word in _UNBOUNDED)
    return ContinuousBatching(
        kv_tokens=kv_tokens,
        max_requests=2048 if unbounded else 1024 if large else 256,
        step_tokens=8192 if unbounded or large else 2048,
        chunked=not any(word in name for word in _WHOLE),
        admission="reserve" if any(word in name for word in _RESERVING) else "recompute",
        prompts_first=any(word in name for word in _PROMPTS_FIRST),
    )
