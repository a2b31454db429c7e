"""A planned option and what its replicas are told: the figures of the plan, none else."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import tonnage
from tonnage.errors import InputError
from tonnage.planning.plan import MachineOption
from tonnage.serving.engines.command_lines import options_text
from tonnage.serving.engines.generation import GenerationService
from tonnage.serving.engines.planned import planned_service
from tonnage.workload.jobs import ServeJob

FILE = """
kind: serve
model: llama-7b
serve:
  rate_per_s: 20
  input_tokens: {mean: 150, max: 384}
  output_tokens: {mean: 8, max: 16}
  p95_latency: 2s
  weights: fp16
MORE
constraints:
  gpus: A100-80GB
"""


def planned(
    folder: Path, more: str = "", extra_keys: str = "", **named: str
) -> tuple[GenerationService, MachineOption]:
    file = folder / "serve.tonnage.yaml"
    lines = "".join(f"  {line}\n" for line in more.splitlines())
    file.write_text(FILE.replace("MORE\n", lines) + extra_keys, encoding="utf-8")
    result = tonnage.plan(file)
    workload = tonnage.load_workload(file)
    best = result.best
    assert isinstance(best, MachineOption)
    assert isinstance(workload.job, ServeJob)
    return planned_service(workload.job, best, result.catalog, model="/models/7b", name="7b", **named), best


def test_a_replica_is_told_the_plans_layout(tmp_path: Path) -> None:
    """Degrees, requests in flight, lengths, formats and the share of memory are the option's."""
    service, option = planned(tmp_path, "kv_cache: fp8\nprefix_cache_fraction: 0.3")
    layout = dict(option.run.layout_fields)
    assert service.most_requests == layout["concurrency"]
    assert service.tensor_parallel == layout["tensor_parallel"]
    assert service.kv_cache == "fp8"
    assert service.most_tokens == 384 + 16
    assert service.prefix_cache is True
    assert service.memory_fraction == 0.9
    assert service.step_tokens == 2048  # vLLM on an A100


def test_an_engine_is_set_to_the_limits_of_the_file(tmp_path: Path) -> None:
    """Fewer requests in flight than the engine would take, its tokens a step and its share of memory go to the engine,
    and a larger share leaves more room for requests."""
    limits = "engine_limits: {requests: 12, step_tokens: 1024, cache_fraction: 0.8}"
    service, option = planned(tmp_path, limits)
    assert 1 <= int(dict(option.run.layout_fields)["concurrency"]) <= 12
    assert (service.step_tokens, service.memory_fraction) == (1024, 0.8)


def test_an_engine_reads_prompts_in_pieces_where_the_file_says_so(tmp_path: Path) -> None:
    """TensorRT-LLM reads them whole by default, and its server builds no engine."""
    service, _ = planned(tmp_path, "engine: tensorrt-llm\nengine_limits: {chunked: true, step_tokens: 256}")
    assert yaml.safe_load(options_text(service))["enable_chunked_prefill"] is True
    service, _ = planned(tmp_path, "engine: tensorrt-llm")
    assert "enable_chunked_prefill" not in options_text(service)
    with pytest.raises(InputError, match="built TensorRT engine") as refused:
        planned(tmp_path, "engine: tensorrt-llm\nengine_limits: {built: true}")
    assert "engine_limits.built" in str(refused.value.hint)


def test_a_draft_model_needs_weights(tmp_path: Path) -> None:
    """A plan names the draft's shape; where its weights lie, only the user knows."""
    guesses = "speculative: {tokens: 4, acceptance: 0.7, draft: gpt2}"
    with pytest.raises(InputError, match="where are its weights") as refused:
        planned(tmp_path, guesses)
    assert "--draft-model" in str(refused.value.hint)
    service, _ = planned(tmp_path, guesses, draft_model="/models/draft")
    assert service.draft is not None
    assert (service.draft.tokens, service.draft.model) == (4, "/models/draft")


def test_a_fixed_batch_is_no_service_of_an_engine(tmp_path: Path) -> None:
    """`batch:` runs one batch to its last token, which no engine here does."""
    with pytest.raises(InputError, match="not served as one that writes tokens"):
        planned(tmp_path, extra_keys="layout: {batch: 4}")
