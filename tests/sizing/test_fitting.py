"""One definition of what fits, for plans and for judged rows."""

from __future__ import annotations

import numpy as np
import pytest

from tonnage.calibration.prediction import JudgedRow
from tonnage.calibration.validation import validate
from tonnage.catalog import load_catalog
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.train_sizing import size_training
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine
from tonnage.sizing.fitting import fits, room
from tonnage.sizing.layouts import one_layout
from tonnage.sizing.training_memory import estimate_training_memory
from tonnage.workload.jobs import Constraints, Lengths, TrainJob
from tonnage.workload.known import find_model


def test_the_margin_is_kept_free() -> None:
    assert room(100.0, 0.08) == pytest.approx(92.0)
    assert fits(np.array([91.9, 92.1]), 100.0, 0.08).tolist() == [True, False]


def test_slack_of_the_allocator_does_not_decide() -> None:
    """What is needed leaves out fragmentation, and nothing else."""
    job = TrainJob(model=find_model("bert-base-uncased"), samples=1, lengths=Lengths(mean=512, maximum=512), epochs=1,
                   global_batch=32, precision="fp16")  # fmt: skip
    memory = estimate_training_memory(job, one_layout(micro_batch=32))
    assert memory.fragmentation_bytes[0] > 0
    assert memory.needed_bytes[0] == pytest.approx(memory.total_bytes[0] - memory.fragmentation_bytes[0])


def test_a_plan_and_a_judged_row_agree() -> None:
    """A device with just the memory needed, margin included, holds the job; a little less does not: in both."""
    catalog, assumed = load_catalog(), Assumptions(memory_margin_fraction=0.08)
    device = catalog.accelerator("A100-80GB-SXM")
    job = TrainJob(model=find_model("bert-base-uncased"), samples=1, lengths=Lengths(mean=512, maximum=512), epochs=1,
                   global_batch=32, precision="fp16", micro_batch=32, recompute="none", sharding="ddp",
                   tensor_parallel=1, pipeline_parallel=1)  # fmt: skip
    needed = float(estimate_training_memory(job, one_layout(micro_batch=32), assumed).needed_bytes[0]) / 2**30
    for factor, holds in ((1.001, True), (0.999, False)):
        size = needed / 0.92 * factor
        from dataclasses import replace

        small = replace(device, memory_gib=size, usable_memory_gib=size)
        machine = Machine(accelerator=small, count=1, intra=None, network_gb_per_s=None, network_latency_us=40.0)
        sized = size_training(job, [machine], Constraints(accept_risk=("memory",)), CalibratedModel.of(None, assumed))
        assert bool(len(sized.machine)) is holds
        row = JudgedRow(row_id="a", metric="fits", family="F", gpu="", measured=1.0, predicted=0.0, suspect=False,
                     group="training memory", needed_gib=needed, capacity_gib=size)  # fmt: skip
        found = validate([row], margin_fraction=0.08).memory_fit
        assert found.false_misfits == (0 if holds else 1)
