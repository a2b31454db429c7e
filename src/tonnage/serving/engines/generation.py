"""One replica of a model that writes tokens, as a plan chose it: the arguments of its engine."""

from __future__ import annotations

from dataclasses import field

from tonnage.errors import InputError
from tonnage.values import dataclass
from tonnage.workload.jobs import CacheFormat, WeightFormat


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
