"""What an LLM engine is set to, or was built for, beside its layout."""

from __future__ import annotations

from typing import Final

from tonnage.values import dataclass

TENSORRT_LLM_STEP_TOKENS: Final = 8192  # max_num_tokens of its BuildConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Requests in flight, tokens of a step, and the share of memory for the cache, as the engine itself means it. None:
    its default.

    `built`: a TensorRT engine, whose runtime holds sampling buffers for all the requests that it was built for.
    `chunked`: prompts are read in pieces of a step by an engine that does not do so by default.
    """

    requests: float | None = None
    step_tokens: float | None = None
    cache_fraction: float | None = None
    built: bool = False
    chunked: bool = False


NO_LIMITS: Final = EngineLimits()
