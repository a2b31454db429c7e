"""How long requests may be: learned tables, and rotary positions as `config.json` and the engine have them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tonnage.errors import WorkloadError
from tonnage.workload.huggingface import parse_huggingface_config
from tonnage.workload.jobs import ServeJob, Workload
from tonnage.workload.loading import parse_workload

LLAMA: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 8192,
}  # fmt: skip
SCALED = [  # rope_scaling, tokens
    (None, 8192),
    ({"type": "linear", "factor": 4.0}, 32768),
    ({"rope_type": "dynamic", "factor": 2}, 16384),
    ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}, 16384),
    ({"rope_type": "yarn", "factor": 4.0}, 32768),
    ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 1024}, 8192),
    ({"type": "longrope", "factor": 8.0}, 8192),
]


@pytest.mark.parametrize(("scaling", "tokens"), SCALED)
def test_rope_scaling_stretches_the_context_as_vllm_does(scaling: dict[str, Any] | None, tokens: int) -> None:
    """Linear and dynamic factors multiply, yarn multiplies the original length, llama3 and longrope are counted in."""
    assert parse_huggingface_config({**LLAMA, "rope_scaling": scaling}, name="one").max_positions == tokens


SERVE = """\
kind: serve
model: {model}
serve: {{rate_per_s: 1, input_tokens: {prompt}{more}}}
"""


def read(model: str, prompt: int, more: str = "") -> Workload:
    text = SERVE.format(model=model, prompt=prompt, more=more)
    return parse_workload(text, file="bad.yaml", folder=None, as_of=datetime(2026, 11, 20, tzinfo=UTC))


def test_a_request_beyond_the_context_is_refused_where_the_engine_refuses_it() -> None:
    """Llama 3 reads 8,192 tokens under vLLM; a library that runs any length takes more."""
    with pytest.raises(WorkloadError, match="above the context of llama-3-8b: 8192"):
        read("llama-3-8b", 8000, ", output_tokens: 500")
    assert read("llama-3-8b", 7692, ", output_tokens: 500").job
    assert read("llama-3-8b", 8000, ", output_tokens: 500, engine: pytorch").job


def test_a_decoder_without_vocabulary_answers_in_one_pass() -> None:
    """e5-mistral embeds: it needs no output tokens and takes none, under engines that embed too."""
    job = read("e5-mistral-7b", 512, ", p95_latency: 1s, engine: vllm").job
    assert isinstance(job, ServeJob)
    assert job.requests.output_tokens is None
    with pytest.raises(WorkloadError, match="generates no tokens"):
        read("e5-mistral-7b", 512, ", output_tokens: 8")


def test_a_decoder_that_writes_still_needs_to_know_how_much() -> None:
    """The error says how a decoder that embeds is told apart."""
    with pytest.raises(WorkloadError, match=r"output_tokens.*is missing"):
        read("llama-3-8b", 512)
