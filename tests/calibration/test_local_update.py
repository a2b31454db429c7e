"""The Bayesian update of a local device: exact, narrowing, and the same whatever the order of rows."""

from __future__ import annotations

import random
from dataclasses import replace
from math import exp, hypot, log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.calibration.measured_rows import measured_row

from tonnage.calibration.local_file import profile_text
from tonnage.calibration.local_profile import DeviceProfile, MeasuredPoint, Timing
from tonnage.calibration.local_rows import (
    REPEATS,
    LocalWork,
    memory_parts,
    observations,
    read_rows,
    row_work,
    rows_csv,
    run_to_run_log_sd,
    time_parts,
    update,
)
from tonnage.calibration.local_update import (
    COMMON_SHARE,
    CONFIGURATION_SHARE,
    METHOD_SHARE,
    LocalObservation,
    condition,
)
from tonnage.calibration.rows import TrainingRow
from tonnage.errors import InputError
from tonnage.testing.devices import fake_profile
from tonnage.units import to_gib
from tonnage.workload.jobs import Lengths, TrainJob
from tonnage.workload.known import find_model

PRIOR = 0.2
SHARES = {"products": 0.6, "attention": 0.4}


def work(batch: int = 16, length: int = 32, precision: str = "fp32", threads: int = 2) -> LocalWork:
    job = TrainJob(
        model=find_model("minilm"), samples=1, lengths=Lengths(mean=float(length), maximum=length), epochs=1,
        global_batch=batch, precision=precision, objective="classification",  # type: ignore[arg-type]
    )  # fmt: skip
    return LocalWork(job=job, micro_batch=batch, accumulation=1, threads=threads)


def row(
    profile: DeviceProfile, number: int = 1, factor: float = 1.3, log_sd: float | None = 0.02, **given: int
) -> TrainingRow:
    """A row that took `factor` times what the profile predicts."""
    done = work(**given)
    seconds = sum(time_parts(done, profile).values()) * factor
    return measured_row(
        done, profile, id=f"m{number}", metric="iteration_time_s", value=seconds, source="test", log_sd=log_sd
    )


def seen(name: str, ratio: float, noise: float = 0.05, shares: dict[str, float] | None = None) -> LocalObservation:
    return LocalObservation(
        configuration=name, shares=tuple((shares or SHARES).items()), log_ratio=ratio, noise_log_sd=noise
    )


def test_the_posterior_is_that_of_the_normal_equations() -> None:
    """The dual form used here gives what Bishop's equations 3.50 and 3.51 give over all unknowns at once."""
    groups, names, methods = ["products", "attention"], ["a", "b", "new"], ["full", "lora"]
    other = replace(seen("b", -0.1, 0.1, {"products": 0.2, "attention": 0.8}), method="lora")
    rows = [replace(seen("a", 0.3), method="full"), other, replace(seen("a", 0.25, 0.03), method="full")]
    variance = PRIOR**2
    own, alike = CONFIGURATION_SHARE * variance, METHOD_SHARE * variance
    prior = np.zeros((7, 7))
    prior[:2, :2] = (variance - own - alike) * (COMMON_SHARE * np.ones((2, 2)) + (1 - COMMON_SHARE) * np.eye(2))
    prior[2:5, 2:5] = own * np.eye(3)
    prior[5:, 5:] = alike * np.eye(2)

    def features(shares: dict[str, float], name: str, method: str) -> np.ndarray:
        told = (*(float(name == one) for one in names), *(float(method == one) for one in methods))
        return np.array([*(shares[group] for group in groups), *told])

    design = np.stack([features(dict(one.shares), one.configuration, one.method) for one in rows])
    precision = np.diag([one.noise_log_sd**-2 for one in rows])
    covariance = np.linalg.inv(np.linalg.inv(prior) + design.T @ precision @ design)
    mean = covariance @ design.T @ precision @ np.array([one.log_ratio for one in rows])
    for name, method in (("a", "full"), ("new", "full"), ("new", "lora")):
        wanted = features(SHARES, name, method)
        found = condition(rows, PRIOR, SHARES, name, method)
        assert found.mean == pytest.approx(wanted @ mean, rel=1e-9)
        assert found.log_sd == pytest.approx(np.sqrt(wanted @ covariance @ wanted), rel=1e-9)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.floats(-1, 1), st.floats(0.01, 0.5)), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
)
def test_order_does_not_show_in_a_single_bit(rows: list[tuple[str, float, float]], shuffler: random.Random) -> None:
    """The same observations in any order give the same belief, bit for bit."""
    observed = [seen(*one) for one in rows]
    shuffled = list(observed)
    shuffler.shuffle(shuffled)
    assert condition(observed, PRIOR, SHARES, "a") == condition(shuffled, PRIOR, SHARES, "a")


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(-1, 1), st.floats(0.01, 0.5)), max_size=8),
    st.tuples(st.sampled_from("abc"), st.floats(-1, 1), st.floats(0.01, 0.5)),
    st.sampled_from("abz"),
)
def test_a_row_more_narrows_the_interval(
    rows: list[tuple[str, float, float]], more: tuple[str, float, float], name: str
) -> None:
    """Of what was run and of what was not: the spread after one more row is below the one before."""
    before = condition([seen(*one) for one in rows], PRIOR, SHARES, name)
    after = condition([seen(*one) for one in (*rows, more)], PRIOR, SHARES, name)
    assert after.log_sd < before.log_sd + 1e-12


def test_without_rows_the_prior_stands() -> None:
    """No row: factor one, and the packaged spread for work of one group."""
    belief = condition((), PRIOR, {"products": 1.0}, "a")
    assert (belief.mean, belief.log_sd) == (0.0, pytest.approx(PRIOR))


def test_one_run_says_much_about_itself_and_something_about_others() -> None:
    """After one run 1.3 times slower, the same work is predicted within 3 %, other work moves towards it."""
    profile = update(fake_profile(), [row(fake_profile())])
    ratios = observations(profile, "time")
    same = condition(ratios, PRIOR, dict(ratios[0].shares), ratios[0].configuration, "full")
    other = condition(ratios, PRIOR, dict(ratios[0].shares), "another", "full")
    assert exp(same.mean) == pytest.approx(1.3, rel=0.03)
    assert 0 < other.mean < same.mean
    assert same.log_sd < other.log_sd < PRIOR


def test_a_run_with_adapters_teaches_other_runs_with_adapters() -> None:
    """What the physics leaves out of LoRA is LoRA's: after one such run another shape's LoRA moves further towards it,
    and is surer, than its full fine-tuning."""
    rows = [replace(seen("a", 0.4, 0.02), method="lora")]
    lora, full = (condition(rows, PRIOR, SHARES, "new", method) for method in ("lora", "full"))
    assert lora.mean > full.mean > 0
    assert lora.log_sd < full.log_sd < PRIOR


def test_the_noise_of_a_rate_is_that_of_its_mean() -> None:
    """Steps that differ by 30 % give a mean over 100 of them that is sure to 3 %, and runs differ by 3 % from each
    other; memory is no mean of steps, and its noise is its own."""
    profile = fake_profile()
    noisy = row(profile, 1, log_sd=0.3)
    rows = [replace(noisy, note=f"{noisy.note} steps=100")]
    [found] = observations(update(profile, rows), "time")
    assert found.noise_log_sd == pytest.approx(hypot(0.03, REPEATS["time"]))
    memory = replace(rows[0], id="m2", metric="peak_mem_gib", value=1.0, mem_kind="host RSS of one process")
    [found] = observations(update(profile, [memory]), "memory")
    assert found.noise_log_sd == REPEATS["memory"]


def test_repeats_tell_how_far_runs_differ() -> None:
    """Ten runs of one work within 1 % narrow the interval of the next below what two runs apart by 20 % leave."""
    alike, apart = ([row(fake_profile(), n, 1.3 * factor) for n, factor in enumerate(factors)] for factors in (
        [1.0, 1.005, 1.01, 1.0, 0.995, 1.002, 0.998, 1.0, 1.004, 0.996], [0.9, 1.1]))  # fmt: skip
    close, distant = (run_to_run_log_sd(update(fake_profile(), rows), "time") for rows in (alike, apart))
    assert close < REPEATS["time"] < distant


def test_memory_goes_by_the_longest_sequence_and_time_by_the_mean() -> None:
    """A row of memory names the longest sequence, a row of a rate the mean: each is the same work as the plan's job."""
    planned = replace(work().job, lengths=Lengths(mean=20.4, maximum=32))
    one, other = (replace(work(), job=replace(planned, lengths=lengths)) for lengths in (
        Lengths(mean=20.0, maximum=20), Lengths(mean=32.0, maximum=32)))  # fmt: skip
    here = replace(work(), job=planned)
    assert here.configuration == one.configuration != other.configuration
    assert here.memory_configuration == other.memory_configuration != one.memory_configuration


def test_export_and_import_reproduce_the_fit_bit_for_bit(tmp_path: Path) -> None:
    """Rows one by one, shuffled at once, and through a CSV file give profiles of the same bytes and beliefs."""
    profile = fake_profile()
    rows = [row(profile, n, 1 + n / 7, batch=16 + n, length=32 * (1 + n % 3)) for n in range(1, 9)]
    at_once = update(profile, rows)
    one_by_one = profile
    for one in reversed(rows):
        one_by_one = update(one_by_one, [one])
    file = tmp_path / "rows.csv"
    file.write_text(rows_csv(rows), encoding="utf-8")
    imported = update(profile, random.Random(3).sample(read_rows(file), len(rows)))
    assert profile_text(at_once) == profile_text(one_by_one) == profile_text(imported)
    beliefs = {condition(observations(one, "time"), PRIOR, SHARES, "x") for one in (at_once, one_by_one, imported)}
    assert len(beliefs) == 1
    assert rows_csv(read_rows(file)) == file.read_text(encoding="utf-8")


def test_the_same_row_twice_counts_once() -> None:
    """Importing a file again changes nothing; another row of the same id is refused."""
    profile = fake_profile()
    once = update(profile, [row(profile)])
    assert update(once, [row(profile)]) == once
    with pytest.raises(InputError, match="two different rows"):
        update(once, [row(profile, factor=2.0)])


@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan"), float("inf")])
def test_values_that_are_no_measurement_are_refused(value: float) -> None:
    """Negative, zero, NaN and infinite figures name their row."""
    profile = fake_profile()
    with pytest.raises(InputError, match="m1"):
        update(profile, [replace(row(profile), value=value)])


def test_rows_of_another_device_are_refused() -> None:
    """A row's `gpu` must be the profile's name."""
    profile = fake_profile()
    with pytest.raises(InputError, match="local-other"):
        update(profile, [replace(row(profile), gpu="local-other")])


@pytest.mark.parametrize(
    ("change", "said"),
    [({"seq_len": None}, "seq_len"), ({"precision": "fp16"}, "fp16"), ({"note": "log_sd=loud"}, "not a number"),
     ({"note": "log_sd=-1"}, "at least zero")],
)  # fmt: skip
def test_rows_that_say_too_little_are_refused(change: dict[str, object], said: str) -> None:
    """What was run must be told by the row."""
    profile = fake_profile()
    with pytest.raises(InputError, match=said):
        update(profile, [replace(row(profile), **change)])  # type: ignore[arg-type]


def test_rows_of_other_metrics_and_suspect_ones_are_left_out() -> None:
    """A local fit reads time and peak memory; what is marked suspect teaches nothing."""
    profile = fake_profile()
    others = [replace(row(profile), metric="energy_j"), replace(row(profile, 2), quality="suspect")]
    assert update(profile, others) == profile


def test_rows_of_runs_name_the_processor_and_sum_memory_over_processes() -> None:
    """A row may call the device by its own name; a sum over processes counts for each; an allocator's count does
    not."""
    profile = fake_profile()
    named = update(profile, [replace(row(profile), gpu="Fake CPU")])
    assert len(named.rows) == 1
    peak = to_gib(sum(memory_parts(work(threads=1), profile).values()))
    base = measured_row(
        replace(work(threads=1), processes=2), profile, id="x", metric="peak_mem_gib", value=2 * peak, source="test",
        mem_kind="host RSS, sum over the run's processes",
    )  # fmt: skip
    assert observations(update(profile, [base]), "memory")[0].log_ratio == pytest.approx(0.0)
    assert update(profile, [replace(base, mem_kind="allocated (max_memory_allocated)")]) == profile


def test_a_row_says_the_work_it_was_measured_on() -> None:
    """Work -> row -> work: the same configuration, so that a run corrects the prediction of itself."""
    profile = fake_profile()
    done = work(batch=32, length=128, precision="bf16", threads=1)
    made = measured_row(done, profile, id="x", metric="iteration_time_s", value=1.0, source="test")
    assert row_work(made, profile).configuration == done.configuration


@pytest.mark.parametrize(
    ("metric", "value"),
    [("iteration_time_s", 2.0), ("sequences_per_s", 8.0), ("tokens_per_s_per_gpu", 256.0)],
)
def test_every_time_metric_is_the_same_step(metric: str, value: float) -> None:
    """16 sequences of 32 tokens in 2 s, said in three ways."""
    profile = fake_profile()
    rows = update(profile, [replace(row(profile), metric=metric, value=value)])
    predicted = sum(time_parts(work(), profile).values())
    assert observations(rows, "time")[0].log_ratio == pytest.approx(log(2.0 / predicted))


def test_measured_memory_corrects_memory_alone() -> None:
    """A peak 1.2 times the predicted one is a memory row; time stays as it was."""
    profile = fake_profile()
    peak = to_gib(sum(memory_parts(work(), profile).values())) * 1.2
    made = measured_row(work(), profile, id="x", metric="peak_mem_gib", value=peak, source="test", log_sd=0.01)
    known = update(profile, [made])
    assert not observations(known, "time")
    assert observations(known, "memory")[0].log_ratio == pytest.approx(log(1.2))


@pytest.mark.parametrize("launch_s", [1e-9, 3e-5, 1e-3])
def test_a_gpu_is_launched_ahead_of(launch_s: float) -> None:
    """On a GPU a step takes what the slower of host and device takes, not their sum: launches hide behind the device,
    or it waits for them. On a processor both are its own work."""
    timing = Timing(median_s=launch_s, low_quartile_s=launch_s, high_quartile_s=launch_s, repeats=9)
    plain = fake_profile()
    curves = tuple(
        replace(curve, points=(MeasuredPoint(size=1.0, amount=1.0, timing=timing),))
        if curve.operation == "dispatch" else curve
        for curve in plain.curves
    )  # fmt: skip
    summed = time_parts(work(), replace(plain, curves=curves))
    ahead = time_parts(work(), replace(plain, curves=curves, kind="cuda"))
    device = sum(seconds for name, seconds in summed.items() if name != "dispatch")
    host = launch_s * sum(one.calls for one in work().operations())
    assert max(host, device) * 0.999 <= sum(ahead.values()) <= max(host, device) * 1.19
    assert sum(ahead.values()) <= device + host
    assert {name: ahead[name] for name in ahead if name != "dispatch"} == {
        name: summed[name] for name in summed if name != "dispatch"
    }
