"""Which models each engine's own list leaves out."""

from __future__ import annotations

import pytest

from tonnage.workload.engine_models import NOT_RUN, not_run
from tonnage.workload.jobs import GENERATING_ENGINES
from tonnage.workload.known import find_model

LEFT_OUT = [
    ("vllm", "t5-base"), ("sglang", "bart-large"), ("lmdeploy", "flan-t5-xl"), ("lmdeploy", "opt-13b"),
    ("lmdeploy", "mpt-7b"), ("lmdeploy", "olmo-2-7b"), ("llama.cpp", "bart-base"),
]  # fmt: skip
RUN = [
    ("tgi", "flan-t5-xl"), ("tensorrt-llm", "bart-large"), ("llama.cpp", "t5-base"), ("lmdeploy", "qwen3-8b"),
    ("lmdeploy", "falcon-40b"), ("lmdeploy", "gemma-3-27b"), ("vllm", "gpt2"), ("vllm", "olmo-2-7b"), (None, "t5-base"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "model"), LEFT_OUT)
def test_what_an_engine_leaves_out_names_another_and_its_version(engine: str, model: str) -> None:
    """Each is refused, and the engine it is sent to runs it."""
    rule = not_run(engine, find_model(model))
    assert rule is not None
    assert "and later" in rule.instead
    named = [name for name in GENERATING_ENGINES if f"{name} (" in rule.instead]
    assert named
    assert all(not_run(name, find_model(model)) is None for name in named)


@pytest.mark.parametrize(("engine", "model"), RUN)
def test_what_an_engine_runs_is_left_alone(engine: str | None, model: str) -> None:
    """No rule takes a model that the engine's list has, nor one whose engine is not stated."""
    assert not_run(engine, find_model(model)) is None


def test_rules_are_of_engines_that_generate() -> None:
    """Every rule names an engine that a workload file may name."""
    assert {rule.engine for rule in NOT_RUN} <= set(GENERATING_ENGINES)
