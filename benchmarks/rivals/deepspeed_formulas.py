"""DeepSpeed's published estimate of model states: formulas written out, activations not in them.

Source: deepspeedai/DeepSpeed, `estimate_zero2_model_states_mem_needs` (runtime/zero/stage_1_and_2.py) and
`estimate_zero3_model_states_mem_needs` (runtime/zero/stage3.py): bytes on each GPU are 4P + 16P/n without offload and
2P with it (stages 1 and 2); 4·largest + 18P/n without and 4·largest + 2P/n with it (stage 3).
"""

from __future__ import annotations

from rivals.cells import Answer, Declined, Row, degree, memory_gib, number

TABLE = "training"


def predict(row: Row) -> Answer:
    """Model states per GPU; the layer counted as largest is the embedding or one matrix of the MLP."""
    if row["method"] != "full":
        raise Declined("the formulas know full training only")
    parameters = number(row, "params") / (degree(row, "tp") * degree(row, "pp"))
    gpus = number(row, "n_gpus") / (degree(row, "tp") * degree(row, "pp"))
    offload = "offload" in row["sharding"]
    if "zero3" in row["sharding"]:
        width = number(row, "d_model")
        largest = 4 * max(number(row, "vocab") * width, number(row, "d_ff") * width)
        return memory_gib(row, largest + (2 if offload else 18) * parameters / gpus), ""
    if "zero" not in row["sharding"]:
        gpus = 1.0
    return memory_gib(row, 2 * parameters if offload else 4 * parameters + 16 * parameters / gpus), ""
