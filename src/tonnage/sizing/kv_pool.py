"""Memory that an engine keeps for keys and values, by the engine's own rule, and the requests that go into it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.inference_memory import held_weights_bytes, kv_bytes_per_token, token_bytes
from tonnage.sizing.schedulers import UNLIMITED, Scheduler
from tonnage.sizing.served_formats import ServedFormat
from tonnage.units import from_gib
from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape

# vLLM's profiling run samples for max_num_seqs at once: logits in fp32, sorted copies, indices, probabilities, masks.
# 38.6 bytes a logit: peak activation 4.76 GiB of Llama-3.1-8B (128,256 tokens of vocabulary), 5.56 of Qwen3-0.6B
# (151,936), 7.38 of gpt-oss-20b (201,088), each at 1,024 requests on H100 (llm-d/llm-d-benchmark, config_explorer/
# empirical-vllm-memory-results.md): 38.8, 38.4 and 38.5.
SAMPLER_BYTES: Final = 38.6
LOGIT_BYTES: Final = 2 * 4.0  # fp32 logits and the decoder's copy of them
# What the runtime of a built engine holds on every rank for each logit of the requests that it was built for: fp32
# logits, the copy that penalties are applied to, and the workspace of top-p sampling (sorted values and tokens, tokens
# before they are sorted, and the spare copies of both that the sort takes): NVIDIA/TensorRT-LLM, cpp/tensorrt_llm/
# layers/penaltyLayer.cpp, samplingLayer.cpp, kernels/samplingTopPKernels.cu (`getTopPWorkspaceSizes`).
BUILT_LOGIT_BYTES: Final = 4.0 + 4.0 + (4.0 + 4.0 + 4.0 + 8.0)
CONTEXT_GIB: Final = 0.6  # CUDA context: 79.18 GiB of which 78.57 are free before an engine starts (same source)
COMMUNICATION_GIB: Final = 0.45  # NCCL and its buffers: 0.55 GiB outside PyTorch at tensor parallel 2, 0.13 at 1
VLLM_SHARE: Final = 0.90  # gpu_memory_utilization
TRTLLM_SHARE: Final = 0.90  # KvCacheConfig.free_gpu_memory_fraction
LMDEPLOY_SHARE: Final = 0.80  # cache_max_entry_count
TGI_SHARE: Final = 0.95  # TGI_WIGGLE_ROOM
# SGLang leaves 512 MiB, 1.5 MiB a token of chunked_prefill_size and 2 MiB a captured batch out of mem_fraction_static
# (ServerArgs, `reserved_mem`); it captures batches of up to 256 on devices of 35 to 80 GiB.
SGLANG_MIB: Final = (512.0, 1.5, 2.0 * 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """Bytes per device of one replica: weights, a full step, what is not the framework's, and the cache's pool."""

    weights_bytes: Array
    step_bytes: Array
    outside_bytes: Array
    pool_bytes: Array  # below 0: weights do not fit

    @property
    def held_bytes(self) -> Array:
        """What is there beside the cache."""
        return self.weights_bytes + self.step_bytes + self.outside_bytes

    def beyond_bytes(self, used_bytes: Array, factor: float) -> Array:
        """How much more than `used_bytes` (all that is there, weights too) is in use where all but the weights takes
        `factor` times as much. Weights are counted tensor by tensor: they are known."""
        return (used_bytes - self.weights_bytes) * (factor - 1.0)


def engine_memory(
    scheduler: Scheduler,
    shape: ModelShape,
    served: ServedFormat,
    devices: Devices,
    *,
    tensor_parallel: Array,
    requests: Num,
    step_tokens: Num,
    beside_bytes: Num = 0.0,
    workspace_bytes: float = 0.0,
    data_ranks: Num = 1.0,
    cache_fraction: Num = 0.0,
    built: Num = 0.0,
) -> EngineMemory:
    """What an engine holds; `requests` and `step_tokens` are what a full step holds; `beside_bytes`: weights
    of another model on each device; `workspace_bytes`: what the engine keeps for itself. `data_ranks` of
    `tensor_parallel` devices each hold all but the experts once, and the experts together; requests and tokens are
    those of one of them.

    vLLM: 0.90 of all memory less weights, the peak of a full step (its activations, or the sampler's logits) and what
    is not PyTorch's. TensorRT-LLM: 0.90 of what weights, activations and logits leave; TGI: 0.95, LMDeploy: 0.80 of it.
    SGLang: all less weights and a reserve for activations and graphs.
    """
    ranks = np.asarray(tensor_parallel, dtype=np.float64)
    memory = devices.memory_bytes
    weights = np.asarray(held_weights_bytes(shape, served, ranks, data_ranks) + beside_bytes)
    outside = np.where(ranks * data_ranks > 1, from_gib(COMMUNICATION_GIB), 0.0)
    step = step_bytes(shape, served, ranks, step_tokens)
    logits = np.asarray(requests) * float(shape.vocab or 0)
    if scheduler.name == "vllm":
        step = np.maximum(step, logits * SAMPLER_BYTES)
        pool = memory * np.where(np.asarray(cache_fraction) > 0, cache_fraction, VLLM_SHARE) - weights - step - outside
    elif scheduler.name == "sglang":
        fixed, per_token, graphs = SGLANG_MIB
        step = np.asarray((fixed + per_token * np.asarray(step_tokens) + graphs) * 2.0**20)
        pool = memory - weights - step - outside
    else:
        outside = outside + from_gib(CONTEXT_GIB) + workspace_bytes
        shares = {"tensorrt-llm": TRTLLM_SHARE, "tgi": TGI_SHARE, "lmdeploy": LMDEPLOY_SHARE, "static": 1.0}
        sampled = np.where(np.asarray(built) > 0, BUILT_LOGIT_BYTES, LOGIT_BYTES / ranks)
        step = step if scheduler.admission == "fixed" else step + logits * sampled
        share = np.where(np.asarray(cache_fraction) > 0, cache_fraction, shares.get(scheduler.name, TRTLLM_SHARE))
        pool = (memory - outside - weights - step) * share
    return EngineMemory(weights_bytes=weights, step_bytes=np.broadcast_to(step, weights.shape), outside_bytes=outside,
                        pool_bytes=np.asarray(pool))  # fmt: skip


def step_bytes(shape: ModelShape, served: ServedFormat, tensor_parallel: Array, step_tokens: Num) -> Array:
    """Activations of one step of `step_tokens`; 0 where a batch sets them: they are counted with its requests."""
    tokens = np.asarray(step_tokens, dtype=np.float64)
    tokens = np.where(tokens >= UNLIMITED, 0.0, tokens)
    return np.asarray(tokens * token_bytes(shape, served, tensor_parallel))


def cache_bytes_per_token(shape: ModelShape, served: ServedFormat, tensor_parallel: Num) -> Num:
    """Bytes a token of cache takes on each device, in the cache's own number format."""
    return kv_bytes_per_token(shape, tensor_parallel, element_bytes=served.kv_bytes)


def windowed(shape: ModelShape, scheduler: Scheduler) -> ModelShape:
    """The model as this engine runs it: without its window where the engine looks at all tokens."""
    return shape if scheduler.applies_window or not shape.sliding_window else replace(shape, sliding_window=0)


def with_cache(served: ServedFormat, kv_cache: str, scheduler: Scheduler) -> ServedFormat:
    """The format with its cache as asked; `auto`: what the engine does by default for these weights."""
    if kv_cache == "fp8" or (kv_cache == "auto" and served.compute == "fp8" and scheduler.fp8_cache):
        return replace(served, kv_bytes=1.0)
    return replace(served, kv_bytes=2.0) if kv_cache == "fp16" else served
