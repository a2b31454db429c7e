"""Which models each engine's own list leaves out."""

from __future__ import annotations

import pytest

from tonnage.workload.engine_models import NOT_RUN, not_run
from tonnage.workload.jobs import GENERATING_ENGINES
from tonnage.workload.known import find_model

LEFT_OUT = [
    ("vllm", "t5-base"), ("sglang", "bart-large"), ("lmdeploy", "flan-t5-xl"), ("lmdeploy", "opt-13b"),
    ("lmdeploy", "mpt-7b"), ("lmdeploy", "olmo-2-7b"), ("llama.cpp", "bart-base"),
    ("lmdeploy", "falcon-40b"), ("lmdeploy", "phi-2"), ("lmdeploy", "gpt-neox-20b"), ("lmdeploy", "gpt-j-6b"),
]  # fmt: skip
RUN = [
    ("tgi", "flan-t5-xl"), ("tensorrt-llm", "bart-large"), ("llama.cpp", "t5-base"), ("lmdeploy", "qwen3-8b"),
    ("lmdeploy", "starcoder2-7b"), ("lmdeploy", "gemma-3-27b"), ("vllm", "gpt2"), ("vllm", "olmo-2-7b"),
    ("vllm", "whisper-base"), ("sglang", "whisper-base"), ("llama.cpp", "whisper-base"),
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
def test_what_an_engine_runs_is_left_alone(engine: str, model: str) -> None:
    """No rule takes a model that the engine's list has; a speech model is no text's encoder-decoder."""
    assert not_run(engine, find_model(model)) is None


def test_vllm_runs_bart_with_its_plugin() -> None:
    """BART's hint names it; T5 has none."""
    bart, t5 = not_run("vllm", find_model("bart-large")), not_run("vllm", find_model("t5-base"))
    assert bart is not None
    assert t5 is not None
    assert "vllm-project/bart-plugin" in bart.instead
    assert "plugin" not in t5.kind + t5.instead


def test_rules_are_of_engines_that_generate() -> None:
    """Every rule names an engine that a workload file may name."""
    assert {rule.engine for rule in NOT_RUN} <= set(GENERATING_ENGINES)
