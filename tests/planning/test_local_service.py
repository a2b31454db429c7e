"""An encoder service on a measured device: the queue against queueing theory, and what benches teach."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from tonnage.calibration.local_inference import (
    BenchedLoad,
    batch_seconds,
    forward_flop,
    read_benches,
    request_seconds,
    service_curve,
)
from tonnage.errors import InputError
from tonnage.planning.local_service import LocalService, broken_service_limits, predict_service, served_work
from tonnage.sizing.encoder_queue import EncoderQueue, answer_times, latency_curve, tuned_batch_tokens
from tonnage.testing.devices import fake_profile
from tonnage.workload.jobs import BatchJob, Constraints, Lengths, Requests, ServeJob
from tonnage.workload.known import find_model

PROFILE = fake_profile(services=True)
FIXED = Requests(input_tokens=Lengths(mean=32.0, maximum=32), output_tokens=None)
RATE = 60.0


def job(**given: Any) -> ServeJob:
    base = ServeJob(
        model=find_model("minilm"), requests=FIXED, rate_per_s=RATE, weights="fp32", engine="onnxruntime",
        p95_latency_s=0.5,
    )  # fmt: skip
    return replace(base, **given)


def bench(slower: float, *, rate: float = RATE, name: str = "b1", **work: Any) -> BenchedLoad:
    """What a server `slower` times as slow as the profile's curves shows at a rate."""
    served = replace(served_work(job()), **work)
    curve = service_curve(PROFILE, served)
    seen = [(share, curve.latency_s(share, rate, slower)) for share in ("mean", "p50", "p95")]
    latency = tuple((share, value) for share, value in seen if value is not None)
    return BenchedLoad(id=name, work=served, offered_per_s=rate, answered_per_s=rate, latency_s=latency)


def test_one_worker_with_equal_texts_waits_as_an_m_d_1_queue() -> None:
    """Mean latency s·(1 + u / (2·(1 - u))) at load u (Pollaczek and Khinchine, equal services): within 10 %, which is
    what 4,000 requests tell of it."""
    curve = latency_curve(EncoderQueue(batch_s=lambda *_: 0.01, workers=1, batch_tokens=1), FIXED)
    assert curve.saturation_per_s == pytest.approx(100.0)
    for load in (0.3, 0.6, 0.78):
        expected = 0.01 * (1 + load / (2 * (1 - load)))
        assert curve.latency_s("mean", 100 * load) == pytest.approx(expected, rel=0.1)


def test_a_slower_server_is_the_same_queue_on_a_slower_clock() -> None:
    """k times the latency at a k-th of the rate, and the slowness is found again from any percentile."""
    curve = latency_curve(EncoderQueue(batch_s=lambda *_: 0.01, workers=2, batch_tokens=1), FIXED)
    assert curve.latency_s("p95", 50.0, 2.0) == pytest.approx(2 * (curve.latency_s("p95", 100.0) or inf))
    assert curve.slowness("p95", 80.0, curve.latency_s("p95", 80.0, 1.4) or inf) == pytest.approx(1.4, rel=1e-3)
    assert curve.latency_s("p95", 250.0) is None


def test_what_waits_longest_goes_first_and_a_full_queue_turns_away() -> None:
    """Two lengths, one worker: batches are of one bucket, in the order of their first texts."""
    queue = EncoderQueue(batch_s=lambda texts, *_: 1.0 * texts, workers=1, batch_tokens=64)
    found = answer_times(queue, [0.0, 0.1, 0.2, 0.3], [16, 16, 100, 16])
    assert found.tolist() == pytest.approx([1.0, 2.9, 3.8, 2.7])
    assert answer_times(queue, [0.0, 0.1, 0.2], [16, 16, 16], most_waiting=1).tolist()[2] == inf


def test_texts_one_by_one_unless_a_batch_gains() -> None:
    """Time in proportion to texts: no batch. A call that costs far more than a text: the largest under the promise."""
    assert tuned_batch_tokens(lambda texts, *_: 0.01 * texts, 2, longest=128, p95_s=None) == 1
    assert tuned_batch_tokens(lambda *_: 0.01, 2, longest=128, p95_s=None) == 32 * 64
    assert tuned_batch_tokens(lambda texts, *_: 0.1 + 0.01 * texts, 2, longest=128, p95_s=0.3) == 4 * 64


def test_seconds_are_flop_over_rate_and_the_request() -> None:
    """MiniLM, 32 tokens: two FLOP a weight and token, and the scores; 1e11 FLOP a second; 1 ms besides."""
    shape = find_model("minilm")
    weights = 4 * 384 * 384 + 2 * 384 * 1536
    flop = 6 * 32 * (2.0 * weights + 4 * 32 * 384)
    assert forward_flop(shape, texts=1, tokens=32) == pytest.approx(flop)
    assert batch_seconds(PROFILE, shape)(1, 32, 1) == pytest.approx(flop / 1e11 + 1e-3)
    assert request_seconds(PROFILE, 512) == pytest.approx(1e-3)


def interval(made: LocalService) -> float:
    return made.slower.high / made.slower.low


def test_one_bench_moves_the_next_plan_and_narrows_it() -> None:
    """A server 1.4 times as slow: before, the curves; after one bench within 5 % of what is there, and far surer."""
    before, after = predict_service(job(), PROFILE), predict_service(job(), PROFILE, [bench(1.4)])
    assert before.slower.value == 1.0
    assert after.slower.value == pytest.approx(1.4, rel=0.05)
    assert interval(after) < interval(before) ** 0.5
    assert after.own_benches == ("b1",)
    seen, expected = after.latency_s("p95", 90.0), before.curve.latency_s("p95", 90.0, 1.4)
    assert seen is not None
    assert expected is not None
    assert seen.value == pytest.approx(expected, rel=0.08)
    assert seen.low < expected < seen.high


def test_another_model_corrects_less_than_the_service_itself() -> None:
    """What two models on one device have in common is learnt; each keeps its own doubt."""
    other = bench(1.4, shape=find_model("bert-base-uncased"), rate=20.0)
    known, own = predict_service(job(), PROFILE, [other]), predict_service(job(), PROFILE, [bench(1.4)])
    assert 1.0 < known.slower.value < own.slower.value
    assert interval(own) < interval(known) < interval(predict_service(job(), PROFILE))
    assert known.other_benches == ("b1",)


def test_a_saturated_bench_teaches_by_its_rate() -> None:
    """Where the service could not follow, latency tells how long the run was, and the rate tells how fast it is."""
    made = predict_service(job(), PROFILE)
    full = replace(bench(1.0), offered_per_s=1e4, answered_per_s=made.curve.saturation_per_s / 1.3)
    assert predict_service(job(), PROFILE, [full]).slower.value == pytest.approx(1.3, rel=0.05)


def test_rates_over_what_is_held_have_no_latency_and_break_the_plan() -> None:
    """A queue that grows without end has no percentile; the limit says how many machines would do."""
    made = predict_service(job(rate_per_s=1e4), PROFILE)
    assert made.latency_s("p95", 1e4) is None
    assert made.answered_per_s(1e4) == made.saturation_per_s
    (miss,) = broken_service_limits(made, Constraints())
    assert miss.binding == "max_nodes"
    assert not broken_service_limits(predict_service(job(), PROFILE), Constraints())


def test_a_batch_takes_its_items_at_saturation() -> None:
    """A deadline is held against items over the rate of all workers together."""
    batch = BatchJob(model=find_model("minilm"), requests=FIXED, items=10**6, weights="fp32")
    made = predict_service(batch, PROFILE)
    (miss,) = broken_service_limits(made, Constraints(deadline_s=60.0))
    assert miss.binding == "deadline"
    assert not broken_service_limits(made, Constraints(deadline_s=1e6 / made.saturation_per_s.value + 1))


@pytest.mark.parametrize(
    ("given", "said"),
    [({"weights": "fp16"}, "not measured"), ({"engine": "tensorrt"}, "not measured"),
     ({"model": find_model("gpt2")}, "plain encoders")],
)  # fmt: skip
def test_what_was_not_measured_is_refused(given: dict[str, Any], said: str) -> None:
    """Another number format, engine or architecture is not predicted from these curves."""
    with pytest.raises(InputError, match=said):
        predict_service(job(**given), PROFILE)
    with pytest.raises(InputError, match="no encoder was timed"):
        predict_service(job(), fake_profile())


ROW = {
    "config_id": "bench@1", "gpu": PROFILE.name, "kind": "encoder", "model": "minilm", "precision": "fp32",
    "engine": "onnxruntime", "input_len": "31.6", "metric": "requests_per_s", "value": "60",
    "note": "request_rate_qps=60; input mean=32 longest=32; client takes s=0.001",
}  # fmt: skip


def test_rows_of_a_bench_are_read_back() -> None:
    """Rate, lengths asked for and the client's share come from the note; latencies from their rows."""
    rows = [ROW, {**ROW, "metric": "latency_ms_p95", "value": "12.5"}]
    (found,), left_out = read_benches(rows, lambda row: find_model(row["model"]), PROFILE)
    assert not left_out
    assert found.work.configuration == served_work(job()).configuration
    assert (found.offered_per_s, found.latency_s, found.client_s) == (60.0, (("p95", 0.0125),), 0.001)


@pytest.mark.parametrize(
    "change", [{"gpu": "H100-SXM"}, {"engine": "vllm"}, {"precision": "int8"}, {"kind": "decoder"}, {"input_len": ""},
               {"value": "nan"}, {"note": "request_rate_qps=60"}],
)  # fmt: skip
def test_rows_of_anything_else_teach_nothing(change: dict[str, str]) -> None:
    """Another device, engine, number format or kind, lengths in words, no figure: left out, with a reason."""
    found, left_out = read_benches([{**ROW, **change}], lambda row: find_model(row["model"]), PROFILE)
    assert not found
    assert left_out
