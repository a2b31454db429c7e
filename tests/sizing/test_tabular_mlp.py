"""The perceptron over a table: arithmetic that can be checked by hand, a measured rate, and what must always hold."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tonnage.sizing.devices import Devices
from tonnage.sizing.tabular import (
    MLP_TIME_SPREAD,
    TREES_TIME_ON_GPUS_SPREAD,
    CpuColumns,
    TabularAssumptions,
    TabularEstimate,
    estimate_mlp_on_cpus,
    estimate_mlp_on_gpus,
    time_spread,
)
from tonnage.sizing.tabular_mlp import parameters, step_flop, steps
from tonnage.units import from_gib
from tonnage.workload.jobs import TabularJob

JOB = TabularJob(rows=1_000_000, features=300, method="mlp", hidden_layers=(512, 256), epochs=10)
PRODUCTS = Path(__file__).parents[2] / "benchmarks" / "results" / "tabular_products.csv"


def on_gpus(job: TabularJob, devices: Devices, count: float = 1.0) -> TabularEstimate:
    return estimate_mlp_on_gpus(job, devices, np.array([count]), np.array([from_gib(64.0)]))


def on_cpus(job: TabularJob, vcpus: list[float], arm: bool = False) -> TabularEstimate:
    columns = CpuColumns(
        vcpus=np.array(vcpus, dtype=np.float64),
        memory_bytes=np.full(len(vcpus), from_gib(64.0)),
        arm=np.full(len(vcpus), arm),
    )
    return estimate_mlp_on_cpus(job, columns)


def test_parameters_and_flop_by_hand() -> None:
    """300 x 512 + 512 x 256 + 256 x 1 weights and 769 biases; six FLOP a weight and row, less the input's gradient."""
    weights = 300 * 512 + 512 * 256 + 256
    assert parameters(JOB) == weights + 512 + 256 + 1
    assert step_flop(JOB, 10.0) == 10 * (6 * weights - 2 * 300 * 512)


def test_steps_count_the_last_partial_batch() -> None:
    """1,000,000 rows in batches of 4096 are 245 steps an epoch."""
    assert steps(JOB) == 2450
    assert steps(replace(JOB, epochs=0.5)) == 123


def test_the_assumed_processor_rate_is_below_the_measured_one() -> None:
    """Training cannot beat the bare float32 products measured on one core, and reaches at least a third of them."""
    rows = list(csv.DictReader(PRODUCTS.read_text(encoding="utf-8").splitlines()))
    per_core = [float(row["flop_per_s"]) / float(row["cores"]) for row in rows]
    assert min(per_core) / 3 < TabularAssumptions().cpu_flop_per_s < min(per_core)


def test_a_batch_waits_for_host_memory_on_a_fast_gpu(devices: Callable[..., Devices]) -> None:
    """A small network on an H100 is bound by cutting batches: total = bytes read / the host's rate, no less."""
    answer = on_gpus(JOB, devices("H100-SXM", precision="fp16"))
    read = steps(JOB) * JOB.global_batch * JOB.features * 4
    assert answer.loading_s[0] > answer.compute_s[0]
    assert answer.total_s[0] == pytest.approx(read / TabularAssumptions().host_batch_bytes_per_s)


def test_a_wide_network_is_bound_by_compute(devices: Callable[..., Devices]) -> None:
    """With layers of 8192 the T4 computes while the batches load, at 20 to 90 % of its peak."""
    wide = replace(JOB, hidden_layers=(8192, 8192))
    card = devices("T4", precision="fp16")
    answer = on_gpus(wide, card)
    reached = float(step_flop(wide, wide.global_batch)) * steps(wide) / float(answer.total_s[0])
    assert answer.loading_s[0] == 0
    assert 0.2 < reached / float(card.peak_flop_per_s[0]) < 0.9


@pytest.mark.parametrize(
    "change",
    [{"rows": 2_000_000}, {"features": 600}, {"epochs": 20}, {"hidden_layers": (512, 512)}],
    ids=lambda change: next(iter(change)),
)
def test_more_work_is_never_faster_nor_smaller(change: dict[str, object], devices: Callable[..., Devices]) -> None:
    """Growing any size of the job never lowers seconds or memory."""
    card, more = devices("V100-16GB", precision="fp16"), replace(JOB, **change)  # type: ignore[arg-type]
    for before, after in ((on_gpus(JOB, card), on_gpus(more, card)), (on_cpus(JOB, [8]), on_cpus(more, [8]))):
        assert after.total_s[0] >= before.total_s[0]
        assert after.device_memory_bytes[0] >= before.device_memory_bytes[0]
        assert after.host_memory_bytes[0] >= before.host_memory_bytes[0]


@pytest.mark.parametrize("arm", [False, True])
def test_more_vcpus_are_never_slower(arm: bool) -> None:
    """Seconds fall, or stay, from 1 to 192 vCPUs."""
    assert np.all(np.diff(on_cpus(JOB, [1, 2, 8, 32, 96, 192], arm).total_s) <= 0)


def test_several_gpus_pay_for_their_gradients(devices: Callable[..., Devices]) -> None:
    """Eight devices hold an eighth of the batch each, and all-reduce once a step."""
    node = devices("A100-40GB-SXM", precision="fp16", count=8, link="nvlink3")
    one, eight = on_gpus(JOB, node, 1.0), on_gpus(JOB, node, 8.0)
    assert one.communication_s[0] == 0
    assert eight.communication_s[0] > 0
    assert eight.device.activations_bytes[0] == pytest.approx(one.device.activations_bytes[0] / 8)
    assert eight.host.runtime_bytes[0] == 8 * one.host.runtime_bytes[0]


def test_the_interval_follows_method_and_hardware() -> None:
    """The perceptron, which no row pins, has the wider interval."""
    assert time_spread(JOB, "gpu") is MLP_TIME_SPREAD
    assert time_spread(replace(JOB, method="boosted-trees"), "gpu") is TREES_TIME_ON_GPUS_SPREAD
    assert MLP_TIME_SPREAD.high_factor > TREES_TIME_ON_GPUS_SPREAD.high_factor
