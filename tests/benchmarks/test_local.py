"""Measuring this machine: samples, threads, and (slow) a quick profile that plans the work it stands for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from tonnage.benchmarks import local, timing
from tonnage.benchmarks.local import Prior, measure_curves, measure_device
from tonnage.benchmarks.machine import check_memory, check_threads, group_memory_bytes, read_identity
from tonnage.benchmarks.operations import FULL_CPU, FULL_CUDA, QUICK, QUICK_CUDA, Extent, Probe, probes, queued
from tonnage.benchmarks.timing import CallTimer, Samples, take_samples
from tonnage.errors import InputError
from tonnage.planning.local import predict_local
from tonnage.workload.jobs import Lengths, TrainJob
from tonnage.workload.known import find_model

SMALL = Extent(
    products=(16, 32), elements=(512, 4096), lengths=(8,), tensors=(64,), touched_bytes=4096, pool_bytes=2**23
)


def test_the_first_call_does_not_count() -> None:
    """It warms up; at least as many repeats as asked for follow."""
    calls: list[int] = []
    samples = Samples()
    take_samples(lambda: calls.append(1), CallTimer(lambda: None, 0), samples, budget_s=0.0, fewest=5)
    assert (len(calls), len(samples.seconds)) == (6, 5)


def test_queued_calls_are_one_sample() -> None:
    """Ten calls, then one wait: what a GPU is timed by."""
    calls: list[str] = []
    samples = Samples()
    clock = CallTimer(lambda: calls.append("wait"), 0)
    take_samples(queued(lambda: calls.append("work"), 10), clock, samples, budget_s=0.0)
    assert calls == [*["work"] * 10, "wait"] * 2
    assert len(samples.seconds) == 1


@pytest.mark.parametrize("extent", [FULL_CPU, QUICK, FULL_CUDA, QUICK_CUDA])
def test_the_pool_holds_the_largest_input(extent: Extent) -> None:
    """Every tensor that an extent asks for can be cut from its pool."""
    largest = max(*(side**2 for side in extent.products), *extent.elements, extent.attended_tokens * 12 * 128)
    assert 4 * largest <= extent.pool_bytes


def test_a_gpu_is_given_enough_to_do() -> None:
    """Attention over thousands of tokens at every length, and an optimizer of many tensors: at the sizes of a processor
    a GPU is timed at being launched, which then counts for every part of a larger batch."""
    torch = pytest.importorskip("torch")
    whole = Extent(products=(16,), elements=(512,), lengths=(64, 128), tensors=(64,), touched_bytes=4096,
                   pool_bytes=2**27, attended_tokens=256, stepped_elements=2**10, most_stepped=8)  # fmt: skip
    found = list(probes(torch, "cpu", ("fp32",), whole))
    attended = {probe.size: probe.amount for probe in found if probe.operation == "attention plain 32"}
    assert attended == {64.0: 4 * 12 * 64 * 64, 128.0: 2 * 12 * 128 * 128}
    (stepped,) = [probe for probe in found if probe.operation == "adamw"]
    assert stepped.make()[1] == 8.0
    assert FULL_CUDA.fused_optimizer
    assert not FULL_CPU.fused_optimizer


def test_median_and_quartiles_are_of_one_piece_of_work() -> None:
    """Three pieces a call: a third of each figure."""
    made = Samples(seconds=[3.0, 6.0, 9.0]).timing(3.0)
    assert (made.low_quartile_s, made.median_s, made.high_quartile_s) == (1.5, 2.0, 2.5)


def test_of_several_threads_undisturbed_repeats_count_alone() -> None:
    """Three are enough; with fewer, or one thread, disturbed ones count with their wait taken off."""
    samples = Samples(seconds=[1.0, 1.0, 1.0], corrected=[5.0, 5.0, 5.0, 5.0, 5.0])
    assert (samples.timing(threads=2).median_s, samples.timing(threads=2).repeats) == (1.0, 3)
    assert (samples.timing().median_s, samples.timing().disturbed) == (5.0, 5)
    assert Samples(seconds=[1.0], corrected=[5.0, 5.0]).timing(threads=2).median_s == 5.0


def test_waiting_for_a_processor_is_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call during which a thread waited 0.3 of its seconds counts without them, and as disturbed."""
    delays = iter([{"1": 1.0}, {"1": 1.3}])
    ticks = iter([10.0, 11.0])
    monkeypatch.setattr(timing, "run_delays", lambda: next(delays))
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: next(ticks), process_time=lambda: 0.0))
    seconds, disturbed = CallTimer(lambda: None, 1).time(lambda: None)
    assert seconds == pytest.approx(0.7)
    assert disturbed


def test_too_little_free_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is allocated."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=100 * 2**20))
    with pytest.raises(InputError, match=r"0\.1 GiB"):
        check_memory()


def test_memory_of_a_control_group_counts_where_it_is_limited(tmp_path: Path) -> None:
    """A figure is a limit; `max`, a figure near 2⁶³ or no file is none."""
    file = tmp_path / "memory.max"
    for text, expected in (("max\n", None), ("9223372036854771712\n", None), ("2147483648\n", 2**31)):
        file.write_text(text)
        assert group_memory_bytes((tmp_path / "absent", file)) == expected


def test_a_gpu_that_is_not_there_is_reported() -> None:
    """torch sees none: what to do instead is named."""
    blind = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    with pytest.raises(InputError, match="no CUDA GPU") as caught:
        read_identity(blind, "cuda")
    assert "--device cpu" in str(caught.value.hint)


def test_memory_that_runs_out_is_told_and_threads_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's message becomes one line with what to do; any other error stays what it is."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()

    def failing(message: str) -> Probe:
        def make() -> tuple[Callable[[], object], float]:
            raise RuntimeError(message)

        return Probe(operation="product", precision="fp32", unit="flop", size=1.0, amount=1.0, make=make)

    for message, expected in (("DefaultCPUAllocator: can't allocate memory", InputError), ("odd", RuntimeError)):
        monkeypatch.setattr(local, "probes", lambda *_, said=message: [failing(said)])
        with pytest.raises(expected):
            measure_curves(torch, "cpu", threads + 1, True, lambda *_: None)
        assert torch.get_num_threads() == threads


def test_every_operation_that_training_asks_for_is_measured() -> None:
    """Each probe runs and is timed; together they name all the curves that a step looks up."""
    torch = pytest.importorskip("torch")
    from tonnage.sizing.local_work import step_operations

    samples = {}
    for probe in probes(torch, "cpu", ("fp32",), SMALL):
        call, times = probe.make()
        found = Samples()
        take_samples(call, CallTimer(lambda: None, 1), found, budget_s=0.0)
        assert found.timing(times).median_s > 0
        samples[probe.operation, probe.precision] = probe
    for name in ("minilm", "gpt2", "llama-2-7b"):
        job = TrainJob(
            model=find_model(name), samples=1, lengths=Lengths(mean=32.0, maximum=32), epochs=1, global_batch=1,
            precision="fp32",
        )  # fmt: skip
        for operation in step_operations(job, micro_batch=1, accumulation=2):
            assert (operation.operation, operation.precision) in samples


@pytest.mark.slow
def test_a_quick_profile_of_this_machine_predicts_training() -> None:
    """Measured for real: every curve has rates above zero, two processes summed, and a job gets its figures."""
    torch = pytest.importorskip("torch")
    prior = Prior(time_log_sd=0.2, memory_log_sd=0.2, source="test")
    profile = measure_device("cpu", prior=prior, now=datetime(2026, 11, 20, tzinfo=UTC), threads=(1,), quick=True)
    assert profile.threads == (1,)
    assert profile.all_reduce is not None
    assert profile.all_reduce.bytes_per_s > 0
    job = TrainJob(
        model=find_model("minilm"), samples=100, lengths=Lengths(mean=32.0, maximum=32), epochs=1, global_batch=16,
        precision="fp32",
    )  # fmt: skip
    made = predict_local(job, profile)
    assert made.step_s.value > 0
    before = torch.get_num_threads()
    assert measure_curves(torch, "cpu", 1, True, lambda *_: None)
    assert torch.get_num_threads() == before


def test_threads_that_spin_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch is loaded in this process; without the setting that its threads sleep by they would be of another kind."""
    import torch  # noqa: F401

    check_threads()
    monkeypatch.delenv("OMP_WAIT_POLICY")
    with pytest.raises(InputError, match="spin") as caught:
        check_threads()
    assert "OMP_WAIT_POLICY=PASSIVE" in str(caught.value.hint)
