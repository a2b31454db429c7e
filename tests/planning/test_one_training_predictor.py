"""Training rows: what `validate` says of a row is what a plan of its job in its layout says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.calibration.kinds import kind_named, rows_to_fit
from tonnage.calibration.prediction import SkippedRow
from tonnage.calibration.rows import TrainingRow
from tonnage.calibration.training_case import TrainingCase
from tonnage.calibration.training_judge import RATES, predicted_step, time_case
from tonnage.catalog import load_catalog
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.train_sizing import size_training
from tonnage.sizing.devices import channel_share, generation_of
from tonnage.sizing.training_prediction import peak_memory
from tonnage.workload.jobs import Constraints, TrainJob

FACTS = os.environ.get("TONNAGE_FACTS")
CATALOG = load_catalog()
PACKAGED = CalibratedModel.packaged()
# Whether it fits is not asked: the row ran.
ROOMY = replace(PACKAGED, assumed=replace(PACKAGED.assumed, memory_margin_fraction=-1e6))
MPT = TrainingRow(
    id="r1", config_id="c1", source="mosaicml/llm-foundry@8c8dd48:README.md", model="MPT-1b", params=1_315_950_592.0,
    n_layers=24, d_model=2048, n_heads=16, n_kv_heads=16, d_ff=8192, vocab=50368, seq_len=2048, gpu="A100-80GB-SXM",
    n_gpus=8, gpus_per_node=8, micro_batch_per_gpu=14, grad_accum=4, global_batch=448, precision="bf16", method="full",
    optimizer="decoupled_adamw", sharding="zero3/fsdp", activation_checkpointing="none", attention="flash", compile="",
    metric="tokens_per_s_per_gpu", value=20_000.0, mfu_reported=None, note="", mem_kind="", family="MPT-1b",
    source_group="x", quality="ok", program="llm-foundry",
)  # fmt: skip
ROWS = [
    MPT,
    replace(MPT, activation_checkpointing="full", gpu="H100-80GB-SXM", precision="fp8", micro_batch_per_gpu=7,
            grad_accum=8),
    replace(MPT, n_gpus=32, sharding="tp=4,pp=2,dp=4", micro_batch_per_gpu=2, grad_accum=56, program="megatron"),
    replace(MPT, method="lora r=8", sharding="none", n_gpus=1, micro_batch_per_gpu=2, grad_accum=1, global_batch=2,
            program="torchtune"),
    replace(MPT, method="qlora r=8", sharding="none", n_gpus=1, micro_batch_per_gpu=2, grad_accum=1, global_batch=2,
            program="transformers", activation_checkpointing=""),
]  # fmt: skip


def forced(case: TrainingCase) -> TrainJob:
    """The row's job with everything of its layout stated, one step long."""
    layout = case.layouts.row(0)
    batch = layout.data_parallel * layout.micro_batch * layout.accumulation
    return replace(
        case.jobs[0], nodes=layout.nodes, data_parallel=layout.data_parallel, tensor_parallel=layout.tensor_parallel,
        pipeline_parallel=layout.pipeline_parallel, context_parallel=layout.context_parallel, sharding=layout.sharding,
        recompute=layout.recompute, micro_batch=layout.micro_batch, accumulation=layout.accumulation,
        global_batch=batch, samples=batch, epochs=1.0,
    )  # fmt: skip


def compare(rows: list[TrainingRow]) -> tuple[int, list[str]]:
    """How many rows were compared, and those whose step or peak differ by more than a thousandth. What no file has a
    key for (cached tokens of a segment, processes that exchange nothing) goes along with the job; rows whose batch is
    no whole number of sequences have no such job."""
    compared, wrong = 0, []
    for row in rows:
        case = time_case(row, CATALOG, PACKAGED.assumed)
        if isinstance(case, SkippedRow) or len(case.jobs) > 1 or float(case.layouts.micro_batch[0]) % 1:
            continue
        job = forced(case)
        allowed = Constraints(accept_risk=("memory",), max_nodes=4096)
        sized = size_training(job, [case.machine], allowed, ROOMY, case.trainer)
        if not len(sized.machine):
            continue
        compared += 1
        outside = channel_share(case.machine), generation_of(case.machine.accelerator)
        memory = peak_memory(case.jobs, case.layouts, PACKAGED.assumed, case.trainer, *outside)
        judged = (float(predicted_step(case, PACKAGED.assumed).total_s[0]), float(memory.needed_bytes[0]) / 2**30)
        detail = sized.detail(0)
        assert detail.memory_gib is not None
        planned = (float(sized.work_s[0]), detail.memory_gib.value)
        if planned != pytest.approx(judged, rel=1e-3):
            wrong.append(f"{row.id}: {planned} planned, {judged} validated")
    return compared, wrong


def test_a_row_of_each_kind_has_one_figure() -> None:
    """FSDP, fp8 with recomputation, three dimensions, adapters and a quantised base."""
    assert compare(ROWS) == (len(ROWS), [])


@pytest.mark.facts
@pytest.mark.skipif(not FACTS, reason="TONNAGE_FACTS is not set")
def test_every_training_row_of_the_facts_has_one_figure() -> None:
    rows, _ = rows_to_fit(kind_named("training"), Path(FACTS or "") / "training_calibration.csv", CATALOG)
    compared, wrong = compare([row for row in rows if row.metric in RATES])
    assert compared > 600
    assert wrong == []
