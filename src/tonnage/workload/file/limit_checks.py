"""Contradictions between `engine_limits`, the engine, the layout and the prompts."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.workload.engine_limits import TENSORRT_LLM_STEP_TOKENS
from tonnage.workload.file.job_fields import EngineLimitFields, RequestFields
from tonnage.workload.file.layout_fields import ServingLayoutFields
from tonnage.workload.file.length_fields import LengthFields
from tonnage.workload.file.problems import Problem
from tonnage.workload.file.yaml_lines import KeyPath
from tonnage.workload.jobs import GENERATING_ENGINES, SHARING_ENGINES


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
