"""From a planned option to what each of its replicas serves."""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import Final, cast

from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.planning.plan import MachineOption
from tonnage.serving.engines.generation import Draft, GenerationService
from tonnage.sizing.kv_pool import LMDEPLOY_SHARE, TGI_SHARE, TRTLLM_SHARE, VLLM_SHARE
from tonnage.sizing.schedulers import scheduler_of
from tonnage.workload.jobs import BatchJob, CacheFormat, ServeJob, WeightFormat

# Shares of memory that plans count with, passed to the engine too: releases change their defaults (vLLM: 0.90, 0.92
# since 0.33). SGLang chooses its own from the same reserve that plans subtract.
SHARES: Final = MappingProxyType(
    {"vllm": VLLM_SHARE, "tensorrt-llm": TRTLLM_SHARE, "tgi": TGI_SHARE, "lmdeploy": LMDEPLOY_SHARE}
)


def planned_service(
    job: ServeJob | BatchJob,
    option: MachineOption,
    catalog: Catalog,
    *,
    model: str,
    name: str,
    draft_model: str | None = None,
    quantized: bool = False,
    extra: tuple[str, ...] = (),
) -> GenerationService:
    """One replica of `option` as arguments of its engine: degrees, number formats, requests in flight, tokens of a step
    and of a request, share of memory, all as planned.

    `model`: a folder or a name on a hub, whose weights are `job.model`'s. Raises InputError for an option without a
    decoder's layout (prompts read apart from answers, a fixed batch), an engine that is built first, or a draft model
    without a name.
    """
    layout = dict(option.run.layout_fields)
    if "decode_replicas" in layout:
        raise InputError("prompts and answers on replicas of their own are planned, not yet started",
                         hint="leave out prefill_replicas and decode_replicas")  # fmt: skip
    if job.requests.output_tokens is None or job.batch is not None or "kv_cache" not in layout:
        raise InputError(f"{job.model.name} is not served as one that writes tokens",
                         hint="an encoder: `tonnage serve MODEL`; batch: is a fixed batch, leave it out")  # fmt: skip
    if job.engine_limits.built:
        raise InputError("a built TensorRT engine is planned, not yet started: trtllm-serve runs a checkpoint as it is",
                         hint="leave out engine_limits.built, and plan what trtllm-serve runs")  # fmt: skip
    scheduler, groups = scheduler_of(job.engine), int(layout.get("attention_data_parallel", 1))
    device = catalog.accelerator(option.gpu) if option.gpu else None
    limits = job.engine_limits
    usual_tokens = scheduler.most_step_tokens(device) if device is not None else scheduler.step_tokens
    return GenerationService(
        model=model, name=name, weights=cast(WeightFormat, layout["weights"]), quantized=quantized,
        kv_cache=cast(CacheFormat, layout["kv_cache"]), tensor_parallel=int(layout["tensor_parallel"]),
        expert_parallel=int(layout.get("expert_parallel", 1)), attention_groups=groups,
        most_requests=math.ceil(int(layout["concurrency"]) / groups),
        step_tokens=round(limits.step_tokens or usual_tokens), chunked=limits.chunked,
        most_tokens=job.requests.input_tokens.maximum + job.requests.output_tokens.maximum,
        memory_fraction=limits.cache_fraction or SHARES.get(scheduler.name),
        prefix_cache=True if job.prefix_cache_fraction else None,
        draft=_draft(job, draft_model), extra=extra,
    )  # fmt: skip


def shared_memory(engine: str, service: GenerationService, replicas: int) -> GenerationService:
    """The service where so many replicas share its devices: each gets its part of the memory.

    InputError for engines whose argument is no share of the whole memory (TensorRT-LLM: of what weights leave) or
    that choose it themselves (SGLang), unless `extra` says it.
    """
    if replicas == 1 or engine in ("llama.cpp", "tei"):  # these allocate what they need
        return service
    if service.memory_fraction is not None and engine == "vllm":
        return replace(service, memory_fraction=service.memory_fraction / replicas)
    own = {"sglang": "--mem-fraction-static", "tensorrt-llm": "--kv_cache_free_gpu_memory_fraction"}.get(engine)
    if own is not None and own not in service.extra:
        raise InputError(f"{engine} takes no share of a device that {replicas} replicas have",
                         hint=f"say it yourself: --engine-arg {own.removeprefix('--')}=PART")  # fmt: skip
    return service


def _draft(job: ServeJob | BatchJob, model: str | None) -> Draft | None:
    guesses = job.speculative
    if guesses is None:
        return None
    if guesses.draft is not None and model is None:
        raise InputError(f"{guesses.draft.name} guesses for {job.model.name}: where are its weights?",
                         hint="name their folder or hub name: --draft-model")  # fmt: skip
    return Draft(tokens=guesses.tokens, model=model if guesses.draft is not None else None)
