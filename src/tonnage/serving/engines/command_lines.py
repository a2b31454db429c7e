"""The command line of each engine out of a planned replica: vLLM, SGLang, TensorRT-LLM (with the file of what
`trtllm-serve` takes only there), llama.cpp's server, and Text Embeddings Inference with its images, one for each GPU
architecture.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, Final

import yaml

from tonnage.errors import InputError
from tonnage.serving.engines.generation import Draft, GenerationService, quantise_when_loaded, refuse

DTYPES: Final = MappingProxyType({"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"})
CACHES: Final = MappingProxyType({"auto": "f16", "fp16": "f16", "fp8": "q8_0"})  # 8 bits: llama.cpp has no fp8 cache
# github.com/huggingface/text-embeddings-inference v1.9.3, README.md, «Docker Images»
IMAGES: Final = MappingProxyType(
    {"cpu": "cpu-1.9", "turing": "turing-1.9", "ampere": "1.9", "ampere-8.6": "86-1.9", "ada": "89-1.9",
     "hopper": "hopper-1.9", "blackwell": "100-1.9", "blackwell-12": "120-1.9"}
)  # fmt: skip
OPTIONS_FILE: Final = "trtllm-options.yaml"


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
        yield from ("--speculative-config", json.dumps(_vllm_draft(service.draft)))
    yield from service.extra


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


def tei_arguments(service: GenerationService) -> Iterator[str]:
    """Arguments after `text-embeddings-router`, but for host and port. InputError: it has no argument for that.

    One process serves one device, in fp16 (fp32 on a CPU); `most_requests` is the bound of what waits and is answered.
    """
    if service.tensor_parallel > 1:
        raise refuse("tei", "one model over several devices", "start one replica on each device")
    formats = {"fp32": "float32", "fp16": "float16"}
    if service.weights not in formats:
        raise refuse("tei", f"{service.weights} weights", "weights: fp16 or fp32")
    if service.kv_cache != "auto" or service.draft is not None:
        raise InputError("tei serves encoders: there is no KV cache and no draft model", hint="leave them out")
    yield from ("--model-id", service.model, "--served-model-name", service.name, "--dtype", formats[service.weights])
    if service.step_tokens is not None:
        yield from ("--max-batch-tokens", str(service.step_tokens))
    if service.most_requests is not None:
        yield from ("--max-concurrent-requests", str(service.most_requests))
    yield from service.extra


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
    yield from _sglang_draft(service)
    yield "--enable-metrics"
    yield from service.extra


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
        options["speculative_config"] = _tensorrt_llm_draft(service)
    return yaml.safe_dump(options, sort_keys=True)


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


def _vllm_draft(draft: Draft) -> dict[str, str | int]:
    if draft.model is not None:
        return {"model": draft.model, "num_speculative_tokens": draft.tokens}
    return {"method": "ngram", "num_speculative_tokens": draft.tokens, "prompt_lookup_max": 4}


def _sglang_draft(service: GenerationService) -> Iterator[str]:
    draft = service.draft
    if draft is None:
        return
    if draft.model is None:
        yield from ("--speculative-algorithm", "NGRAM")
    else:
        yield from ("--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", draft.model)
        yield from ("--speculative-num-steps", str(draft.tokens), "--speculative-eagle-topk", "1")
    yield from ("--speculative-num-draft-tokens", str(draft.tokens + 1 if draft.model else draft.tokens))


def _tensorrt_llm_draft(service: GenerationService) -> dict[str, Any]:
    draft = service.draft
    if draft is None or draft.model is None:
        guesses = draft.tokens if draft else 0
        return {"decoding_type": "NGram", "max_draft_len": guesses, "max_matching_ngram_size": 4}
    return {
        "decoding_type": "Draft_Target",
        "max_draft_len": draft.tokens,
        "speculative_model": draft.model,
    }
