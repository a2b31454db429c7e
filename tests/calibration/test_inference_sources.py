"""What sources of inference rows document, and what it changes in a prediction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.calibration.inference_judge import judge_inference
from tonnage.calibration.inference_reading import InferenceCase, read_case
from tonnage.calibration.inference_sources import documented_facts, with_inference_facts
from tonnage.calibration.prediction import JudgedRow
from tonnage.calibration.rows import InferenceRow
from tonnage.catalog.loading import load_catalog

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
