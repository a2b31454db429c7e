"""The rule of thumb for inference: 2N FLOP a token at 40 % of the peak, weights once a step at 80 % of bandwidth."""

from __future__ import annotations

from rivals.cells import Answer, Declined, Row, number, number_or, serving_metric
from rivals.peaks import device, peak_flop_per_s

TABLE = "inference"
COMPUTE, BANDWIDTH = 0.40, 0.80
_BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0}


def predict(row: Row) -> Answer:
    """One batch through the model; for a decoder then one step a token. Key-value cache and attention left out."""
    parameters = number(row, "params")
    batch = number_or(row, "batch_size", 0.0) or number(row, "concurrency")
    gpus = number_or(row, "n_gpus", 1.0)
    weight_bytes = 0.5 if "int4" in row["weights_quant"] else _BYTES.get(row["precision"], 0.0)
    bandwidth = device(row["gpu"]).memory_bandwidth_gb_per_s
    if not weight_bytes or bandwidth is None:
        raise Declined("no bandwidth or width of weights")
    compute = COMPUTE * peak_flop_per_s(row["gpu"], row["precision"]) * gpus
    read_s = parameters * weight_bytes / (BANDWIDTH * bandwidth * 1e9 * gpus)
    first_s = max(2 * parameters * batch * number(row, "input_len") / compute, read_s)
    step_s = max(2 * parameters * batch / compute, read_s)
    return serving_metric(row, batch=batch, first_s=first_s, step_s=step_s), ""
