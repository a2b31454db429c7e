"""What `tonnage run` predicts: by the profile of this machine, or why there is nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.api.run_prediction import predict_run, prediction_line
from tonnage.benchmarks.machine import device_name, host_identity
from tonnage.calibration.local_file import devices_folder, save_profile
from tonnage.runs.preflight import Gpu, LocalMachine, check_run
from tonnage.runs.spec import CheckpointSpec, DataSource, DataSpec, GuardSpec, LaunchSpec, RunSpec, TrainingSpec
from tonnage.settings import Settings, load_settings
from tonnage.testing.devices import fake_profile

WORK = """kind: train
model: all-minilm-l6-v2
data: {samples: 3200, seq_len: 32, epochs: 1}
train: {objective: classification, global_batch: 32, precision: fp32}
"""
MACHINE = LocalMachine(cores=2, memory_gib=64)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"home": str(tmp_path / "home")}, {}, tmp_path)


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    file = tmp_path / "mini.tonnage.yaml"
    file.write_text(WORK)
    return RunSpec(
        name="mini", task="sequence-classification", workload_file=str(file), launch=LaunchSpec(device="cpu"),
        data=DataSpec(train=DataSource(location="x", format="csv")), training=TrainingSpec(global_batch=32),
    )  # fmt: skip


@pytest.fixture
def measured(tmp_path: Path) -> None:
    """This machine has a profile."""
    here = host_identity()
    made = replace(fake_profile(name=device_name(here, "cpu")), identity=here)
    save_profile(made, devices_folder(tmp_path / "home") / f"{made.name}.json")


def test_nothing_without_a_profile(spec: RunSpec, settings: Settings) -> None:
    """No figure, and the way to get one."""
    found = predict_run(spec, MACHINE, settings)
    assert found["figures"] == {}
    assert "calibrate --local" in found["why_none"]
    assert "calibrate --local" in prediction_line(found)


@pytest.mark.usefixtures("measured")
def test_figures_of_this_machine(spec: RunSpec, settings: Settings) -> None:
    """Rate, memory and time with intervals; a price by the hour gives the cost, `max_steps` shortens the time."""
    found = predict_run(spec, MACHINE, settings)
    assert found["why_none"] is None
    assert set(found["figures"]) == {"samples_per_s", "peak_memory_gib", "time_s"}
    assert all(figure["low"] < figure["value"] < figure["high"] for figure in found["figures"].values())
    assert found["micro_batch"] > 0
    priced = replace(spec, guard=GuardSpec(usd_per_hour=36.0), training=TrainingSpec(global_batch=32, max_steps=10))
    short = predict_run(priced, MACHINE, settings)["figures"]
    assert short["time_s"]["value"] == pytest.approx(found["figures"]["time_s"]["value"] / 10)
    assert short["cost_usd"]["value"] == pytest.approx(short["time_s"]["value"] / 100)


@pytest.mark.usefixtures("measured")
def test_a_copy_is_counted_where_one_is_saved_on_the_way(spec: RunSpec, settings: Settings) -> None:
    """A run that ends before its first checkpoint is due holds none beside its steps; nor does one that waits."""

    def memory(steps: int, checkpoint: CheckpointSpec) -> float:
        training = TrainingSpec(global_batch=32, max_steps=steps)
        found = predict_run(replace(spec, training=training, checkpoint=checkpoint), MACHINE, settings)
        return float(found["figures"]["peak_memory_gib"]["value"])

    waits = memory(50, CheckpointSpec(every_steps=20, asynchronous=False))
    assert memory(50, CheckpointSpec(every_steps=20)) > waits
    assert memory(20, CheckpointSpec(every_steps=20)) == waits
    assert memory(50, CheckpointSpec(every_s=1e6)) == waits
    assert memory(50, CheckpointSpec(every_s=1e-6)) > waits


@pytest.mark.usefixtures("measured")
def test_less_memory_than_predicted_is_found(spec: RunSpec, settings: Settings) -> None:
    """The gap between prediction and machine is a refusal before the first step."""
    found = predict_run(spec, MACHINE, settings)
    small = LocalMachine(cores=2, memory_gib=found["figures"]["peak_memory_gib"]["low"] / 2)
    (finding,) = check_run(spec, small, free_disk_gib=100, weights_gib=None, prediction=found)
    assert finding.kind == "refused"


@pytest.mark.usefixtures("measured")
def test_another_device_is_not_stood_in_for(spec: RunSpec, settings: Settings) -> None:
    """A profile of the processor says nothing of a run on the GPU."""
    machine = replace(MACHINE, gpus=(Gpu(name="NVIDIA L4", memory_gib=22.5),))
    found = predict_run(replace(spec, launch=LaunchSpec(device="cuda")), machine, settings)
    assert found["figures"] == {}
    assert "cuda" in found["why_none"]
