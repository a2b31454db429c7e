"""The command line of llama.cpp's server."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from tonnage.errors import InputError
from tonnage.serving.engines.planned import GenerationService, refuse

CACHES: Final = MappingProxyType({"auto": "f16", "fp16": "f16", "fp8": "q8_0"})  # 8 bits: llama.cpp has no fp8 cache


def llama_cpp_arguments(service: GenerationService) -> Iterator[str]:
    """Arguments after `llama-server`, but for host and port. InputError: llama.cpp has no argument for that.

    The model is one GGUF file, whose number format is the file's own. The context is cut into as many slots as
    requests are in flight, so its size is theirs together.
    """
    if not service.model.endswith(".gguf"):
        raise InputError(f"llama.cpp serves GGUF files, not {service.model}",
                         hint="llama.cpp's convert_hf_to_gguf.py writes one from a Hugging Face folder")  # fmt: skip
    if service.expert_parallel > 1 or service.attention_groups > 1:
        raise refuse("llama.cpp", "experts or attention dealt out over devices", "use vllm, sglang or tensorrt-llm")
    yield from ("--model", service.model, "--alias", service.name)
    slots = service.most_requests or 1
    yield from ("--parallel", str(slots))
    if service.most_tokens is not None:
        yield from ("--ctx-size", str(service.most_tokens * slots))
    if service.step_tokens is not None:
        yield from ("--batch-size", str(service.step_tokens))
    cache = CACHES[service.kv_cache]
    yield from ("--cache-type-k", cache, "--cache-type-v", cache)
    if service.tensor_parallel > 1:
        yield from ("--split-mode", "row")
    if service.threads is not None:
        yield from ("--threads", str(service.threads), "--threads-batch", str(service.threads))
    if service.draft is not None:
        if service.draft.model is None:
            raise refuse("llama.cpp", "guesses from n-grams by a plan's number", "name a draft model")
        yield from ("--model-draft", service.draft.model, "--draft-max", str(service.draft.tokens))
    yield "--metrics"
    yield from service.extra
