"""From a planned option to what each of its replicas serves; of a model that writes tokens, the arguments of its
engine.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from types import MappingProxyType
from typing import Final, cast

from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.planning.plan import MachineOption
from tonnage.sizing.kv_pool import LMDEPLOY_SHARE, TGI_SHARE, TRTLLM_SHARE, VLLM_SHARE
from tonnage.sizing.schedulers import scheduler_of
from tonnage.values import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Speculative decoding: `tokens` guesses a step, by a small `model` or (None) from the prompt's own n-grams."""

    tokens: int
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationService:
    """What a replica serves and how its devices are shared.

    `tensor_parallel` devices hold one copy; of them `expert_parallel` hold whole experts, and `attention_groups`
    attend to requests of their own; each group has at most `most_requests` in flight. A step computes `step_tokens`,
    one request has at most `most_tokens`, prompt and answer together. `memory_fraction`: of the device's memory, in the
    engine's own sense (vLLM and SGLang: of all; TensorRT-LLM: of what weights leave). `quantized`: the checkpoint is
    stored in the number format of `weights` already. `chunked`: prompts are read in pieces of a step by an engine that
    does not do so by default. None: the engine's own default.
    """

    model: str
    name: str
    weights: WeightFormat = "fp16"
    quantized: bool = False
    kv_cache: CacheFormat = "auto"
    tensor_parallel: int = 1
    expert_parallel: int = 1
    attention_groups: int = 1
    most_requests: int | None = None
    step_tokens: int | None = None
    chunked: bool = False
    most_tokens: int | None = None
    memory_fraction: float | None = None
    prefix_cache: bool | None = None
    draft: Draft | None = None
    threads: int | None = None  # of the host's cores, where the model runs on them
    extra: tuple[str, ...] = field(default=())  # the user's own arguments, as the engine takes them


def quantise_when_loaded(engine: str, service: GenerationService) -> bool:
    """Whether the engine is to make the weights 8 bits when it loads them. Where they are stored in few bits, it reads
    the method from the checkpoint's `config.json`. InputError for formats that none of them makes of 16 bits."""
    if service.weights in ("fp32", "fp16", "bf16") or service.quantized:
        return False
    if service.weights == "fp8":
        return True
    raise refuse(engine, f"{service.weights} weights of a 16-bit checkpoint",
                 "name a checkpoint quantised to that format, or weights: fp8 (quantised when loaded)")  # fmt: skip


def refuse(engine: str, what: str, hint: str) -> InputError:
    """The error for a setting that an engine has no argument for."""
    return InputError(f"{engine} does not serve {what}", hint=hint)


def _draft(job: ServeJob | BatchJob, model: str | None) -> Draft | None:
    guesses = job.speculative
    if guesses is None:
        return None
    if guesses.draft is not None and model is None:
        raise InputError(f"{guesses.draft.name} guesses for {job.model.name}: where are its weights?",
                         hint="name their folder or hub name: --draft-model")  # fmt: skip
    return Draft(tokens=guesses.tokens, model=model if guesses.draft is not None else None)
