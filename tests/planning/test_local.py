"""A training job on a measured device: physics that can be checked by hand, limits, and properties."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.calibration.measured_rows import measured_row

from tonnage.calibration.local_profile import Timing
from tonnage.calibration.local_rows import memory_parts, row_work, update
from tonnage.errors import InputError
from tonnage.planning.local import broken_limits, predict_local, training_job
from tonnage.sizing.local_memory import host_memory_parts, unfused_bytes
from tonnage.sizing.local_work import step_operations, trained_tensors
from tonnage.testing.devices import fake_profile
from tonnage.units import to_gib
from tonnage.workload.jobs import Constraints, Lengths, Lora, TrainJob
from tonnage.workload.known import find_model
from tonnage.workload.loading import parse_workload
from tonnage.workload.parameters import count_parameters
from tonnage.workload.programs import Program


def job(**given: Any) -> TrainJob:
    base = TrainJob(
        model=find_model("minilm"), samples=3200, lengths=Lengths(mean=32.0, maximum=32), epochs=1, global_batch=32,
        precision="fp32", objective="classification",
    )  # fmt: skip
    return replace(base, **given)


def flop_of(one: TrainJob) -> float:
    found = step_operations(one, micro_batch=32, accumulation=1)
    return sum(operation.amount * operation.calls for operation in found if operation.operation == "product")


def test_products_are_six_flop_for_each_weight_and_token() -> None:
    """Forward and two products backward over the matrices of the layers (Kaplan et al. 2020, arXiv:2001.08361: 6N)."""
    layers = 6 * (4 * 384 * 384 + 2 * 384 * 1536)
    assert flop_of(job()) == pytest.approx(6 * layers * 32 * 32)


def test_a_frozen_base_has_one_product_less() -> None:
    """LoRA leaves the gradient of the weights out: 4N for the base, and little for the adapters."""
    adapted = job(method="lora", lora=Lora(rank=8))
    assert 4 / 6 < flop_of(adapted) / flop_of(job()) < 4 / 6 * 1.2


@pytest.mark.parametrize("name", ["minilm", "bert-base-uncased", "gpt2", "llama-2-7b"])
def test_the_optimizer_steps_every_parameter_once(name: str) -> None:
    """The tensors it goes through sum to the parameters of the model."""
    shape = find_model(name)
    total = sum(size * count for size, count in trained_tensors(job(model=shape, objective="language-model")))
    assert total == pytest.approx(count_parameters(shape).total, rel=0.01)


def test_time_is_the_sum_of_its_parts_and_rate_its_inverse() -> None:
    """Without rows the step is what the curves sum to; 100 steps take a hundred times that."""
    made = predict_local(job(), fake_profile())
    assert made.step_s.value == pytest.approx(sum(part for _, part in made.time_parts_s))
    assert made.steps == 100
    assert made.run_s.value == pytest.approx(100 * made.step_s.value)
    assert made.samples_per_s.value == pytest.approx(32 / made.step_s.value)
    assert made.tokens_per_s.high == pytest.approx(32 * 32 / made.step_s.low)
    assert made.step_s.low < made.step_s.value < made.step_s.high


def test_no_more_threads_than_cores_that_may_be_used() -> None:
    """A profile of two cores under a limit of one; two processes share what there is."""
    profile = fake_profile(threads=(1, 2))
    assert predict_local(job(), profile, cores=1).work.threads == 1
    assert predict_local(job(), profile, processes=2, cores=2).work.threads == 1


def test_one_process_alone_holds_the_copy_that_is_saved() -> None:
    """With two processes half a copy's room is what the other one leaves to the first."""
    alone, pair = (
        [
            predict_local(job(), fake_profile(), threads=1, processes=count, saves_beside=saves)
            for saves in (False, True)
        ]
        for count in (1, 2)
    )
    copy_gib = alone[1].peak_memory_gib.value - alone[0].peak_memory_gib.value
    assert copy_gib > 0
    assert alone[1].memory_available_gib == alone[0].memory_available_gib
    assert pair[1].memory_available_gib - pair[0].memory_available_gib == pytest.approx(copy_gib / 2)


def test_adapters_need_their_library() -> None:
    """Its resident memory stands beside the framework's where adapters are trained, and only there."""
    profile, more = fake_profile(), replace(fake_profile(), adapter_library_bytes=2.0**26)
    for method, added in (("full", 0.0), ("lora", 2.0**26)):
        before, after = (memory_parts(predict_local(job(method=method), one).work, one) for one in (profile, more))
        assert after["framework"] - before["framework"] == added


def test_small_steps_take_the_threads_they_are_quickest_with() -> None:
    """Two threads that lose more by being woken than they gain are not chosen; those that gain are."""
    profile = fake_profile(threads=(1, 2))
    assert predict_local(job(), profile).work.threads == 2
    slow = tuple(
        replace(curve, points=tuple(replace(point, timing=_longer(point.timing, 3.0)) for point in curve.points))
        if curve.threads == 2 else curve for curve in profile.curves
    )  # fmt: skip
    assert predict_local(job(), replace(profile, curves=slow)).work.threads == 1
    assert predict_local(job(), replace(profile, curves=slow), threads=2).work.threads == 2


def _longer(timing: Timing, factor: float) -> Timing:
    return replace(
        timing, low_quartile_s=factor * timing.low_quartile_s, median_s=factor * timing.median_s,
        high_quartile_s=factor * timing.high_quartile_s,
    )  # fmt: skip


def test_faster_products_more_threads_and_half_precision_are_never_slower() -> None:
    """Twice the rate, twice the threads, bf16 at twice the rate: each below the plain step."""
    plain = predict_local(job(), fake_profile(), threads=1).step_s.value
    assert predict_local(job(), fake_profile(flop_per_s=2e11), threads=1).step_s.value < plain
    assert predict_local(job(), fake_profile(), threads=2).step_s.value < plain
    assert predict_local(job(precision="bf16"), fake_profile(), threads=1).step_s.value < plain


def test_longer_sequences_cost_more_than_in_proportion() -> None:
    """Attention grows with the square: four times the length takes more than four times the attention."""
    short, long = (predict_local(job(lengths=Lengths(mean=n, maximum=int(n))), fake_profile()) for n in (32.0, 128.0))
    parts = [dict(one.time_parts_s) for one in (short, long)]
    assert parts[1]["attention"] == pytest.approx(16 * parts[0]["attention"])
    assert parts[1]["products"] == pytest.approx(4 * parts[0]["products"])


def test_a_run_on_the_device_corrects_and_narrows() -> None:
    """After a row 1.5 times slower the same job is predicted near it, within a narrower interval."""
    profile = fake_profile()
    before = predict_local(job(), profile)
    slow = measured_row(
        before.work, profile, id="a", metric="iteration_time_s", value=1.5 * before.step_s.value, source="test",
        log_sd=0.01,
    )  # fmt: skip
    after = predict_local(job(), update(profile, [slow]))
    assert after.step_s.value == pytest.approx(1.5 * before.step_s.value, rel=0.02)
    assert after.step_s.high / after.step_s.low < before.step_s.high / before.step_s.low
    assert after.time_rows == 1
    assert after.peak_memory_gib == before.peak_memory_gib


def test_a_profile_of_a_busy_machine_is_less_sure_of_times() -> None:
    """Others took half of the processors while it was measured: alone the machine may be much faster, and the interval
    reaches much further; memory is as sure as before, and a run on the machine itself tells better."""
    busy = replace(fake_profile(), others_cpu_fraction=0.5)
    before, after = (predict_local(job(micro_batch=32), one) for one in (fake_profile(), busy))
    assert after.step_s.low < 0.75 * before.step_s.low
    assert after.step_s.value == before.step_s.value
    assert after.peak_memory_gib == before.peak_memory_gib
    seconds = before.step_s.value
    row = measured_row(before.work, busy, id="m1", metric="iteration_time_s", value=seconds, source="test")
    taught = predict_local(job(micro_batch=32), update(busy, [row]))
    assert taught.step_s.low > 0.85 * seconds


def test_host_memory_holds_the_framework_and_the_state() -> None:
    """22.7 M parameters in fp32 with AdamW: 16 bytes each beside the framework; no part of a GPU's runtime."""
    parts = host_memory_parts(job(), micro_batch=32, accumulation=1, framework_bytes=1e9)
    state = sum(parts.get(name, 0.0) for name in ("weights", "optimizer"))
    assert state == pytest.approx(12 * count_parameters(find_model("minilm")).total, rel=0.01)
    assert parts["framework"] == 1e9
    assert not {"context", "workspace", "fragmentation"} & set(parts)


def test_a_copy_that_is_saved_beside_the_training_takes_memory() -> None:
    """Weights and moments of 22.7 M parameters once more, of adapters alone under LoRA; not on the device of a GPU. A
    file that `tonnage run` carries out is predicted so by every verb; its measured rows say so."""
    profile, parameters = fake_profile(), count_parameters(find_model("minilm")).total
    plain, beside = (predict_local(job(), profile, saves_beside=value) for value in (False, True))
    more = dict(beside.memory_parts_gib)["checkpoint_copy"]
    assert more == pytest.approx(to_gib(12 * parameters), rel=0.01)
    assert beside.peak_memory_gib.value == pytest.approx(plain.peak_memory_gib.value + more)
    adapted = dict(predict_local(job(method="lora"), profile, saves_beside=True).memory_parts_gib)
    assert 0 < adapted["checkpoint_copy"] < 0.05 * more
    assert "checkpoint_copy" not in memory_parts(beside.work, replace(profile, kind="cuda"))
    own = predict_local(job(program=Program(name="tonnage")), profile)
    assert own.peak_memory_gib == beside.peak_memory_gib
    row = measured_row(plain.work, profile, id="m1", metric="peak_mem_gib", value=1.2, source="test")
    assert not row_work(row, profile).saves_beside
    assert row_work(replace(row, note=row.note + "; saves=beside"), profile).saves_beside


def test_dropout_on_a_cpu_keeps_twelve_bytes_a_score() -> None:
    """Softmax, noise and dropped scores in 32 bit, whatever the precision; models without dropout keep none."""
    lengths = [Lengths(mean=float(n), maximum=n) for n in (128, 256)]
    for precision, counted in (("fp32", 9.0), ("bf16", 7.0)):
        one, two = (unfused_bytes(job(lengths=length, precision=precision), 4) for length in lengths)
        scores = 6 * 12 * 4 * 128 * 128
        assert two - 2 * one == pytest.approx(2 * scores * (12.0 - counted))
    assert unfused_bytes(job(model=find_model("llama-2-7b")), 4) == 0


def test_larger_batches_never_need_less_memory() -> None:
    """Peak over micro-batch is monotone."""
    peaks = [
        sum(host_memory_parts(job(), micro_batch=n, accumulation=1, framework_bytes=1e9).values())
        for n in (1, 2, 8, 32, 128, 512)
    ]
    assert peaks == sorted(peaks)


def test_a_batch_that_does_not_fit_is_cut_into_micro_batches() -> None:
    """The global batch stays; what does not fit even then does not fit."""
    long = job(lengths=Lengths(mean=512.0, maximum=512), global_batch=256)
    cut = predict_local(long, fake_profile(memory_gib=6.0))
    assert cut.fits
    assert cut.work.micro_batch < 256
    assert cut.work.samples_per_step >= 256
    assert not predict_local(long, fake_profile(memory_gib=0.6)).fits


def test_accumulation_costs_gradient_sums() -> None:
    """Four micro-batches of 8 take longer than one of 32."""
    whole, cut = (predict_local(job(), fake_profile(), micro_batch=size) for size in (32, 8))
    assert "gradient sums" in dict(cut.time_parts_s)
    assert cut.step_s.value > whole.step_s.value


def test_two_processes_sum_their_gradients() -> None:
    """alpha for each bucket and the bytes over beta; three were not measured."""
    made = predict_local(job(), fake_profile(), processes=2, threads=1)
    parameters = count_parameters(find_model("minilm")).total
    assert dict(made.time_parts_s)["all-reduce"] == pytest.approx(4 * 1e-4 + 4 * parameters / 1e9, rel=1e-3)
    assert made.work.samples_per_step == 32
    with pytest.raises(InputError, match="3 processes"):
        predict_local(job(), fake_profile(), processes=3, threads=1)


def test_an_hour_has_a_price_only_where_it_is_stated() -> None:
    """Unknown stays unknown; at $3.60 an hour a second is a tenth of a cent."""
    assert predict_local(job(), fake_profile()).cost_usd is None
    made = predict_local(job(), fake_profile(usd_per_hour=3.6))
    assert made.cost_usd is not None
    assert made.cost_usd.value == pytest.approx(made.run_s.value / 1000)


def test_limits_that_do_not_hold_are_named() -> None:
    """Deadline, budget and memory; with `hold` at the far end of the interval."""
    made = predict_local(job(), fake_profile(usd_per_hour=3600.0))
    tight = Constraints(deadline_s=made.run_s.value / 2, budget_usd=made.run_s.value / 2)
    assert [one.binding for one in broken_limits(made, tight)] == ["deadline", "budget"]
    between = Constraints(deadline_s=(made.run_s.value + made.run_s.high) / 2)
    assert not broken_limits(made, between)
    assert [one.binding for one in broken_limits(made, replace(between, hold=True))] == ["deadline"]
    small = predict_local(job(), fake_profile(memory_gib=0.3))
    assert [one.binding for one in broken_limits(small, Constraints())] == ["memory"]


@pytest.mark.parametrize(
    ("change", "said"),
    [({"precision": "fp16"}, "fp16"), ({"method": "qlora"}, "4-bit"), ({"compile": True}, "compile"),
     ({"optimizer": "adafactor"}, "adafactor"), ({"model": find_model("resnet-50")}, "resnet-50")],
)  # fmt: skip
def test_what_no_curve_holds_is_refused(change: dict[str, Any], said: str) -> None:
    """No stand-in: what was not measured is not predicted."""
    with pytest.raises(InputError, match=said):
        predict_local(job(**change), fake_profile())


def test_thread_counts_that_were_not_measured_are_refused() -> None:
    """The message names those that were, the hint how to measure more."""
    with pytest.raises(InputError, match="1, 2") as caught:
        predict_local(job(), fake_profile(), threads=7)
    assert "--threads 7" in str(caught.value.hint)


def test_only_training_is_predicted_on_a_local_device() -> None:
    """A service is told so."""
    text = "kind: serve\nmodel: bert-base-uncased\nserve: {rate_per_s: 1, input_tokens: 64, p95_latency: 100ms}\n"
    service = parse_workload(text, file=None, folder=Path(), as_of=datetime(2026, 11, 20, tzinfo=UTC))
    with pytest.raises(InputError, match="serve"):
        training_job(service)


def test_a_small_table_is_no_page_by_page_fill() -> None:
    """Of a table under glibc's largest threshold the gradient's block is memory that the process has; beyond, it is
    mapped anew and costs in proportion to its bytes, however large the block that was measured."""
    tiny = replace(find_model("minilm"), vocab=52)
    kinds = [
        {one.operation for one in step_operations(job(model=shape), micro_batch=32, accumulation=1)
         if one.name == "embedding gradient"}
        for shape in (tiny, find_model("minilm"))
    ]  # fmt: skip
    assert kinds == [{"stream"}, {"first touch"}]
    curve = fake_profile().curve("first touch", "fp32", 1)
    single = replace(curve, points=curve.points[-1:])
    assert single.seconds(1e3, 1e3) == pytest.approx(single.seconds(1e6, 1e6) / 1000)
