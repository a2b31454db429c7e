"""Reading, judging and fitting measured inference rows."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from tonnage.calibration.inference_classes import fit_class
from tonnage.calibration.inference_facts import with_inference_facts
from tonnage.calibration.inference_fit import fit_cases, fit_inference, fit_rows
from tonnage.calibration.inference_judge import judge_inference
from tonnage.calibration.inference_reading import InferenceCase, read_case
from tonnage.calibration.inference_setup import model_family
from tonnage.calibration.leave_out import leave_one_out
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.rows import InferenceRow
from tonnage.calibration.store import calibrated_engines, load_calibration
from tonnage.catalog.loading import load_catalog
from tonnage.sizing.engines import FIGURES, PRIORS, with_fronts
from tonnage.workload.known import find_model

ENGINES = calibrated_engines()
CATALOG = load_catalog()
ROW = InferenceRow(
    id="r1", config_id="c1", source="NVIDIA/TensorRT demo/BERT@5094c1de", model="bert-base", params=110e6, n_layers=12,
    d_model=768, n_heads=12, n_kv_heads=12, d_ff=3072, vocab=30522, kind="encoder", gpu="A100-40GB-SXM", n_gpus=1, tp=1,
    engine="trt", precision="fp16", weights_quant="", batch_size=32, concurrency=None, input_len=128.0, output_len=None,
    metric="latency_ms_mean", value=4.67, note="TensorRT 7.2.3.4; fixed seq len",
)  # fmt: skip
DECODER = replace(
    ROW, id="r2", config_id="c2", model="llama2-7b", params=6.7e9, n_layers=32, d_model=4096, n_heads=32, n_kv_heads=32,
    d_ff=11008, vocab=32000, kind="decoder", gpu="A100-80GB-SXM", engine="trtllm", batch_size=None, input_len=128.0,
    output_len=128.0, metric="output_tokens_per_s", value=5000.0, note="in-flight batching, requests queued at once",
)  # fmt: skip


def case_of(row: InferenceRow) -> InferenceCase:
    case = read_case(with_inference_facts(row), CATALOG)
    assert isinstance(case, InferenceCase), case
    return case


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpu": "H1000"}, "no accelerator"),
        ({"precision": "tf32", "gpu": "T4"}, "no tf32 rate"),
        ({"batch_size": None}, "batch size not stated"),
        ({"input_len": None}, "input length not stated"),
        ({"engine": "quux"}, "no class is known"),
        ({"note": "padding removed"}, "real lengths not stated"),
        ({"note": "latency_mean is inflated by start-up outliers"}, "start-up"),
        ({"note": "pp=2"}, "pipeline"),
        ({"value": 0.0}, "not positive"),
        ({"metric": "tpot_ms_p99", "token_mean": "y"}, "a percentile over tokens"),
    ],
)
def test_rows_that_cannot_be_judged_say_why(change: dict[str, object], reason: str) -> None:
    """A row is skipped with its reason, never predicted as something else."""
    row = with_inference_facts(replace(ROW, **change))  # type: ignore[arg-type]
    (judged,) = judge_inference([row], CATALOG)
    assert isinstance(judged, SkippedRow)
    assert reason in judged.reason


def test_what_a_row_states_decides_its_load() -> None:
    """Fixed batch, saturated, offered rate, closed loop: from columns and note."""
    assert case_of(ROW).load == "pass"
    assert (case_of(DECODER).load, case_of(DECODER).rate_per_s) == ("served", 0.0)  # all at once
    assert case_of(replace(DECODER, batch_size=8)).load == "static"
    offered = case_of(replace(DECODER, note="online serving, 500 requests; request_rate_qps=4"))
    assert (offered.load, offered.rate_per_s, offered.prompts) == ("served", 4.0, 500)
    closed = case_of(replace(DECODER, concurrency=8.0, note="ShareGPT, 100 prompts, max_concurrency closed loop"))
    assert (closed.users, closed.varied_lengths) == (8, True)


def test_a_named_data_set_gives_lengths_that_are_not_fitted_to() -> None:
    """ShareGPT without lengths is judged at its means, varied, and kept out of the fit; the beam width counts."""
    bare = replace(DECODER, input_len=None, output_len=None)
    chat = case_of(replace(bare, concurrency=256.0, note="TurboMind; 3000 ShareGPT-like prompts"))
    assert (chat.load, chat.users, chat.varied_lengths, chat.assumed_lengths) == ("served", 256, True, True)
    assert 150 < chat.output_tokens < 300
    summary = case_of(replace(bare, note="CNN/DailyMail summarisation, beam width 4"))
    assert (summary.load, summary.beams) == ("served", 4)
    assert fit_rows([chat, summary]) == []
    unnamed = read_case(replace(bare, note="in-flight batching"), CATALOG)
    assert isinstance(unnamed, SkippedRow)


def test_unstated_tensor_parallelism_is_the_least_that_fits() -> None:
    """70 B in fp8 leaves no room for a cache on one 80 GB card: two; 7 B takes one. What is stated stays."""
    large = replace(DECODER, model="llama2-70b", precision="fp8", gpu="H100-80GB-SXM", tp=None, n_gpus=8)
    assert case_of(large).tensor_parallel == 2
    assert case_of(large).replicas == 4
    assert case_of(replace(DECODER, tp=None, n_gpus=8)).tensor_parallel == 1
    assert case_of(replace(large, tp=4)).tensor_parallel == 4


def test_served_rows_follow_the_load() -> None:
    """More load never answers sooner, and the rate served follows the rate offered until the replica is full."""
    row = replace(DECODER, batch_size=None, input_len=467.0, output_len=256.0)

    def predicted(rate: str, metric: str) -> float:
        note = f"online serving, 500 requests; request_rate_qps={rate}"
        (judged,) = judge_inference([with_inference_facts(replace(row, metric=metric, note=note))], CATALOG)
        assert isinstance(judged, JudgedRow)
        return judged.predicted

    assert predicted("2", "ttft_ms") < predicted("16", "ttft_ms") < predicted("inf", "ttft_ms")
    assert predicted("2", "tpot_ms") < predicted("16", "tpot_ms")
    assert predicted("2", "requests_per_s") == pytest.approx(2.0, rel=0.15)
    assert predicted("64", "requests_per_s") < 64


def test_the_same_rows_with_other_values_are_another_fit() -> None:
    """A fit is remembered by what its rows say, not by their names: twice the rate gives other figures."""
    rows = [replace(DECODER, id=f"t{batch}", batch_size=batch, value=55.0 * batch) for batch in (1, 2, 4)]
    faster = [replace(row, value=2.0 * row.value) for row in rows]
    name = case_of(rows[0]).engine
    catalog = load_catalog()
    first = fit_inference(rows, catalog).engines[name]
    second = fit_inference(faster, catalog).engines[name]
    assert second != first
    assert second == fit_class(PRIORS[name], [case_of(row) for row in faster])


def test_another_catalog_is_another_fit() -> None:
    """The same rows on a device with a third of the bandwidth say other figures of the engine."""
    rows = [replace(DECODER, id=f"t{batch}", batch_size=batch, value=55.0 * batch) for batch in (1, 2, 4)]
    cases = [case_of(row) for row in rows]
    bandwidth = cases[0].machine.accelerator.memory_bandwidth_gb_per_s
    assert bandwidth is not None
    slower = replace(cases[0].machine.accelerator, memory_bandwidth_gb_per_s=bandwidth / 3.0)
    others = [replace(case, machine=replace(case.machine, accelerator=slower)) for case in cases]
    assert fit_cases(cases).engines != fit_cases(others).engines


def test_plans_and_sizing_read_the_same_figures() -> None:
    """The figures that sizing works with are those of the packaged calibration, class by class; a class that it lacks
    has those that its structure says, and one behind the server of another the request times of that server."""
    calibration = load_calibration()
    assert calibration is not None
    assert dict(ENGINES) == with_fronts({**PRIORS, **calibration.inference.engines})
    behind, bare, front = (ENGINES[name] for name in ("llm-http", "llm", "llm-python"))
    assert (behind.request_us, behind.reply_us) == (front.request_us, front.reply_us)
    assert behind == replace(bare, request_us=front.request_us, reply_us=front.reply_us)


def test_few_rows_do_not_carry_figures_far() -> None:
    """One table of one engine moves a figure less far from where it starts than the rows alone would."""
    rows = [replace(DECODER, id=f"t{batch}", batch_size=batch, value=55.0 * batch) for batch in (1, 2, 4)]
    cases = [case_of(row) for row in rows]  # well under what the class's first figures say
    start = PRIORS[cases[0].engine]
    fitted = fit_class(start, cases)
    assert fitted != start
    assert 0.1 < fitted.call_us / start.call_us < 10.0


def test_formats_follow_the_device() -> None:
    """fp8 weights multiply at fp8 on an H100 and at 16 bit on an A100, which has no fp8 rate."""
    row = replace(DECODER, precision="bf16", weights_quant="fp8", engine="vllm")
    assert case_of(replace(row, gpu="H100-80GB-SXM")).served.compute == "fp8"
    assert case_of(row).served.compute == "bf16"
    assert case_of(row).served.weight_bytes == 1.0


def test_padding_removed_with_stated_lengths_halves_the_tokens() -> None:
    """Real lengths of half the longest, stated: half the tokens."""
    row = replace(ROW, source="NVIDIA/FasterTransformer docs@df4a7534 bert_guide")
    stated = "remove-padding (effective) mode: mean real length = seq_len/2"
    assert case_of(replace(row, note=stated)).input_tokens == 64.0
    assert case_of(replace(ROW, padding="removed", mean_input_len=50.0)).input_tokens == 50.0
    silent = read_case(with_inference_facts(replace(row, note="padding removed")), CATALOG)
    assert isinstance(silent, SkippedRow)


def test_a_rate_beyond_memory_bandwidth_is_a_miss() -> None:
    """80,000 tokens a second of one request at a time would stream 7 B weights at 1,000 TB/s: judged, as an error."""
    (judged,) = judge_inference([replace(DECODER, batch_size=1, value=80105.0)], CATALOG)
    assert isinstance(judged, JudgedRow)
    assert judged.predicted < 0.01 * judged.measured


def test_judged_rows_keep_order_unit_and_family() -> None:
    """Milliseconds in, milliseconds out; rates as totals; rows in their order."""
    half = replace(DECODER, id="r3", n_gpus=2)
    first, skipped, one, two = judge_inference([ROW, replace(ROW, gpu="H1000"), DECODER, half], CATALOG)
    assert isinstance(first, JudgedRow)
    assert isinstance(skipped, SkippedRow)
    assert isinstance(one, JudgedRow)
    assert isinstance(two, JudgedRow)
    assert first.predicted == pytest.approx(4.67, rel=0.25)
    assert (first.family, first.group, one.group) == ("bert", "encoder time", "decoder rate")
    assert two.predicted == pytest.approx(2 * one.predicted, rel=0.01)  # two replicas, half of the requests each


def test_families_lose_their_size() -> None:
    """What is left out together shares a family."""
    assert {model_family(name) for name in ("bert-base", "bert-large", "bert-6l-768d")} == {"bert"}
    assert model_family("qwen3-14b") == "qwen3"


def measured_rows() -> list[InferenceRow]:
    """Rows as an engine with known figures would produce them: BERT on two devices, 40 shapes of work."""
    truth = replace(ENGINES["fused"], gemm_fraction=0.7, kernel_floor_us=4.0, call_us=120.0)
    grid = [(gpu, model, batch, length) for gpu in ("A100-40GB-SXM", "T4") for model in ("bert-base", "bert-large")
            for batch in (1, 4, 16, 64, 128) for length in (128.0, 384.0)]  # fmt: skip
    rows = [replace(ROW, id=f"r{i}", gpu=gpu, model=model, batch_size=batch, input_len=length)
            for i, (gpu, model, batch, length) in enumerate(grid)]  # fmt: skip
    from tonnage.calibration.inference_predict import lay_out

    laid = lay_out([case_of(row) for row in rows], {"fused": truth})
    return [replace(row, value=float(v)) for row, v in zip(rows, laid.predict({"fused": truth}), strict=True)]


def test_a_fit_explains_rows_made_by_an_engine_of_its_class() -> None:
    """Figures drawn from the formula are explained within 5 % at the median, 12 % at the 90th percentile; figures
    stay in their ranges; the same rows give the same fit."""
    rows = measured_rows()
    fit = fit_inference(rows, CATALOG)
    n, median, p90, _, _ = fit.residuals["encoder time"]
    assert n == len(rows)
    assert median < 0.05
    assert p90 < 0.12
    fused = fit.apply()["fused"]
    for one in FIGURES.values():
        if one.name not in ("host_us_per_kernel", "request_us", "reply_us", "sequence_us"):
            assert one.low <= getattr(fused, one.name) <= one.high
    assert fit_inference(rows, CATALOG).apply() == fit.apply()


def test_left_out_rows_are_predicted_without_having_been_seen() -> None:
    """Each device predicted by a fit to the other: rows of one formula carry over within 25 % at the median."""
    rows = measured_rows()
    catalog = load_catalog()
    results = leave_one_out(
        rows,
        lambda row: row.gpu,
        lambda kept: fit_inference(kept, catalog),
        lambda held, fit: judge_inference(held, catalog, fit),
    )
    by_gpu: dict[str, list[float]] = {}
    for one in results:
        assert isinstance(one, JudgedRow)
        by_gpu.setdefault(one.gpu, []).append(abs(one.predicted / one.measured - 1))
    assert set(by_gpu) == {"A100-40GB-SXM", "T4"}
    assert all(median(errors) < 0.25 for errors in by_gpu.values())


def test_a_generation_without_rows_is_two_steps_away_for_plans_and_rows_alike() -> None:
    """A judged row does not know which devices rows name, a plan does: of a generation without rows both count device
    and generation; of one with rows the plan alone counts the device, and `with_distance` adds it to the row."""
    fit = fit_cases([case_of(ROW)])
    known = {"devices": {"A100-40GB-SXM"}}
    older, sibling = CATALOG.accelerator("T4"), CATALOG.accelerator("A100-80GB-SXM")
    judged, planned = (fit.unseen_factors("encoder", older, "fp16", "fused", **told) for told in ({}, known))  # type: ignore[arg-type]
    assert judged == planned
    assert judged.names == ("T4", "Turing GPUs")
    assert fit.unseen_factors("encoder", sibling, "fp16", "fused").names == ()
    assert fit.unseen_factors("encoder", sibling, "fp16", "fused", **known).names == ("A100-80GB-SXM",)  # type: ignore[arg-type]


def test_what_only_rows_of_the_kin_had_is_near() -> None:
    """Images go through the engines of encoders: a generation and a format that encoders alone had widens by what
    left-out rows say, one that neither had by judgement. A decoder has no kin."""
    fit = fit_cases([case_of(ROW)])
    device = CATALOG.accelerator("A100-40GB-SXM")
    images = fit.unseen_factors("vision", device, "fp16", "fused")
    assert images.near == ("A100-40GB-SXM", "Ampere GPUs", "precision fp16")
    assert images.foreign == ()
    assert fit.unseen_factors("vision", device, "fp32", "fused").foreign == ("precision fp32",)
    assert "Ampere GPUs" in fit.unseen_factors("decoder", device, "fp16", "llm").foreign


def test_structures_that_no_row_had_are_unknown() -> None:
    """No row of the packaged calibration is of a mixture of experts or has latent attention: plans say so, and widen
    by judgement; dense models, and an engine behind the server of another, are known."""
    calibration, device = load_calibration(), CATALOG.accelerator("H100-80GB-SXM")
    assert calibration is not None
    fit = calibration.inference

    def names(model: str, engine: str = "llm-python") -> tuple[str, ...]:
        found = fit.unseen_factors("decoder", device, "bf16", engine, shape=find_model(model))
        assert found.near == ()
        return tuple(found.foreign)

    assert names("qwen3-8b") == names("llama-3.1-8b", "llm-http") == ()
    assert names("qwen3-30b-a3b") == ("mixture of experts",)
    assert names("deepseek-r1") == ("latent attention", "mixture of experts")
    experts = replace(fit, structures=frozenset({"mixture of experts"}))
    assert (
        experts.unseen_factors("decoder", device, "bf16", "llm-python", shape=find_model("qwen3-30b-a3b")).names == ()
    )
