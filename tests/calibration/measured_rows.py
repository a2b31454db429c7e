"""Rows of runs on this device, as `local_rows.update` reads them."""

from __future__ import annotations

from tonnage.calibration.local_profile import DeviceProfile
from tonnage.calibration.local_rows import LocalWork
from tonnage.calibration.rows import TrainingRow
from tonnage.sizing.training_job import has_vocabulary_loss


def measured_row(
    work: LocalWork, profile: DeviceProfile, *, id: str, metric: str, value: float, source: str,
    log_sd: float | None = None, steps: int | None = None, mem_kind: str = "",
) -> TrainingRow:  # fmt: skip
    """A row of a run on this device, as `update` reads it. `log_sd`: spread of the run's `steps`, in logarithms."""
    job, shape = work.job, work.job.model
    aim = "language-model" if has_vocabulary_loss(job) else "classification"
    note = f"threads={work.threads} objective={aim}" + ("" if log_sd is None else f" log_sd={log_sd!r}")
    note += "" if steps is None else f" steps={steps}"
    return TrainingRow(
        id=id, config_id=work.configuration, source=source, model=shape.name, params=None, n_layers=shape.layers,
        d_model=shape.hidden, n_heads=shape.heads, n_kv_heads=shape.kv_heads, d_ff=shape.ffn, vocab=shape.vocab,
        seq_len=round(job.lengths.mean), gpu=profile.name, n_gpus=work.processes, gpus_per_node=work.processes,
        micro_batch_per_gpu=work.micro_batch, grad_accum=work.accumulation, global_batch=work.samples_per_step,
        precision=job.precision, method=f"lora r={job.lora.rank}" if job.method == "lora" else "full",
        optimizer=job.optimizer, sharding="ddp" if work.processes > 1 else "", activation_checkpointing="none",
        attention=job.attention, compile="", metric=metric, value=value, mfu_reported=None, note=note,
        mem_kind=mem_kind, family=shape.name, source_group="local", quality="ok",
    )  # fmt: skip
