"""vLLM's command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from tonnage.serving.engines.planned import Draft, GenerationService, quantise_when_loaded

DTYPES: Final = MappingProxyType({"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"})


def vllm_arguments(service: GenerationService) -> Iterator[str]:
    """Arguments after `vllm serve`, but for host and port. InputError: vLLM has no argument for that.

    Groups of attention are data-parallel ranks, each of the rest of the devices: EP_SIZE = TP_SIZE x DP_SIZE
    (docs.vllm.ai, expert parallel deployment).
    """
    yield service.model
    yield from ("--served-model-name", service.name)
    yield from _number_formats(service)
    yield from _devices(service)
    if service.most_requests is not None:
        yield from ("--max-num-seqs", str(service.most_requests))
    if service.step_tokens is not None:
        yield from ("--max-num-batched-tokens", str(service.step_tokens))
    if service.most_tokens is not None:
        yield from ("--max-model-len", str(service.most_tokens))
    if service.memory_fraction is not None:
        yield from ("--gpu-memory-utilization", f"{service.memory_fraction:g}")
    if service.prefix_cache is not None:
        yield "--enable-prefix-caching" if service.prefix_cache else "--no-enable-prefix-caching"
    if service.draft is not None:
        yield from ("--speculative-config", json.dumps(_draft(service.draft)))
    yield from service.extra


def _number_formats(service: GenerationService) -> Iterator[str]:
    if service.weights in DTYPES:
        yield from ("--dtype", DTYPES[service.weights])
    if quantise_when_loaded("vllm", service):
        yield from ("--quantization", "fp8")
    yield from ("--kv-cache-dtype", "fp8" if service.kv_cache == "fp8" else "auto")


def _devices(service: GenerationService) -> Iterator[str]:
    groups = service.attention_groups
    yield from ("--tensor-parallel-size", str(service.tensor_parallel // groups))
    if groups > 1:
        yield from ("--data-parallel-size", str(groups))
    if service.expert_parallel > 1:
        yield "--enable-expert-parallel"


def _draft(draft: Draft) -> dict[str, str | int]:
    if draft.model is not None:
        return {"model": draft.model, "num_speculative_tokens": draft.tokens}
    return {"method": "ngram", "num_speculative_tokens": draft.tokens, "prompt_lookup_max": 4}
