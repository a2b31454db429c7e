"""Rates that documents state of a model on a GPU, against the planner; and hourly prices of SageMaker machines."""

from __future__ import annotations

import pytest

from tonnage.claims.document import parse_document
from tonnage.claims.names import Names
from tonnage.claims.rate_claims import rate_claims

from .test_checking import catalog, check, only


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("Fine-tuning bert-base-uncased on a T4 runs at 120 samples/s at sequence length 128.", "ok"),
        ("Fine-tuning bert-base-uncased on a T4 runs at 9,000 samples/s at sequence length 128.", "wrong"),
        ("Training Llama-2-7B on 8x A100 80GB reaches 24k tokens/s.", "ok"),
        ("Training Llama-2-7B on 8x A100 80GB reaches 3,000 tokens/s per GPU.", "ok"),
        ("Training Llama-2-7B on eight A100 80GB reaches 24k tokens/s per GPU.", "wrong"),
        ("Fine-tuning Llama-2-7B with LoRA on one A10G gives 1,300 tokens/s.", "ok"),
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
    ("work", "count"),
    [
        ("GPT-2 on T4", 1),
        ("GPT-2 T4", 1),
        ("Llama 3 8B on H100 80GB", 1),
        ("Llama 3 8B H100 80GB", 1),
        ("GPT-2 at batch size 32 on A100 80GB", 1),
        ("GPT-2 at batch size 32 A100 80GB", 1),
        ("GPT-2 at sequence length 512 on H100 80GB", 1),
        ("GPT-2 at sequence length 512, H100 80GB", 1),
        ("GPT-2 on an 80 GB A100", 1),
        ("GPT-2 on a single T4", 1),
        ("GPT-2 on 8x A100", 8),
        ("GPT-2 on 8 × A100", 8),
        ("GPT-2 on 8 A100 GPUs", 8),
        ("GPT-2 on A100 x8", 8),
        ("GPT-2 on eight A100 80GB", 8),
        ("GPT-2 on two NVIDIA T4", 2),
        ("GPT-2 on 8 GPUs of type A100", 8),
        ("GPT-2 on 8 GPUs (A100 80GB)", 8),
        ("GPT-2 on an 8-GPU A100 machine", 8),
        ("GPT-2 on four 80 GB A100 cards", 4),
        ("GPT-2 with batch 16 on 8 A100 GPUs", 8),
        ("GPT-2 on 8 A100s", 8),
        ("GPT-2 on two T4s", 2),
        ("GPT-2 on four 80 GB A100s", 4),
    ],
)
def test_gpus_are_those_counted_beside_their_name(work: str, count: int) -> None:
    """A number of a model's name, of a batch or of a length is no number of GPUs."""
    [line] = parse_document(f"Serving {work} reaches 900 tokens/s.").lines
    [claim] = rate_claims(line, Names(catalog()))
    assert (claim.in_job, claim.gpus) == (count, count)


@pytest.mark.parametrize(
    "text",
    [
        "We need Llama-2-7B to generate 1,000,000 tokens/s on one T4.",
        "Serving Llama-2-7B on an A100 is faster than 10,000 tokens/s on a T4.",
        "Llama-2-7B on an A100 80GB: 2,400 tokens/s.",
        "Serving GPT-2 on A100s gives 2,400 tokens/s.",
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


def test_a_list_price_moved_only_where_one_is_held() -> None:
    """`ml.g5.xlarge` has a list price; of `ml.g6e.xlarge` only the plain machine's is held."""
    lists = {one.instance_type for one in catalog().managed.ml_instances}
    assert "g5.xlarge" in lists
    assert "g6e.xlarge" not in lists
    assert only("An ml.g5.xlarge is $1.30 an hour.").answer.hint == "list prices moved since then"
    unheld = only("An ml.g6e.xlarge is $2.30 an hour.")
    assert (unheld.verdict, unheld.answer.hint) == ("unknown", "no list price of ml.g6e.xlarge is held")
