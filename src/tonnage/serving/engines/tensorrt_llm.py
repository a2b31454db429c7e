"""The command line of `trtllm-serve`, and the file of what it takes only there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import yaml

from tonnage.serving.engines.planned import GenerationService, refuse

OPTIONS_FILE: Final = "trtllm-options.yaml"


def tensorrt_llm_arguments(service: GenerationService) -> Iterator[str]:
    """Arguments after `trtllm-serve serve`, but for host, port and the file of `options_text`."""
    yield service.model
    yield from ("--tp_size", str(service.tensor_parallel))
    if service.expert_parallel > 1:
        yield from ("--ep_size", str(service.expert_parallel))
    if service.most_requests is not None:
        yield from ("--max_batch_size", str(service.most_requests))
    if service.step_tokens is not None:
        yield from ("--max_num_tokens", str(service.step_tokens))
    if service.most_tokens is not None:
        yield from ("--max_seq_len", str(service.most_tokens))
    if service.memory_fraction is not None:
        yield from ("--kv_cache_free_gpu_memory_fraction", f"{service.memory_fraction:g}")
    yield from service.extra


def options_text(service: GenerationService) -> str:
    """The YAML file of LLM API options: number formats, prompts in pieces, attention over groups, block
    reuse, a draft model.

    InputError for what TensorRT-LLM has no argument for: it does not quantise when it loads, and its groups of
    attention are all devices or one (`enable_attention_dp`).
    """
    if service.weights not in ("fp16", "bf16") and not service.quantized:
        raise refuse("tensorrt-llm", f"{service.weights} weights of a 16-bit checkpoint",
                     "quantise it first (NVIDIA Model Optimizer) and name the result")  # fmt: skip
    if service.attention_groups not in (1, service.tensor_parallel):
        groups = f"{service.attention_groups} groups of attention over {service.tensor_parallel} GPUs"
        raise refuse("tensorrt-llm", groups, f"attention_data_parallel: 1 or {service.tensor_parallel}")
    cache: dict[str, Any] = {"dtype": "fp8" if service.kv_cache == "fp8" else "auto"}
    if service.prefix_cache is not None:
        cache["enable_block_reuse"] = service.prefix_cache
    options: dict[str, Any] = {"kv_cache_config": cache}
    if not service.quantized:
        options["dtype"] = {"fp16": "float16", "bf16": "bfloat16"}[service.weights]
    if service.chunked:
        options["enable_chunked_prefill"] = True
    if service.attention_groups > 1:
        options["enable_attention_dp"] = True
    if service.draft is not None:
        options["speculative_config"] = _draft(service)
    return yaml.safe_dump(options, sort_keys=True)


def _draft(service: GenerationService) -> dict[str, Any]:
    draft = service.draft
    if draft is None or draft.model is None:
        guesses = draft.tokens if draft else 0
        return {"decoding_type": "NGram", "max_draft_len": guesses, "max_matching_ngram_size": 4}
    return {
        "decoding_type": "Draft_Target",
        "max_draft_len": draft.tokens,
        "speculative_model": draft.model,
    }
