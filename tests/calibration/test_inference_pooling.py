"""Engine classes fitted together: the table gives the formulas' seconds, and classes lend one another their figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tonnage.calibration.inference_facts import with_inference_facts
from tonnage.calibration.inference_fit import fit_inference
from tonnage.calibration.inference_pooling import PASS_CLASSES, SPREADS, fit_together, moved
from tonnage.calibration.inference_predict import engine_batch, lay_out
from tonnage.calibration.inference_reading import InferenceCase, read_case
from tonnage.calibration.pass_rows import pass_rows
from tonnage.calibration.pass_table import pass_table
from tonnage.calibration.rows import InferenceRow
from tonnage.calibration.store import calibrated_engines
from tonnage.catalog.loading import load_catalog
from tonnage.sizing.engines import PRIORS, Engine
from tonnage.sizing.inference_pass import pass_s

ENGINES = calibrated_engines()

CATALOG = load_catalog()
ROW = InferenceRow(
    id="r1", config_id="c1", source="a benchmark", model="bert-base", params=110e6, n_layers=12, d_model=768,
    n_heads=12, n_kv_heads=12, d_ff=3072, vocab=30522, kind="encoder", gpu="A100-40GB-SXM", n_gpus=1, tp=1,
    engine="trt", precision="fp16", weights_quant="", batch_size=32, concurrency=None, input_len=128.0, output_len=None,
    metric="latency_ms_mean", value=4.67, note="",
)  # fmt: skip
IMAGE = replace(
    ROW, model="resnet50", kind="vision", params=None, n_layers=None, d_model=None, n_heads=None, n_kv_heads=None,
    d_ff=None, vocab=None, input_len=None,
)  # fmt: skip


def cases_of(rows: Sequence[InferenceRow]) -> list[InferenceCase]:
    found = [read_case(with_inference_facts(row), CATALOG) for row in rows]
    assert all(isinstance(case, InferenceCase) for case in found), found
    return [case for case in found if isinstance(case, InferenceCase)]


def grid(base: InferenceRow, engine: str, batches: Sequence[int] = (1, 4, 16, 64)) -> list[InferenceRow]:
    """Batches on three devices at three precisions, as latency and as rate."""
    rows = []
    for gpu in ("A100-40GB-SXM", "T4", "V100-16GB"):
        for batch in batches:
            for precision in ("fp16", "fp32", "int8"):
                if (gpu, precision) == ("V100-16GB", "int8"):
                    continue
                one = replace(base, gpu=gpu, batch_size=batch, precision=precision, engine=engine)
                name = f"{engine} {base.model} {gpu} {batch} {precision}"
                rows.append(replace(one, id=f"{name} a"))
                rate = "samples_per_s" if base.kind == "vision" else "sequences_per_s"
                rows.append(replace(one, id=f"{name} b", metric=rate))
    return rows


def measured(rows: Sequence[InferenceRow], truth: Engine) -> list[InferenceRow]:
    """The rows as an engine with these figures would measure them."""
    values = lay_out(cases_of(rows), {truth.name: truth}).predict({truth.name: truth})
    return [replace(row, value=float(value)) for row, value in zip(rows, values, strict=True)]


@pytest.mark.parametrize(("engine", "name"), [("fused", "trt"), ("eager", "pytorch"), ("library", "fastertransformer")])
def test_the_table_gives_the_seconds_of_the_formulas(engine: str, name: str) -> None:
    """Long columns of operators and one pass at a time are the same arithmetic, under any figures."""
    cases = cases_of([*grid(ROW, name), *grid(IMAGE, name)])
    works = [group.works[0] for group in lay_out(cases, ENGINES).groups]
    for figures in (ENGINES[engine], moved(ENGINES[engine], dict.fromkeys(SPREADS, 0.2))):
        expected = np.concatenate([pass_s(work, figures) for work in works])
        assert pass_table(works).seconds(figures) == pytest.approx(expected, rel=1e-12)


DECODER = replace(
    ROW, model="llama2-7b", params=6.74e9, n_layers=32, d_model=4096, n_heads=32, n_kv_heads=32, d_ff=11008,
    vocab=32000, kind="decoder", gpu="A100-80GB-SXM", engine="trtllm", batch_size=8, output_len=128.0,
    metric="output_tokens_per_s", value=500.0,
)  # fmt: skip


def test_decoders_timed_together_are_timed_as_one_by_one() -> None:
    """Fixed batches and loads, one device and several, 16 and 8 bits, weights alone in 4: the same errors, under any
    figures, as from each pass by itself."""
    rows = [
        DECODER,
        replace(DECODER, tp=2, n_gpus=2, batch_size=1),
        replace(DECODER, gpu="H100-80GB-SXM", precision="fp8", batch_size=64),
        replace(DECODER, weights_quant="int4"),
        replace(DECODER, batch_size=None, note="64 prompts; request_rate_qps=2", metric="ttft_ms", value=50.0),
        replace(DECODER, gpu="H100-80GB-SXM", batch_size=None, value=9000.0),
    ]
    cases = cases_of(rows)
    engine = ENGINES[cases[0].engine]
    batch = engine_batch(cases, engine)
    for figures in (engine, moved(engine, dict.fromkeys(SPREADS, 0.2))):
        alone = np.log(lay_out(cases, {engine.name: figures}).predict({engine.name: figures})) - batch.measured
        assert batch.errors_under(figures) == pytest.approx(alone, rel=1e-9, abs=1e-9)


def test_errors_are_those_of_the_predictions_row_by_row() -> None:
    """Latencies, rates, a batching server, offline throughput and tensor parallelism keep their place and sign."""
    rows = [
        ROW,
        replace(ROW, metric="sequences_per_s", value=7000.0),
        replace(ROW, tp=2, n_gpus=2, value=3.0),
        replace(IMAGE, engine="triton+trt", concurrency=32.0, batch_size=1, value=9.0, note="Triton"),
        replace(ROW, batch_size=None, metric="sequences_per_s", value=5000.0),
        replace(ROW, metric="latency_ms_p99", value=5.0),
    ]
    cases = cases_of([replace(row, id=f"r{i}") for i, row in enumerate(rows)])
    for engine in ("fused", "converted"):
        mine = [case for case in cases if case.engine == engine]
        changed = {"gemm_fraction": 0.6, "call_us": 300.0, "kernel_floor_us": 3.0}
        other = replace(ENGINES[engine], **changed)
        predicted = lay_out(mine, {engine: other}).predict({engine: other})
        expected = np.log(predicted / np.array([case.row.value for case in mine]))
        assert pass_rows(mine, ENGINES[engine]).log_errors(changed) == pytest.approx(expected, abs=1e-9)


def test_a_class_without_convolutions_learns_of_them_from_the_others() -> None:
    """Two classes measured on encoders and images at slow convolutions move a third, measured on encoders only."""
    slow = {name: replace(PRIORS[name], convolution_fraction=0.5) for name in ("fused", "converted")}
    rows = [row for name, engine in (("fused", "trt"), ("converted", "torch2trt"))
            for row in measured([*grid(ROW, engine), *grid(IMAGE, engine)], slow[name])]  # fmt: skip
    third = measured(grid(ROW, "fastertransformer"), PRIORS["library"])
    fit = fit_inference([*rows, *third], CATALOG)
    for name in ("fused", "converted"):
        assert fit.engines[name].convolution_fraction == pytest.approx(0.5, rel=0.15)
    assert 0.5 < fit.engines["library"].convolution_fraction < 0.75
    assert fit.engines["traced"].convolution_fraction < 0.75  # no row at all
    assert fit.rows["traced"] == 0


def test_no_rows_leave_every_class_at_what_its_structure_says() -> None:
    """The plain figures, inside their ranges."""
    priors = {name: PRIORS[name] for name in PASS_CLASSES}
    assert fit_together({}, priors) == priors


def test_a_class_with_generations_alone_is_fitted() -> None:
    """Rows of eager generation and not one single pass: the class is fitted to them, the others keep the centre."""
    row = InferenceRow(
        id="g", config_id="g", source="made up", model="llama2-7b", params=6.7e9, n_layers=32, d_model=4096, n_heads=32,
        n_kv_heads=32, d_ff=11008, vocab=32000, kind="decoder", gpu="A100-80GB-SXM", n_gpus=1, tp=1,
        engine="hf-transformers", precision="fp16", weights_quant="", batch_size=1, concurrency=None, input_len=128.0,
        output_len=128.0, metric="output_tokens_per_s", value=20.0, note="",
    )  # fmt: skip
    rows = [replace(row, id=f"g{batch}", batch_size=batch, value=35.0 * batch) for batch in (1, 2, 4)]
    assert fit_inference(rows, load_catalog()).engines["eager"] != PRIORS["eager"]
