"""How each decoder engine schedules, admits and keeps requests by default, by the engine's name."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, Literal

from tonnage.catalog.hardware import Accelerator
from tonnage.sizing.engines import Engine
from tonnage.values import dataclass
from tonnage.workload.engine_limits import TENSORRT_LLM_STEP_TOKENS

LARGE_GIB: Final = 70.0
Admission = Literal["recompute", "reserve", "fixed"]
UNLIMITED: Final = 1_000_000_000  # tokens in a step of an engine that reads a batch of prompts in one pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """The defaults of one engine.

    `admission`: `recompute` admits on what a request holds now, `reserve` on all it will hold, `fixed` runs one batch
    from its prompts to its last token. `chunked`: long prompts are read in pieces. `prompts_first`: a step reads
    prompts or decodes, never both. `applies_window`: a model's sliding window limits what is kept and looked at.
    `fp8_cache`: fp8 weights come with an fp8 cache. `accept_s`: what the front end works on a request before the
    scheduler sees it, beside the engine class's own `request_us`, shared out among all requests there are: of n that
    come at once none goes on before n times as long.
    """

    name: str
    admission: Admission
    chunked: bool = True
    prompts_first: bool = False
    applies_window: bool = False
    fp8_cache: bool = False
    accept_s: float = 0.0
    requests: int = 256
    step_tokens: int = 2048
    large_requests: int = 256  # the same two on devices of 70 GiB and more that are newer than the A100 generation
    large_step_tokens: int = 2048

    def front_s(self, engine: Engine) -> float:
        """Seconds that the front end works on a request before the scheduler sees it."""
        return engine.request_us * 1e-6 + self.accept_s

    def most_requests(self, device: Accelerator) -> int:
        """Requests in flight, if the cache holds them (vLLM's max_num_seqs)."""
        return self.large_requests if _large(device) else self.requests

    def most_step_tokens(self, device: Accelerator) -> int:
        """Tokens of one step (vLLM's max_num_batched_tokens)."""
        return self.large_step_tokens if _large(device) else self.step_tokens


# vLLM: EngineArgs.get_batch_defaults (online serving; 0.8 and later): 1,024 requests and 8,192 tokens where the device
# has 70 GiB and is not an A100, else 256 and 2,048; its cache manager frees what slides out of a window.
# TensorRT-LLM: BuildConfig max_batch_size 2,048 and max_num_tokens 8,192; GUARANTEED_NO_EVICT; keeps and looks at all
# tokens unless max_attention_window is set (KvCacheConfig); examples/quantization writes fp8 checkpoints with
# --kv_cache_dtype fp8. SGLang: chunked_prefill_size 8,192 on devices of 35 to 80 GiB, as many requests as the pool
# holds: of what each may still write it counts 0.7, falling with every step, and takes requests back when the pool is
# full (SGLANG_INIT_NEW_TOKEN_RATIO, `retract_decode`). TGI: max_batch_prefill_tokens 4,096, prompts in a batch of their
# own. LMDeploy: max_batch_size 256 on H100, 128 below, max_prefill_token_num 8,192. llama.cpp: a fixed number of slots,
# one cache cut between them.
# vLLM's server renders, tokenizes and hands over requests as tasks of one event loop that take turns: of 1,000, 500 and
# 100 that came at once the first tokens began after 13.1 to 14.0, 5.7 to 6.8 and 1.6 s (twice the mean time to the
# first token less its 99th percentile), whatever their length, 13.6 ms each (vLLM 0.11 on an H100,
# gpustack/gpustack@7ae332a:docs/performance-lab/qwen3-14b/h100.md; SGLang there: next to nothing).
ACCEPT_S: Final = 0.0136
_ALL: Final = (
    Scheduler(
        name="vllm", admission="recompute", applies_window=True, accept_s=ACCEPT_S, large_requests=1024,
        large_step_tokens=8192,
    ),
    Scheduler(
        name="tensorrt-llm", admission="reserve", chunked=False, fp8_cache=True, requests=2048,
        step_tokens=TENSORRT_LLM_STEP_TOKENS, large_requests=2048, large_step_tokens=TENSORRT_LLM_STEP_TOKENS,
    ),
    Scheduler(
        name="sglang", admission="recompute", prompts_first=True, requests=2048, step_tokens=8192,
        large_requests=2048, large_step_tokens=8192,
    ),
    Scheduler(name="tgi", admission="reserve", prompts_first=True, step_tokens=4096, large_step_tokens=4096),
    Scheduler(name="lmdeploy", admission="recompute", step_tokens=8192, large_step_tokens=8192),
    Scheduler(name="llama.cpp", admission="reserve", requests=256, step_tokens=2048),
    Scheduler(
        name="static", admission="fixed", chunked=False, requests=2048, step_tokens=UNLIMITED,
        large_requests=2048, large_step_tokens=UNLIMITED,
    ),
)  # fmt: skip
SCHEDULERS: Final = MappingProxyType({one.name: one for one in _ALL})
# Words of an engine's name, as rows and files write it; the first that is found.
_WORDS: Final = (
    ("trtllm", "tensorrt-llm"), ("trt-llm", "tensorrt-llm"), ("tensorrt-llm", "tensorrt-llm"),
    ("tensorrt_llm", "tensorrt-llm"), ("nim", "tensorrt-llm"), ("vllm", "vllm"), ("sglang", "sglang"),
    ("lightllm", "sglang"), ("text-generation-inference", "tgi"), ("tgi", "tgi"), ("lmdeploy", "lmdeploy"),
    ("turbomind", "lmdeploy"), ("mlc", "lmdeploy"), ("llama.cpp", "llama.cpp"), ("llamacpp", "llama.cpp"),
)  # fmt: skip


def scheduler_of(engine: str | None) -> Scheduler:
    """The scheduler of the engine called `engine` (None: vLLM's); libraries without one run a fixed batch.

    >>> scheduler_of("triton+trtllm").name, scheduler_of("fastertransformer").name
    ('tensorrt-llm', 'static')
    """
    folded = (engine or "vllm").casefold()
    return SCHEDULERS[next((name for word, name in _WORDS if word in folded), "static")]


def _large(device: Accelerator) -> bool:
    return (device.memory_gib or 0.0) >= LARGE_GIB and device.dense_fp8_tflops is not None
