"""What sources of inference rows document, what it changes in a prediction, and what a reader doubts."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from tonnage.calibration.inference_fit import fit_cases
from tonnage.calibration.inference_judge import judge_inference
from tonnage.calibration.inference_reading import InferenceCase, read_case
from tonnage.calibration.inference_sources import DOUBTS, documented_facts, doubt, with_inference_facts
from tonnage.calibration.prediction import JudgedRow
from tonnage.calibration.reading import read_inference_rows
from tonnage.calibration.rows import InferenceRow
from tonnage.catalog.loading import load_catalog

FACTS = Path(os.environ.get("TONNAGE_FACTS", "")) / "inference_calibration.csv"
CATALOG = load_catalog()
EXAMPLES = "NVIDIA/DeepLearningExamples@729963dd "
ROW = InferenceRow(
    id="r1", config_id="c1", source=EXAMPLES + "TF2 BERT README", model="bert-large", params=335e6, n_layers=24,
    d_model=1024, n_heads=16, n_kv_heads=16, d_ff=4096, vocab=30522, kind="encoder", gpu="V100-16GB", n_gpus=1, tp=1,
    engine="tf", precision="fp16", weights_quant="", batch_size=1, concurrency=None, input_len=128.0, output_len=None,
    metric="latency_ms_mean", value=9.5, note="TF2",
)  # fmt: skip
PHOTOS = replace(
    ROW, model="resnet50", kind="vision", input_len=None, batch_size=256, gpu="A100-40GB-SXM",
    source=EXAMPLES + "TF1 resnet50v1.5 README", note="224x224; no XLA",
)  # fmt: skip


def case_of(row: InferenceRow) -> InferenceCase:
    case = read_case(with_inference_facts(row), CATALOG)
    assert isinstance(case, InferenceCase), case
    return case


def seconds(row: InferenceRow) -> float:
    (judged,) = judge_inference([row], CATALOG)
    assert isinstance(judged, JudgedRow), judged
    return judged.predicted / 1e3


# source, precision, engine -> class, autocast, threads that decode
READ: list[tuple[str, str, str, str, bool | None, int]] = [
    (EXAMPLES + "TF2 BERT README", "fp16", "tf", "compiled", True, 0),
    (EXAMPLES + "TF1 BERT README", "fp32", "tf", "compiled", False, 0),
    (EXAMPLES + "TF1 resnet50v1.5 README", "fp16", "tf", "graph", True, 10),
    (EXAMPLES + "PyTorch resnet50v1.5 README", "fp16", "pytorch", "eager", True, 0),
    (EXAMPLES + "PyTorch resnet50 triton", "fp16", "triton+onnxruntime-trt", "converted", None, 0),
    ("somebody/else@1", "fp16", "tf", "graph", None, 0),
]


@pytest.mark.parametrize(("source", "precision", "engine", "kind", "autocast", "threads"), READ)
def test_a_source_says_how_it_ran(
    source: str, precision: str, engine: str, kind: str, autocast: bool | None, threads: int
) -> None:
    """XLA, autocast and the threads that decode photographs are read off the scripts of a source, once."""
    case = case_of(replace(ROW, source=source, precision=precision, engine=engine, gpu="V100-16GB"))
    assert (case.engine, case.autocast, case.decoding_threads) == (kind, autocast, threads)


def test_a_column_goes_before_what_the_source_documents() -> None:
    """A user's table states its own; a source that is not known documents nothing."""
    stated = with_inference_facts(replace(ROW, compiled="n", autocast="n"))
    assert (stated.compiled, stated.autocast) == ("n", "n")
    assert not documented_facts(replace(ROW, source="mine"))


@pytest.mark.parametrize(("engine", "gpu"), [("tf-xla", "V100-16GB"), ("pytorch", "A100-40GB-SXM")])
def test_autocast_reads_weights_in_32_bit_and_writes_them_in_16(engine: str, gpu: str) -> None:
    """A pass under autocast takes as much longer as the casts of the products' weights move, 6 bytes each, and no
    more than twice that (a residual stream in 32 bit, a launch each)."""
    row = replace(ROW, source="mine", engine=engine, gpu=gpu, batch_size=8)
    longer = seconds(replace(row, autocast="y")) - seconds(replace(row, autocast="n"))
    weights = 24 * 12 * 1024**2
    least = weights * 6.0 / (CATALOG.accelerator(gpu).memory_bandwidth_gb_per_s or 0.0) / 1e9
    assert least < longer < 4.0 * least


def test_photographs_are_decoded_while_the_device_works() -> None:
    """Ten threads of libjpeg-turbo get 3,364 photographs of ImageNet ready a second; a device that takes more waits."""
    fed = replace(PHOTOS, source="mine", engine="tensorrt", decoding_threads=10)
    assert seconds(fed) == pytest.approx(256 / 3364, rel=1e-3)
    assert seconds(fed) > seconds(replace(fed, decoding_threads=None))
    slow = replace(fed, gpu="T4", precision="fp32")
    assert seconds(slow) == seconds(replace(slow, decoding_threads=None))


def test_a_table_that_repeats_another_is_doubted_and_counted_apart() -> None:
    """A reader's doubt has a reason; the row is still judged, as suspect, and in no fit."""
    doubted = replace(ROW, source=EXAMPLES + "TF1 BERT README", gpu="A100-40GB-SXM", note="")
    assert "repeats" in doubt(doubted)
    assert with_inference_facts(doubted).quality == "suspect"
    (judged,) = judge_inference([with_inference_facts(doubted)], CATALOG)
    assert isinstance(judged, JudgedRow)
    assert judged.suspect
    good = [case_of(replace(doubted, id=f"t{n}", precision="tf32", batch_size=n)) for n in (1, 2, 4)]
    assert fit_cases(good).rows["compiled"] == 3
    assert doubt(replace(doubted, precision="tf32")) == doubt(replace(doubted, gpu="V100-16GB")) == ""


@pytest.mark.parametrize(("rate", "suspect"), [(80105.0, True), (9470.0, True), (84.0, False), (140.0, False)])
def test_a_rate_that_no_memory_could_feed_is_doubted(rate: float, suspect: bool) -> None:
    """A batch of 1 writes a token each time all weights are read: 13.5 GB at 2,039 GB/s make at most 151 a second. What
    says several times that is no rate (megabytes, as a rule)."""
    row = replace(
        ROW, source="mine", model="llama2-7b", kind="decoder", gpu="A100-80GB-SXM", engine="vllm", note="batch 1",
        input_len=128.0, output_len=128.0, metric="output_tokens_per_s", value=rate,
    )  # fmt: skip
    assert case_of(row).suspect is suspect
    assert case_of(replace(row, batch_size=1024)).suspect is (rate > 1e9)


@pytest.mark.facts
@pytest.mark.skipif(not FACTS.exists(), reason="needs the measured facts")
def test_what_is_doubted_is_so() -> None:
    """The doubted fp16 table says what the tf32 table says, configuration by configuration."""
    rows = [row for row in read_inference_rows(FACTS) if isinstance(row, InferenceRow)]
    (is_doubted, _), *others = DOUBTS
    assert not others
    half = {_configuration(row): row.value for row in rows if is_doubted(row)}
    doubted = next(row for row in rows if is_doubted(row))
    tf32 = {
        _configuration(row): row.value
        for row in rows
        if row.source == doubted.source and row.gpu == doubted.gpu and row.precision == "tf32"
    }
    rates = [abs(half[key] / tf32[key] - 1.0) for key in half if key in tf32 and "per_s" in key[0]]
    assert len(rates) == 16
    assert median(rates) < 0.01
    assert max(rates) < 0.05


def _configuration(row: InferenceRow) -> tuple[str, str, float | None, int | None]:
    return row.metric, row.model, row.input_len, row.batch_size
