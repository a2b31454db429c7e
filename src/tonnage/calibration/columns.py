"""Columns of the measured-facts tables, in the order of a file."""

from __future__ import annotations

from typing import Final, Literal

FactTable = Literal["training", "inference"]
TRAINING_COLUMNS: Final = (
    "id", "config_id", "source", "model", "params", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "vocab",
    "seq_len", "gpu", "n_gpus", "gpus_per_node", "micro_batch_per_gpu", "grad_accum", "global_batch", "precision",
    "method", "optimizer", "sharding", "activation_checkpointing", "attention", "compile", "metric", "value",
    "mfu_reported", "note", "published_value", "published_unit", "derived", "mem_kind", "train_tokens", "family",
    "source_group", "shape_source", "quality",
)  # fmt: skip
PROGRAM_COLUMNS: Final = (  # optional: what the program of a training run did
    "program", "program_version", "kernels", "state", "loss", "checkpoint_kind", "channels_last", "sequence_parallel",
    "optimizer_fused", "optimizer_in_backward", "offload", "adapter_targets", "tables_apart", "objective",
    "generator", "flop_counted",
    "cached_tokens", "target_tokens", "batch_tokens", "image_side", "network_gbit_per_s_per_gpu",
    "network_gbit_per_s_per_node",
)  # fmt: skip
INFERENCE_COLUMNS: Final = (
    "id", "config_id", "source", "model", "params", "n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "vocab",
    "kind", "gpu", "n_gpus", "tp", "engine", "precision", "weights_quant", "batch_size", "concurrency", "input_len",
    "output_len", "metric", "value", "note",
)  # fmt: skip
# Optional: what the engine of an inference run did.
ENGINE_COLUMNS: Final = ("compiled", "autocast", "attention", "decoding_threads", "mem_kind")
# Optional, of tables alone: how requests came, and what of them the figure is of. `pp` as `tp`.
LOAD_COLUMNS: Final = (
    "traced", "native", "kv_cache", "pp", "remote", "padding", "mean_input_len", "data_set", "lengths", "prompts",
    "request_rate_qps", "beams", "latency_bound", "start_up", "channels_last", "fused_norms", "staged", "instances",
    "quantised_residual", "looped", "switched", "token_mean", "rereads", "most_requests", "most_step_tokens",
    "cache_fraction", "tuned", "built", "chunked", "front_end",
)  # fmt: skip
FACT_COLUMNS: Final[dict[FactTable, tuple[str, ...]]] = {
    "training": TRAINING_COLUMNS,
    "inference": INFERENCE_COLUMNS,
}


KEPT_COLUMNS: Final[dict[FactTable, tuple[str, ...]]] = {  # all that a row may have, optional ones last
    "training": (*TRAINING_COLUMNS, *PROGRAM_COLUMNS),
    "inference": (*INFERENCE_COLUMNS, *ENGINE_COLUMNS),
}


def table_of(columns: frozenset[str] | set[str]) -> FactTable | None:
    """Which table a row with these columns belongs to; None where a column is of neither.

    >>> table_of({"id", "metric", "value", "micro_batch_per_gpu"}), table_of({"engine", "value"}), table_of({"x"})
    ('training', 'inference', None)
    """
    return next((name for name, known in KEPT_COLUMNS.items() if columns <= set(known)), None)
