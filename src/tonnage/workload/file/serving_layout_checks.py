"""Serving layouts and limits that cannot be: degrees over GPUs or that do not divide, what an engine or a job has no
use for, limits against prompts.
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.values import dataclass
from tonnage.workload.engine_limits import TENSORRT_LLM_STEP_TOKENS
from tonnage.workload.expert_layouts import EXPERT_RULES, POOLED_ENGINES, Degrees, allowed
from tonnage.workload.file.job_fields import EngineLimitFields, RequestFields
from tonnage.workload.file.layout_checks import LayoutFault, find_head_faults
from tonnage.workload.file.layout_fields import ServingLayoutFields
from tonnage.workload.file.length_fields import LengthFields
from tonnage.workload.file.problems import Problem
from tonnage.workload.file.yaml_lines import KeyPath
from tonnage.workload.jobs import GENERATING_ENGINES, SHARING_ENGINES
from tonnage.workload.shapes import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutContext:
    """What of the job a layout is judged by. `shape` None: not known yet."""

    shape: ModelShape | None
    engine: str | None
    max_gpus: int | None
    service: bool  # requests come at a rate, rather than all at once
    latency: bool  # a whole answer's latency is promised

    @property
    def served_by(self) -> str:
        return self.engine or "vllm"


def find_serving_faults(layout: ServingLayoutFields, asked: LayoutContext) -> Iterator[LayoutFault]:
    """Everything about a serving layout that no machine can run."""
    tensor, groups = layout.tensor_parallel or 1, layout.attention_data_parallel or 1
    copies = (layout.prefill_replicas or 0) + (layout.decode_replicas or 0)
    needed = tensor * max(copies, 1)
    if asked.max_gpus is not None and needed > asked.max_gpus:
        name = "tensor_parallel" if tensor > asked.max_gpus else "decode_replicas"
        yield LayoutFault(
            name,
            f"the layout takes {needed} GPUs, max_gpus is {asked.max_gpus}",
            "lower it, or raise constraints.max_gpus",
        )
    if layout.batch is not None and layout.concurrency is not None:
        yield LayoutFault(
            "concurrency",
            f"found {layout.concurrency} beside batch {layout.batch}: a fixed batch runs to its "
            "last token, nothing joins it",
            "keep one of the two",
        )
    if asked.shape is None:
        return
    if asked.shape.causal:
        yield from find_head_faults(tensor // groups if tensor % groups == 0 else tensor, asked.shape)
    else:
        yield from find_head_faults(tensor, asked.shape)
        if layout.concurrency is not None:
            fault = f"{asked.shape.name} answers in one pass, in batches: nothing is in flight beside them"
            yield LayoutFault("concurrency", fault, f"batch: {layout.concurrency}")
    yield from _expert_faults(layout, asked, asked.shape)
    yield from _pool_faults(layout, asked, asked.shape)


def find_limit_problems(section: str, requests: RequestFields, layout: ServingLayoutFields) -> Iterator[Problem]:
    """Limits that the engine has no setting for, or that it or the layout contradicts."""
    limits, engine = requests.engine_limits, requests.engine or "vllm"
    if engine == "tensorrt-llm" and layout.batch is None:
        yield from _whole_prompt_problems(section, requests)
    if limits is None:
        return
    path = (section, "engine_limits")
    if engine not in GENERATING_ENGINES:
        yield Problem(
            path, f"{engine} runs fixed batches and has no such limits", "remove the key; say `batch:` in `layout`"
        )
        return
    yield from _layout_problems(path, limits, layout)
    yield from _setting_problems(path, limits, engine)


def _expert_faults(layout: ServingLayoutFields, asked: LayoutContext, shape: ModelShape) -> Iterator[LayoutFault]:
    rule = EXPERT_RULES.get(asked.served_by)
    degrees: tuple[tuple[str, int | None, Degrees | None], ...] = (
        ("expert_parallel", layout.expert_parallel, None if rule is None else rule.experts),
        ("attention_data_parallel", layout.attention_data_parallel, None if rule is None else rule.attention),
    )
    for name, degree, of in degrees:
        if degree in (None, 1):
            continue
        if not shape.experts:
            yield LayoutFault(name, f"{shape.name} has no experts", "leave the key out")
        elif of is None or layout.batch is not None:
            runs = asked.served_by if layout.batch is None else "a fixed batch"
            yield LayoutFault(name, f"found {degree}, which {runs} does not run", f"engine: {', '.join(EXPERT_RULES)}")
        elif layout.tensor_parallel is not None and not allowed(degree, layout.tensor_parallel, of):
            takes = f"{layout.tensor_parallel} (all of them)" if of == "all" else "a divisor of it"
            fault = f"found {degree} of tensor_parallel {layout.tensor_parallel}: {asked.served_by} takes 1 or {takes}"
            yield LayoutFault(name, fault, f"tensor_parallel: {degree}, or {name}: 1")
        elif name == "expert_parallel" and shape.experts % degree:
            yield LayoutFault(
                name,
                f"found {degree}, which does not divide the {shape.experts} experts of {shape.name}",
                "use a divisor",
            )


def _pool_faults(layout: ServingLayoutFields, asked: LayoutContext, shape: ModelShape) -> Iterator[LayoutFault]:
    prefill, decode = layout.prefill_replicas, layout.decode_replicas
    if prefill is None and decode is None:
        return
    name = "prefill_replicas" if prefill is not None else "decode_replicas"
    if prefill is None or decode is None:
        missing = "decode_replicas" if decode is None else "prefill_replicas"
        yield LayoutFault(name, f"needs {missing} beside it", f"{missing}: 1, or more")
    elif not asked.service:
        yield LayoutFault(name, "prompts and answers of a batch are not kept apart: nothing waits for a first token",
                    "use replicas")  # fmt: skip
    elif shape.architecture != "decoder":
        yield LayoutFault(name, f"{shape.name} is not a decoder that hands keys and values on", "use replicas")
    elif asked.served_by not in POOLED_ENGINES:
        yield LayoutFault(name, f"{asked.served_by} does not hand keys and values from one server to another",
                    f"engine: {', '.join(POOLED_ENGINES)}")  # fmt: skip
    elif layout.replicas is not None or layout.batch is not None:
        other = "replicas" if layout.replicas is not None else "batch"
        yield LayoutFault(
            other, "goes with copies that both read and write, not with prefill_replicas", "keep one of the two"
        )
    elif asked.latency:
        yield LayoutFault(name, "two pools are sized by p95_ttft and p95_tpot, one each; p95_latency spans both",
                    "promise p95_ttft and p95_tpot in place of p95_latency")  # fmt: skip


def _layout_problems(path: KeyPath, limits: EngineLimitFields, layout: ServingLayoutFields) -> Iterator[Problem]:
    if layout.batch is not None:
        fault = f"is of an engine that requests join and leave; `layout` has a fixed batch of {layout.batch}"
        yield Problem(path, fault, "remove one of the two, or say `concurrency:` in `layout`")
    elif layout.concurrency is not None and limits.requests is not None:
        most = limits.requests * (layout.attention_data_parallel or 1)
        if layout.concurrency > most:
            fault = (
                f"found {limits.requests}, but `layout` has {layout.concurrency} requests in flight (at most {most})"
            )
            yield Problem((*path, "requests"), fault, "raise it, or lower `concurrency`")


def _setting_problems(path: KeyPath, limits: EngineLimitFields, engine: str) -> Iterator[Problem]:
    requests, tokens = limits.requests, limits.step_tokens
    if engine == "vllm" and requests is not None and tokens is not None and tokens < requests:
        fault = f"found {tokens}, below `requests` ({requests}): vllm does not start so, each takes a token of a step"
        yield Problem((*path, "step_tokens"), fault, f"raise it to {requests} or more, or lower `requests`")
    if limits.cache_fraction is not None and engine not in SHARING_ENGINES:
        fault = f"found {limits.cache_fraction:g}, but {engine} chooses its cache itself"
        yield Problem((*path, "cache_fraction"), fault, f"use {', '.join(SHARING_ENGINES)}, or remove the key")
    if engine == "tensorrt-llm":
        return
    for name, stated, fault in (
        ("built", limits.built, f"{engine} builds no engine"),
        ("chunked", limits.chunked, f"{engine} reads prompts in pieces or not at all by settings of its own"),
    ):
        if stated:
            yield Problem((*path, name), fault, "remove the key, or use tensorrt-llm")


def _whole_prompt_problems(section: str, requests: RequestFields) -> Iterator[Problem]:
    """Prompts longer than a step of an engine that reads them whole, which it refuses (NVIDIA/TensorRT-LLM issue 9277:
    «sum of prompt length ... should not exceed max_num_tokens»)."""
    limits = requests.engine_limits
    if requests.input_tokens is None or (limits is not None and limits.chunked):
        return
    stated = None if limits is None else limits.step_tokens
    most, longest = stated or TENSORRT_LLM_STEP_TOKENS, _longest(requests.input_tokens)
    if longest is not None and longest > most:
        fault = f"found {longest} (the longest prompt), above the {most} tokens of a step that tensorrt-llm reads whole"
        hint = f"`engine_limits: {{chunked: true}}`, or `step_tokens` of {longest} or more"
        yield Problem((section, "input_tokens"), fault, hint)


def _longest(lengths: LengthFields) -> int | None:
    if lengths.histogram is not None:
        return max(entry.tokens for entry in lengths.histogram)
    return lengths.max
