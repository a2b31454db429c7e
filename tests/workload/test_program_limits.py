"""Layouts that programs do not run are refused, in the file and on the command line, and are not searched."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from tonnage.catalog import load_catalog
from tonnage.errors import InputError, WorkloadError
from tonnage.planning.layouts.layout_grid import grid_for
from tonnage.sizing.devices import Machine
from tonnage.sizing.layouts import SHARDINGS
from tonnage.workload.forced_layout import force_layout
from tonnage.workload.jobs import TrainJob, Workload
from tonnage.workload.loading import parse_workload
from tonnage.workload.program_limits import PROGRAM_LIMITS

TRAIN = """\
kind: train
model: llama-3.1-8b
data: {{samples: 1000, seq_len: 1024}}
train: {{global_batch: 64, program: {program}, method: {method}{more}}}
"""
EIGHT = Machine(
    accelerator=load_catalog().accelerator("H100-SXM"), count=8, intra=load_catalog().link("nvlink4"),
    network_gb_per_s=400.0, network_latency_us=10.0,
)  # fmt: skip


def read(program: str, method: str = "full", more: str = "") -> Workload:
    text = TRAIN.format(program=program, method=method, more=more)
    return parse_workload(text, file="bad.yaml", folder=None, as_of=datetime(2026, 11, 20, tzinfo=UTC))


REFUSED = [  # program, method, layout, the key
    ("unsloth", "lora", "tp=2", "tensor_parallel"),
    ("unsloth", "full", "pp=2", "pipeline_parallel"),
    ("torchtune", "full", "pp=2", "pipeline_parallel"),
    ("torchtune", "lora", "tp=2", "tensor_parallel"),
    ("litgpt", "full", "tp=2", "tensor_parallel"),
    ("axolotl", "full", "pp=2", "pipeline_parallel"),
]


@pytest.mark.parametrize(("program", "method", "layout", "key"), REFUSED)
def test_a_degree_the_program_does_not_run_is_refused_with_its_source(
    program: str, method: str, layout: str, key: str
) -> None:
    """The error names key, program and where that is documented."""
    with pytest.raises(InputError, match=f"{key}.*which {program} does not run"):
        force_layout(read(program, method), layout)


@pytest.mark.parametrize("program", ["megatron-deepspeed", "oneflow", "transformers"])
def test_a_program_without_an_interleaved_schedule_is_refused_one(program: str) -> None:
    """DeepSpeed's pipeline engine, on which Megatron-DeepSpeed runs, has none; the error names programs that do."""
    with pytest.raises(InputError, match=f"virtual_stages.*{program} has no interleaved schedule") as caught:
        force_layout(read(program), "pp=2,vp=2")
    assert caught.value.hint
    assert "megatron, nemo" in caught.value.hint


def test_the_file_is_refused_as_the_command_line() -> None:
    """`train.tensor_parallel` and `layout.tensor_parallel` are judged alike."""
    with pytest.raises(WorkloadError, match="which unsloth does not run"):
        read("unsloth", "lora", ", tensor_parallel: 2")


TAKEN = [
    ("torchtune", "full", "tp=2"),
    ("torchtitan", "lora", "tp=2"),
    ("megatron", "full", "dp=8,sharding=zero3"),
    ("nemo", "full", "pp=2,vp=2"),
]


@pytest.mark.parametrize(("program", "method", "layout"), TAKEN)
def test_what_a_program_runs_is_taken(program: str, method: str, layout: str) -> None:
    """Tensor parallelism of torchtune's full fine-tunes, LoRA of torchtitan, Megatron's own FSDP, NeMo's chunks."""
    assert isinstance(force_layout(read(program, method), layout).job, TrainJob)


@pytest.mark.parametrize("program", sorted(PROGRAM_LIMITS))
def test_the_search_tries_nothing_that_is_refused(program: str) -> None:
    """No layout of the grid has a degree that the program does not run, nor a sharding it does not default to."""
    job = read(program).job
    assert isinstance(job, TrainJob)
    layouts = grid_for(job, [EIGHT], max_nodes=1, max_gpus=None).layouts
    assert len(layouts.micro_batch)
    limits = PROGRAM_LIMITS[program]  # type: ignore[index]
    for name in limits.refused(job.method):
        assert np.all(getattr(layouts, name) == 1), name
    if limits.shardings:
        assert {SHARDINGS[int(one)] for one in layouts.sharding} <= set(limits.shardings)
