"""How engines spread mixtures of experts, and which of them read prompts and write answers on different machines."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from tonnage.values import dataclass
from tonnage.workload.jobs import ServeJob

Degrees = Literal["any", "all"]


@dataclass(frozen=True, slots=True)
class ExpertRule:
    """Degrees an engine takes beside 1, of the devices that share a copy: `any` divisor of them, or `all` of them."""

    experts: Degrees  # devices that hold whole experts
    attention: Degrees  # groups that attend to requests of their own
    source: str


# TGI, LMDeploy's TurboMind and llama.cpp deal out no experts by an option of theirs.
EXPERT_RULES: Final[Mapping[str, ExpertRule]] = MappingProxyType(
    {
        "vllm": ExpertRule(
            "all", "any", "docs.vllm.ai, expert parallel deployment: EP_SIZE = TP_SIZE x DP_SIZE"
        ),
        "sglang": ExpertRule(
            "any", "any", "docs.sglang.io, expert parallelism: ep_size <= tp_size; DPA guide: tp % dp = 0"
        ),
        "tensorrt-llm": ExpertRule(
            "any", "all", "TensorRT-LLM LlmArgs: moe_tensor x moe_expert = tensor_parallel_size; enable_attention_dp"
        ),
    }
)  # fmt: skip
# Hand keys and values from one server to another: vLLM's KV connectors (disaggregated prefilling), SGLang's
# --disaggregation-mode, TensorRT-LLM's disaggregated serving; all three under NVIDIA Dynamo.
POOLED_ENGINES: Final = ("vllm", "sglang", "tensorrt-llm")


def allowed(degree: int, devices: int, rule: Degrees) -> bool:
    """Whether `degree` of `devices` goes.

    >>> allowed(4, 8, "any"), allowed(4, 8, "all"), allowed(3, 8, "any")
    (True, False, False)
    """
    return degree in (1, devices) or (rule == "any" and devices % degree == 0)


def wants_pools(job: ServeJob) -> bool:
    """Whether two pools are tried: both of their promises are made and no other, on an engine that has them."""
    if job.prefill_replicas is not None:
        return job.prefill_replicas > 0
    both = job.p95_ttft_s is not None and job.p95_tpot_s is not None and job.p95_latency_s is None
    fixed = job.replicas is not None or job.batch is not None
    return both and not fixed and job.model.architecture == "decoder" and (job.engine or "vllm") in POOLED_ENGINES
