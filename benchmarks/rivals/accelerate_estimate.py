"""`accelerate estimate-memory`: weights, gradients and Adam's state; no activations, no sharding."""

from __future__ import annotations

from rivals.cells import Answer, Declined, Row, memory_gib, number

TABLE = "training"


def predict(row: Row) -> Answer:
    """Its peak for training with Adam, from the row's parameter count in fp32."""
    from accelerate.commands.estimate import estimate_training_usage

    if row["method"] != "full":
        raise Declined("knows full training only")
    if number(row, "n_gpus") > 1 and row["sharding"] not in ("none", "none/ddp"):
        raise Declined("knows one device, no sharding")
    mixed = {"fp16": "float16", "bf16": "bfloat16"}.get(row["precision"], "float32")
    parts = estimate_training_usage(int(4 * number(row, "params")), mixed)
    return memory_gib(row, max(parts.values())), ""
