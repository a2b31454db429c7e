"""Rows of the measured-facts tables as typed values; None where a table is blank."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow:
    """One measurement of a training run, in the columns of `training_calibration.csv`."""

    id: str
    config_id: str
    source: str
    model: str
    params: float | None
    n_layers: int | None
    d_model: int | None
    n_heads: int | None
    n_kv_heads: int | None
    d_ff: int | None
    vocab: int | None
    seq_len: int | None
    gpu: str
    n_gpus: int | None
    gpus_per_node: int | None
    micro_batch_per_gpu: int | None
    grad_accum: int | None
    global_batch: int | None
    precision: str
    method: str
    optimizer: str
    sharding: str
    activation_checkpointing: str
    attention: str
    compile: str
    metric: str
    value: float
    mfu_reported: float | None
    note: str
    mem_kind: str
    family: str
    source_group: str
    quality: str
    train_tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRow:
    """One measurement of inference, in the columns of `inference_calibration.csv`."""

    id: str
    config_id: str
    source: str
    model: str
    params: float | None
    n_layers: int | None
    d_model: int | None
    n_heads: int | None
    n_kv_heads: int | None
    d_ff: int | None
    vocab: int | None
    kind: str
    gpu: str
    n_gpus: int | None
    tp: int | None
    engine: str
    precision: str
    weights_quant: str
    batch_size: int | None
    concurrency: float | None
    input_len: float | None
    output_len: float | None
    metric: str
    value: float
    note: str
    family: str = ""  # blank: the model is its own family
    quality: str = "ok"
