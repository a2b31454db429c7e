"""Rates that documents state of a model on a GPU, against the planner; and hourly prices of SageMaker machines."""

from __future__ import annotations

import pytest

from .test_checking import check, only


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Fine-tuning bert-base-uncased on a T4 runs at 120 samples/s at sequence length 128.", "ok"),
        ("Fine-tuning bert-base-uncased on a T4 runs at 9,000 samples/s at sequence length 128.", "wrong"),
        ("Training Llama-2-7B on 8x A100 80GB reaches 24k tokens/s.", "ok"),
        ("Training Llama-2-7B on 8x A100 80GB reaches 3,000 tokens/s per GPU.", "ok"),
        ("Training Llama-2-7B on eight A100 80GB reaches 24k tokens/s per GPU.", "wrong"),
        ("Fine-tuning Llama-2-7B with LoRA on one A10G gives 1,500 tokens/s.", "ok"),
        ("Serving GPT-2 on a T4 gives 0.5 tokens/s.", "partly"),
        ("Serving GPT-2 on a T4 reaches 900,000 tokens per second.", "wrong"),
        ("Training resnet-50 on a T4 runs at 200 images/s.", "unknown"),
    ],
)
def test_a_rate_is_held_against_the_prediction(text: str, verdict: str) -> None:
    """Within the intervals of what the text leaves open it holds; far above is wrong, below is in part."""
    found = only(text)
    assert (found.kind, found.verdict) == ("rate", verdict), found
    if verdict != "unknown":
        assert "samples/s" in found.answer.right or "tokens/s" in found.answer.right


def test_a_published_rate_of_another_engine_is_no_error() -> None:
    """15,220 output tokens/s of Llama 3.1 8B in fp8 on one H100 (TensorRT-LLM's own figures)."""
    assert only("Serving Llama 3.1 8B on one H100 reaches 15,220 output tokens/s in fp8.").verdict == "ok"


@pytest.mark.parametrize(
    "text",
    [
        "We need Llama-2-7B to generate 1,000,000 tokens/s on one T4.",
        "Serving Llama-2-7B on an A100 is faster than 10,000 tokens/s on a T4.",
        "Llama-2-7B on an A100 80GB: 2,400 tokens/s.",
        "Serving Llama-2-7B and Llama-2-13B on an A100 gives 2,400 tokens/s.",
    ],
)
def test_what_is_no_plain_rate_is_passed_over(text: str) -> None:
    """Demands, comparisons, two models, and work that nobody names."""
    assert not [one for one in check(text).findings if one.kind == "rate"]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("On SageMaker an ml.g5.xlarge costs $1.408 per hour.", "ok"),
        ("An ml.p4d.24xlarge is $12.00/hour.", "wrong"),
        ("An ml.g5.xlarge is $1.30 an hour.", "unknown"),
        ("An ml.q9.xlarge is $1.30 an hour.", "unknown"),
    ],
)
def test_machines_of_sagemaker(text: str, verdict: str) -> None:
    """Held prices hold; what a plain machine costs bounds the rest."""
    found = only(text)
    assert (found.quantity, found.verdict) == ("price per instance-hour", verdict)
