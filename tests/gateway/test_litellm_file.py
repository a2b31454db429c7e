"""A LiteLLM file becomes a gateway file that loads; what it cannot say is named, and no key is copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tonnage.errors import InputError
from tonnage.gateway.file.reading import load_gateway
from tonnage.gateway.litellm_file import read_litellm

FILE = """
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: azure/gpt-4o-eu
      api_base: https://eu.openai.azure.com/
      api_key: os.environ/AZURE_EU
      api_version: "2024-10-21"
      rpm: 60
      weight: 3
      input_cost_per_token: 0.0000025
      output_cost_per_token: 1e-05
  - model_name: gpt-4o
    litellm_params: {model: gpt-4o, api_key: sk-very-secret, tpm: 90000, timeout: 30, seed: 7}
    model_info: {input_cost_per_token: 2.5e-6, output_cost_per_token: 1.0e-5, cache_read_input_token_cost: 1.25e-6}
  - model_name: Claude Sonnet
    litellm_params:
      model: bedrock/converse/eu.anthropic.claude-sonnet-v1:0
      aws_region_name: eu-west-1
      aws_profile_name: prod
      input_cost_per_token: 3.0e-6
      output_cost_per_token: 1.5e-5
  - model_name: small
    litellm_params: {model: hosted_vllm/qwen, api_base: "http://127.0.0.1:8000/v1"}
    model_info: {input_cost_per_token: 1.0e-7, output_cost_per_token: 2.0e-7}
  - {model_name: "*", litellm_params: {model: "*"}}
litellm_settings:
  drop_params: true
  request_timeout: 600
  num_retries: 2
  cache: true
  cache_params: {type: redis, ttl: 300}
  fallbacks: [{gpt-4o: [small, "Claude Sonnet"]}]
  max_budget: 100
  budget_duration: 30d
router_settings:
  model_group_alias: {gpt-4: gpt-4o}
general_settings:
  master_key: sk-1234
"""


def load(made: dict[str, Any], folder: Path) -> Any:
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(made, sort_keys=False), "utf-8")
    environment = {"LITELLM_MASTER_KEY": "x"}

    def none(_: object) -> Any:
        raise AssertionError

    return load_gateway(path, home=folder, environment=environment, catalog_rates=none, planned_speeds=none)


def test_the_file_that_is_made_loads(tmp_path: Path) -> None:
    """Deployments with limits, prices and sign-in; routes with weights, fallback, retries and cache."""
    made, _ = read_litellm(FILE)
    gateway = load(made, tmp_path)
    assert list(gateway.deployments) == ["azure-gpt-4o-eu", "gpt-4o", "claude-sonnet", "small"]
    assert gateway.deployments["claude-sonnet"].dialect == "converse"
    assert gateway.deployments["gpt-4o"].timeouts.total == 30.0
    assert gateway.deployments["small"].timeouts.total == 600.0
    route = gateway.routes["gpt-4"]
    assert (route.deployments, route.weights) == (("azure-gpt-4o-eu", "gpt-4o"), (3.0, 1.0))
    assert (route.fallback, route.retry.attempts, route.cache.ttl) == (None, 3, 300.0)
    assert gateway.routes["gpt-4o"].fallback == "small"
    assert len(gateway.callers) == 1


def test_what_is_said_of_a_deployment() -> None:
    """References stay references; prices are a million tokens'."""
    deployments = read_litellm(FILE)[0]["deployments"]
    assert deployments["azure-gpt-4o-eu"] == {
        "url": "https://eu.openai.azure.com/openai/v1", "model": "gpt-4o-eu",
        "sign_in": {"kind": "api-key", "key": "env:AZURE_EU"}, "requests_per_minute": 60,
        "price": {"input_usd_per_million": 2.5, "output_usd_per_million": 10.0}, "timeouts": {"total": "600s"},
    }  # fmt: skip
    assert deployments["claude-sonnet"]["url"] == "https://bedrock-runtime.eu-west-1.amazonaws.com"
    assert deployments["claude-sonnet"]["model"] == "eu.anthropic.claude-sonnet-v1:0"
    assert deployments["claude-sonnet"]["sign_in"] == {"kind": "aws", "region": "eu-west-1", "profile": "prod"}


def test_no_key_is_copied_and_nothing_is_lost_in_silence() -> None:
    """Keys that stand in the file are neither in the result nor in a note; the rest is named."""
    made, notes = read_litellm(FILE)
    written = yaml.safe_dump(made) + "\n".join(notes)
    assert "sk-very-secret" not in written
    assert "sk-1234" not in written
    for named in ("model_list[1]: api_key stands in the file", "master_key stands in the file", "`*` stands for any",
                  "drop_params", "litellm_params.seed", "`redis`", "fallbacks.gpt-4o: the first",
                  "`claude-sonnet` instead of `Claude Sonnet`"):  # fmt: skip
        assert any(named in note for note in notes), named


def test_a_price_that_is_not_stated_is_asked_for() -> None:
    """Unknown is not free."""
    made, notes = read_litellm("model_list: [{model_name: a, litellm_params: {model: groq/llama}}]")
    assert "price" not in made["deployments"]["a"]
    assert "no price is stated" in notes[0]


@pytest.mark.parametrize("text", ["a: [", "[]", "model_list: 5", "model_list: [5]", "model_list: [{model_name: a}]"])
def test_what_is_no_such_file_is_refused(text: str) -> None:
    """With a hint."""
    with pytest.raises(InputError) as raised:
        read_litellm(text)
    assert raised.value.hint
