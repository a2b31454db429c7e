"""Text Embeddings Inference: its command line, and its images, one for each GPU architecture."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from tonnage.errors import InputError
from tonnage.serving.engines.planned import GenerationService, refuse

# github.com/huggingface/text-embeddings-inference v1.9.3, README.md, «Docker Images»
IMAGES: Final = MappingProxyType(
    {"cpu": "cpu-1.9", "turing": "turing-1.9", "ampere": "1.9", "ampere-8.6": "86-1.9", "ada": "89-1.9",
     "hopper": "hopper-1.9", "blackwell": "100-1.9", "blackwell-12": "120-1.9"}
)  # fmt: skip


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
