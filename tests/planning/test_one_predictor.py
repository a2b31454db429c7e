"""What `validate` says of a row's rate or memory is what a plan says of the same run with its layout forced."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.calibration.inference_facts import with_inference_facts
from tonnage.calibration.inference_judge import judge_inference
from tonnage.calibration.inference_reading import InferenceCase, read_case
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.reading import read_inference_rows
from tonnage.calibration.rows import InferenceRow
from tonnage.catalog import load_catalog
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.batch_sizing import size_batch
from tonnage.sizing.kv_pool import with_cache
from tonnage.sizing.schedulers import scheduler_of
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.jobs import BatchJob, Constraints

CATALOG, CALIBRATED = load_catalog(), CalibratedModel.packaged()
FACTS = os.environ.get("TONNAGE_FACTS")
RATES = ("output_tokens_per_s", "total_tokens_per_s", "requests_per_s")
JUDGED = (*RATES, "peak_mem_gib")
PUBLISHED = InferenceRow(
    id="r1", config_id="c1", source="NVIDIA/TensorRT-LLM perf-overview v1.0", model="llama3.1-8b", params=8.0e9,
    n_layers=32, d_model=4096, n_heads=32, n_kv_heads=8, d_ff=14336, vocab=128256, kind="decoder", gpu="H100-80GB-SXM",
    n_gpus=1, tp=1, engine="trtllm", precision="fp8", weights_quant="fp8", batch_size=None, concurrency=None,
    input_len=1000.0, output_len=1000.0, metric="output_tokens_per_s", value=15220.0,
    note="all requests queued at once; 3000 requests; request_rate_qps=inf",
)  # fmt: skip
# NVIDIA, TensorRT-LLM performance overview v1.0 (models, prompt, answer, degree, requests, output tokens a second) and
# v0.9 (static batches): H100 SXM, fp8.
SAMPLE = [
    PUBLISHED,
    replace(PUBLISHED, id="r2", input_len=2048.0, output_len=2048.0, value=9305.0,
            note="all requests queued at once; 1500 requests; request_rate_qps=inf"),
    replace(PUBLISHED, id="r3", model="llama3.3-70b", tp=2, n_gpus=2, value=4205.0),
    replace(PUBLISHED, id="r4", engine="vllm", precision="bf16", weights_quant="", input_len=512.0, output_len=128.0),
    replace(PUBLISHED, id="r5", model="llama-7b", batch_size=64, input_len=128.0, output_len=128.0, value=5000.0,
            note="static batch"),
    replace(PUBLISHED, id="r6", engine="fastertransformer", precision="fp16", weights_quant="", model="gpt-6.7b",
            params=6.7e9, n_kv_heads=32, d_ff=16384, vocab=51200, gpu="A100-80GB-SXM", batch_size=64, input_len=512.0,
            output_len=32.0, metric="peak_mem_gib", value=41.84, note="FasterTransformer gpt_guide"),
    replace(PUBLISHED, id="r7", engine="pytorch", precision="fp16", weights_quant="", model="llama2-7b", batch_size=32,
            input_len=512.0, output_len=128.0, metric="peak_mem_gib", value=40.0, note="static batch"),
]  # fmt: skip


def forced(case: InferenceCase) -> BatchJob | None:
    """The row as a batch of requests with its layout, or None where a workload file has no such load or format."""
    weights = next((key for key in ("int4", "int8", "fp8") if key in case.row.weights_quant.casefold()), None)
    weights = weights or case.row.precision
    scheduler = scheduler_of("fastertransformer" if case.load == "static" else case.row.engine)
    kinds = [kind for kind in ("auto", "fp8", "fp16")
             if weights in FORMATS and with_cache(FORMATS[weights], kind, scheduler) == case.served]  # fmt: skip
    if not kinds or case.rate_per_s or case.users or case.beams > 1 or weights == "tf32":
        return None
    static = case.load == "static"
    items = int(case.batch * case.replicas) if static else case.prompts
    return BatchJob(
        model=case.shape, requests=case.requests, items=items, weights=weights, kv_cache=kinds[0],  # type: ignore[arg-type]
        tensor_parallel=case.tensor_parallel, replicas=case.replicas, batch=int(case.batch) if static else None,
        engine=case.row.engine + ("-serve" if case.engine == "llm-http" else ""),  # type: ignore[arg-type]
        engine_limits=case.limits, concurrency=int(case.batch) if case.batch and not static else None,
    )  # fmt: skip


def planned(case: InferenceCase, job: BatchJob) -> float | None:
    """The row's figure from the plan; None where the plan says that it does not fit."""
    nodes = -(-case.replicas * case.tensor_parallel // case.machine.count)
    sized = size_batch(job, [case.machine], Constraints(max_nodes=nodes), CALIBRATED)
    if not len(sized.machine):
        return None
    detail = sized.detail(len(sized.machine) - 1)
    if case.row.metric == "peak_mem_gib":
        assert detail.memory_gib is not None
        return detail.memory_gib.value
    rates = dict(detail.rates)
    if case.row.metric == "requests_per_s":
        return rates["requests_per_s"].value
    tokens = rates["output_tokens_per_s"].value
    return tokens * (1 + case.input_tokens / case.output_tokens) if case.row.metric == "total_tokens_per_s" else tokens


def compare(rows: list[InferenceRow]) -> tuple[int, list[str]]:
    """How many rows were compared, and those whose two figures differ by more than a thousandth."""
    compared, wrong = 0, []
    rows = [with_inference_facts(row) for row in rows]
    for row, judged in zip(rows, judge_inference(rows, CATALOG, CALIBRATED.inference), strict=True):
        case = read_case(row, CATALOG)
        job = forced(case) if isinstance(case, InferenceCase) else None
        if not isinstance(judged, JudgedRow) or job is None or row.metric not in JUDGED:
            continue
        assert isinstance(case, InferenceCase)
        figure = planned(case, job)
        if figure is None:
            if not case.batch:  # a fixed batch larger than memory was not one: its engine took turns
                wrong.append(f"{row.id}: planned to not fit")
            continue
        compared += 1
        if figure * case.rate_share != pytest.approx(judged.predicted, rel=1e-3):
            wrong.append(f"{row.id}: {figure:.6g} planned, {judged.predicted:.6g} validated")
    return compared, wrong


def test_a_sample_of_published_rows_has_one_figure() -> None:
    """All requests at once and fixed batches, one GPU and two, five engines: the same rate or memory by plan and by
    validate."""
    assert compare(SAMPLE) == (len(SAMPLE), [])


def test_published_rates_are_planned() -> None:
    """H100 fp8 under TensorRT-LLM 1.0 within 25 %: 15,220 output tokens a second of 8 B at 1,000 / 1,000, 9,305 at
    2,048 / 2,048, 4,205 of 70 B over two. (Planned at half of them while the planner had a model of its own.)"""
    for row in SAMPLE[:3]:
        case = read_case(with_inference_facts(row), CATALOG)
        assert isinstance(case, InferenceCase)
        job = forced(case)
        assert job is not None
        assert planned(case, job) == pytest.approx(row.value, rel=0.25)


@pytest.mark.facts
@pytest.mark.skipif(not FACTS, reason="TONNAGE_FACTS is not set")
def test_every_row_of_the_facts_has_one_figure() -> None:
    """Every decoder's rate and memory of the facts that is a batch with a known layout."""
    read = read_inference_rows(Path(FACTS or "") / "inference_calibration.csv")
    rows = [row for row in read if not isinstance(row, SkippedRow) and row.kind == "decoder"]
    compared, wrong = compare(rows)
    assert compared > 400
    assert wrong == []
