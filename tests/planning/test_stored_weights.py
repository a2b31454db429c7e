"""A served model is held as its checkpoint holds it, unless the file says otherwise; one only counted is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tonnage.errors import WorkloadError
from tonnage.planning.need import needs_of
from tonnage.planning.reasons.origins import OneForward
from tonnage.planning.summary import summarise
from tonnage.sizing.inference_memory import weights_bytes
from tonnage.sizing.served_formats import FORMATS
from tonnage.units import to_gib
from tonnage.workload.jobs import ServeJob, Workload
from tonnage.workload.known import find_model
from tonnage.workload.loading import parse_workload

SERVE = """\
kind: serve
model: {model}
serve: {{rate_per_s: 1, input_tokens: 1000, output_tokens: 100, p95_latency: 60s{weights}}}
"""


def served(model: str, weights: str = "") -> Workload:
    text = SERVE.format(model=model, weights=weights)
    return parse_workload(text, file="f.yaml", folder=None, as_of=datetime(2026, 11, 22, tzinfo=UTC))


@pytest.mark.parametrize(
    ("model", "asked", "held"),
    [
        ("gpt-oss-20b", "", "mxfp4"),
        ("deepseek-r1", "", "fp8"),
        ("gpt-oss-20b", ", weights: bf16", "bf16"),
        ("llama-3.1-8b", "", "fp16"),
    ],
)
def test_weights_are_held_as_stored_or_as_asked(model: str, asked: str, held: str) -> None:
    """Without `weights`, the checkpoint's own format; with it, that."""
    job = served(model, asked).job
    assert isinstance(job, ServeJob)
    assert job.weights == held


@pytest.mark.parametrize(
    ("model", "gib"),
    [  # checkpoint size, arXiv:2508.10925, Table 1. Why 2 %: norms and biases stay wider there
        ("gpt-oss-20b", 12.8),
        ("gpt-oss-120b", 60.8),
    ],
)
def test_four_bit_experts_take_what_the_checkpoint_takes(model: str, gib: float) -> None:
    """mxfp4 holds experts in 4.25 bits and the rest in 16: the published sizes of gpt-oss."""
    assert to_gib(weights_bytes(find_model(model), FORMATS["mxfp4"])) == pytest.approx(gib, rel=0.02)


@pytest.mark.parametrize(
    ("model", "known"),
    [("whisper-large-v3", "1,543,490,560"), ("flux.1-dev", "11,901,408,320"), ("sdxl", "2,567,463,684")],
)
def test_a_model_that_is_only_counted_is_refused(model: str, known: str) -> None:
    """Speech and diffusion models have no figures of time: the error says what is missing and what is known."""
    with pytest.raises(WorkloadError) as caught:
        served(model)
    assert "not modelled" in str(caught.value)
    assert known in f"{caught.value} {caught.value.hint}"


def test_four_bit_experts_need_experts() -> None:
    """mxfp4 of a dense model would be a 16-bit model by another name."""
    with pytest.raises(WorkloadError, match="mxfp4"):
        served("llama-3.1-8b", ", weights: mxfp4")


@pytest.mark.parametrize(
    ("model", "said"),
    [("qwen2.5-vl-7b", "image encoder"), ("llama-3.2-11b-vision", "image tokens"), ("llama-3.1-8b", None)],
)
def test_a_summary_tells_what_figures_leave_out(model: str, said: str | None) -> None:
    """A vision-language model is planned for its text; that its image encoder's passes are left out stands above."""
    told = dict(summarise(served(model))).get("left out")
    assert (told is None) if said is None else (told is not None and said in told)


@pytest.mark.parametrize(("model", "side"), [("resnet-50", 224), ("vit-base-patch16-224", 224)])
def test_a_service_of_images_counts_no_tokens(model: str, side: int) -> None:
    """What a request brings, and what one forward is over, is an image."""
    text = f"kind: serve\nmodel: {model}\nserve: {{rate_per_s: 5, p95_latency: 1s}}\n"
    work = parse_workload(text, file="f.yaml", folder=None, as_of=datetime(2026, 11, 22, tzinfo=UTC))
    assert dict(summarise(work))["input"] == f"images of {side} x {side} pixels, one a request"
    assert OneForward(tokens=None) in {origin for _, _, origin in needs_of(work.job).figures}
