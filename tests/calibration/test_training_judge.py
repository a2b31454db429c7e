"""Judging training rows: conventions, what notes state, and skips with reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.workload.macs import convolution_macs

from tonnage.calibration.efficientnet import efficientnet_shape
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_case import build_case
from tonnage.calibration.training_judge import judge_training
from tonnage.calibration.training_memory_rows import with_program_unstated
from tonnage.catalog import Catalog
from tonnage.sizing.program_profiles import ADAPTER_MEMORY, KNOWN_MEMORY, UNSTATED_MEMORY
from tonnage.workload.parameters import count_parameters

Row = Callable[..., TrainingRow]


def predicted(row: TrainingRow, catalog: Catalog) -> float:
    (found,) = judge_training([row], catalog)
    assert isinstance(found, JudgedRow), found
    return found.predicted


def test_metrics_of_one_run_agree(row: Row, catalog: Catalog) -> None:
    """Tokens per GPU, sequences in all, seconds a step and GPU hours are four views of one prediction."""
    tokens = predicted(row(), catalog)
    assert predicted(row(metric="sequences_per_s"), catalog) == pytest.approx(tokens * 8 / 2048)
    assert predicted(row(metric="iteration_time_s"), catalog) == pytest.approx(448 * 2048 / (tokens * 8))
    hours = predicted(row(metric="gpu_hours", train_tokens=1e12), catalog)
    assert hours == pytest.approx(1e12 / tokens / 3600)


def test_hardware_rate_counts_the_second_forward(row: Row, catalog: Catalog) -> None:
    """Achieved TFLOP/s with recomputation counted are 4/3 of those without (arXiv:2104.04473, section 5.1)."""
    run = {"metric": "achieved_tflops_per_gpu", "activation_checkpointing": "full"}
    plain = predicted(row(**run), catalog)
    assert predicted(row(**run, flop_counted="hardware"), catalog) == pytest.approx(plain * 4 / 3)


REASONS: list[tuple[dict[str, Any], str]] = [
    ({"gpu": ""}, "GPU not stated"),
    ({"gpu": "H999"}, "not in the catalog"),
    ({"seq_len": None}, "sequence length not stated"),
    ({"model": "own-net", "n_layers": None}, "no known shape"),
    ({"precision": "int3"}, "precision 'int3'"),
    ({"method": "ia3"}, "method 'ia3'"),
    ({"method": "adalora r=8"}, "method 'adalora r=8'"),
    ({"gpu": "V100-16GB", "precision": "fp8"}, "no fp8 rate"),
    ({"metric": "watts"}, "metric 'watts'"),
    ({"metric": "gpu_hours"}, "without the number of tokens"),
    ({"sharding": "tp=8,pp=4", "n_gpus": 8}, "needs more than 8 GPUs"),
    ({"metric": "peak_mem_gib", "micro_batch_per_gpu": None}, "without the micro-batch"),
]


@pytest.mark.parametrize(("changes", "reason"), REASONS)
def test_what_cannot_be_judged_says_why(row: Row, catalog: Catalog, changes: dict[str, Any], reason: str) -> None:
    """A row that states too little is skipped with the reason, never judged on another device or shape."""
    (found,) = judge_training([row(**changes)], catalog)
    assert isinstance(found, SkippedRow)
    assert reason in found.reason


def test_layout_strings(row: Row, catalog: Catalog) -> None:
    """Degrees, interleaving, context parallelism and ZeRO are read from the sharding text."""
    case = build_case(
        row(sharding="zero1,tp=4,pp=4,vp=5,cp=2,dp=2", n_gpus=64, gpu="H100-80GB-SXM", grad_accum=16), catalog
    )
    layout = case.layouts.row(0)
    assert (layout.tensor_parallel, layout.pipeline_parallel, layout.sharding, layout.nodes) == (4, 4, "zero1", 8)
    assert (case.trainer.interleave, float(case.layouts.context_parallel[0])) == (5, 2)
    assert case.samples == 14 * 16 * 2


def test_stated_network_is_per_node_or_per_gpu(row: Row, catalog: Catalog) -> None:
    """A stated network goes before the usual one of the generation; per GPU it is that of all GPUs of a node."""
    assert build_case(row(), catalog).machine.network_gb_per_s == 200.0
    assert build_case(row(network_gbit_per_s_per_node=100.0), catalog).machine.network_gb_per_s == 12.5
    assert build_case(row(network_gbit_per_s_per_gpu=400.0), catalog).machine.network_gb_per_s == 8 * 50.0


@pytest.mark.parametrize(("cell", "attention"), [("", "eager"), ("sdpa", "sdpa")])
def test_rows_of_transformers_attend_as_it_has_kernels(row: Row, catalog: Catalog, cell: str, attention: str) -> None:
    """BLOOM has no fused kernel in transformers: a row is read as the plan of such a run, unless it states another."""
    sizes = dict.fromkeys(("params", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "vocab"))
    bloom = row(model="bloom-7b1", program="transformers", attention=cell, gpu="A100-80GB-SXM", **sizes)
    assert {job.attention for job in build_case(bloom, catalog).jobs} == {attention}


def test_generator_and_discriminator_both_cost(row: Row, catalog: Catalog) -> None:
    """Replaced-token pre-training runs two models a step; fine-tuning one."""
    electra = {"model": "ELECTRA-base", "n_layers": 12, "d_model": 768, "n_heads": 12, "d_ff": 3072, "vocab": 30522,
               "seq_len": 128, "params": 110e6, "attention": "", "sharding": "none/ddp"}  # fmt: skip
    both, one = (row(**electra, objective=objective) for objective in ("language-model", "classification"))
    assert len(build_case(both, catalog).jobs) == 2
    assert len(build_case(one, catalog).jobs) == 1
    assert predicted(both, catalog) < predicted(one, catalog)


def test_stated_parameters_tell_the_mlp(row: Row, catalog: Catalog) -> None:
    """Of plain and gated MLP the one whose count is nearer the stated parameters."""
    unknown = {"model": "house-7b", "n_layers": 32, "d_model": 4096, "n_heads": 32, "n_kv_heads": 32, "d_ff": 11008,
               "vocab": 32000}  # fmt: skip
    shape = build_case(row(**unknown, params=6_738_415_616.0), catalog).jobs[0].model
    assert shape.gated_mlp
    assert count_parameters(shape).total == pytest.approx(6_738_415_616, rel=0.01)
    assert not build_case(row(), catalog).jobs[0].model.gated_mlp


@pytest.mark.parametrize(("variant", "millions", "giga_macs"), [(0, 5.3, 0.39), (4, 19, 4.2), (7, 66, 37)])
def test_efficientnet_matches_its_paper(variant: int, millions: float, giga_macs: float) -> None:
    """Parameters and multiply-adds of Tan and Le 2019, table 2: within 20 % (squeeze-and-excitation is left out) and
    6 %."""
    shape = efficientnet_shape(variant)
    assert count_parameters(shape).total / 1e6 == pytest.approx(millions, rel=0.20)
    assert convolution_macs(shape.convolutions) / 1e9 == pytest.approx(giga_macs, rel=0.06)


def test_memory_readings_are_ordered(row: Row, catalog: Catalog) -> None:
    """Allocated is less than reserved, reserved less than the device shows; 10⁹ bytes make the larger number, but for
    what `nvidia-smi` shows, which counts in MiB."""
    kinds = ("peak active", "peak reserved", "nvidia-smi")
    values = [predicted(row(metric="peak_mem_gib", mem_kind=kind), catalog) for kind in kinds]
    assert values == sorted(values)
    assert len(set(values)) == 3
    printed = [predicted(row(metric="peak_mem_gb_unspecified", mem_kind=kind), catalog) for kind in kinds]
    assert printed[:2] == pytest.approx([value * 2**30 / 1e9 for value in values[:2]])
    assert printed[2] == values[2]


def test_fits_and_longest_sequence(row: Row, catalog: Catalog) -> None:
    """What fits a device fits a larger one; a larger budget never shortens the longest sequence."""
    fits = [
        predicted(row(metric="fits", micro_batch_per_gpu=8, gpu=gpu), catalog) for gpu in ("V100-16GB", "A100-80GB-SXM")
    ]
    assert fits == [0.0, 1.0]
    tuned = {"metric": "max_seq_len", "method": "qlora", "n_gpus": 1, "sharding": "none", "micro_batch_per_gpu": 1}
    lengths = [predicted(row(**tuned, gpu=f"VRAM-{size}GB"), catalog) for size in (8, 16, 80)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[2]


@pytest.mark.parametrize(
    ("changes", "group"),
    [
        ({"program": "torchtune"}, KNOWN_MEMORY),
        ({"program": "torchtune", "method": "lora r=8"}, ADAPTER_MEMORY),
        ({"program": "pytorch"}, UNSTATED_MEMORY),  # the loss and the optimizer are those of whoever wrote the loop
        ({"program": "", "method": "lora r=8"}, UNSTATED_MEMORY),
        ({"program": "torchtune", "metric": "max_seq_len", "value": 4096.0}, "training length"),
    ],
)
def test_what_a_row_says_of_its_program_decides_which_residuals_speak_for_its_memory(
    row: Row, catalog: Catalog, changes: dict[str, Any], group: str
) -> None:
    """Known program, adapters, nothing stated; a length is not in bytes."""
    (found,) = judge_training([row(**({"metric": "peak_mem_gib", "value": 40.0} | changes))], catalog)
    assert isinstance(found, JudgedRow), found
    assert found.group == group


def test_a_row_with_its_program_unstated_says_nothing_of_it(row: Row) -> None:
    """What is left is what a file states that names no program: shape, batch, precision, layout."""
    full = row(metric="peak_mem_gib", value=40.0, program="torchtune", loss="chunked", optimizer_fused="y")
    blank = with_program_unstated(full)
    assert (blank.program, blank.loss, blank.optimizer_fused) == ("", "", "")
    assert (blank.micro_batch_per_gpu, blank.precision, blank.sharding) == (14, "bf16", "zero3/fsdp")
    assert with_program_unstated(blank) == blank


@pytest.mark.parametrize(("kind", "bound"), [("nvidia-smi (PyTorch caching allocator)", True), ("nvidia-smi", False)])
def test_a_device_under_a_caching_allocator_bounds_what_a_run_needs(
    row: Row, catalog: Catalog, kind: str, bound: bool
) -> None:
    """What the allocator kept is part of the reading, whether anything needs it or not."""
    (found,) = judge_training([row(metric="peak_mem_gib", value=30.0, mem_kind=kind)], catalog)
    assert isinstance(found, JudgedRow)
    assert found.bound is bound
