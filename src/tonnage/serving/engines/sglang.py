"""SGLang's command line."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.serving.engines.planned import GenerationService, quantise_when_loaded
from tonnage.serving.engines.vllm import DTYPES


def sglang_arguments(service: GenerationService) -> Iterator[str]:
    """Arguments after `python -m sglang.launch_server`, but for host and port. InputError: it has no argument for that.

    `--attn-dp-size` is the spelling since 0.5: `--dp-size N --enable-dp-attention` is deprecated there.
    """
    yield from ("--model-path", service.model, "--served-model-name", service.name)
    if service.weights in DTYPES:
        yield from ("--dtype", DTYPES[service.weights])
    if quantise_when_loaded("sglang", service):
        yield from ("--quantization", "fp8")
    yield from ("--kv-cache-dtype", "fp8_e4m3" if service.kv_cache == "fp8" else "auto")
    yield from ("--tp-size", str(service.tensor_parallel))
    if service.expert_parallel > 1:
        yield from ("--ep-size", str(service.expert_parallel))
    if service.attention_groups > 1:
        yield from ("--attn-dp-size", str(service.attention_groups))
    if service.most_requests is not None:
        yield from ("--max-running-requests", str(service.most_requests * service.attention_groups))  # of all groups
    if service.step_tokens is not None:
        yield from ("--chunked-prefill-size", str(service.step_tokens))
    if service.most_tokens is not None:
        yield from ("--context-length", str(service.most_tokens))
    if service.memory_fraction is not None:
        yield from ("--mem-fraction-static", f"{service.memory_fraction:g}")
    if service.prefix_cache is False:  # the radix cache is on unless it is switched off
        yield "--disable-radix-cache"
    yield from _draft(service)
    yield "--enable-metrics"
    yield from service.extra


def _draft(service: GenerationService) -> Iterator[str]:
    draft = service.draft
    if draft is None:
        return
    if draft.model is None:
        yield from ("--speculative-algorithm", "NGRAM")
    else:
        yield from ("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", draft.model)
        yield from ("--speculative-num-steps", str(draft.tokens), "--speculative-eagle-topk", "1")
    yield from ("--speculative-num-draft-tokens", str(draft.tokens + 1 if draft.model else draft.tokens))
