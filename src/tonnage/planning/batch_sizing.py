"""A batch of requests on every machine type: the fullest concurrency, and as many machines as are allowed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tonnage.planning.layout_grid import node_counts
from tonnage.planning.plan import RunDetail
from tonnage.planning.replica_table import replica_table
from tonnage.planning.sized import Sized, best_per_group
from tonnage.sizing.assumptions import INFERENCE_TIME_SPREAD, Assumptions
from tonnage.sizing.devices import Machine
from tonnage.workload.jobs import BatchJob, Constraints


def size_batch(job: BatchJob, machines: Sequence[Machine], constraints: Constraints, assumed: Assumptions) -> Sized:
    """Seconds to answer `items` requests on 1 ... `max_nodes` machines of each type, latency no matter."""
    table = replica_table(
        job.model,
        job.requests,
        machines,
        weights=job.weights,
        tensor_parallel=job.tensor_parallel,
        assumed=assumed,
    )
    fitting = np.flatnonzero(table.fits)
    per_machine = table.replicas.requests_per_s * table.per_node
    # A batch has no arrivals to wait for: replicas run full, not at the target utilisation of a service.
    if job.requests.output_tokens is None:
        per_machine = per_machine / assumed.target_utilisation
    best = fitting[best_per_group(table.machine[fitting].astype(np.int64), -per_machine[fitting])]
    counts = np.array(node_counts(constraints.max_nodes), dtype=np.float64)
    rows, nodes = np.repeat(best, len(counts)), np.tile(counts, len(best))
    if constraints.max_gpus is not None:
        allowed = nodes * table.devices.per_node[rows] <= constraints.max_gpus
        rows, nodes = rows[allowed], nodes[allowed]
    work = job.items / (per_machine[rows] * nodes)

    def detail(row: int) -> RunDetail:
        time = INFERENCE_TIME_SPREAD.around(float(work[row]))
        return table.detail(int(rows[row]), time_s=time, nodes=int(nodes[row]))

    return Sized(
        machine=table.machine[rows],
        nodes=nodes,
        low_factor=np.full(len(rows), INFERENCE_TIME_SPREAD.low_factor),
        high_factor=np.full(len(rows), INFERENCE_TIME_SPREAD.high_factor),
        nodes_low=nodes,
        nodes_high=nodes,
        work_s=work,
        detail=detail,
        misses=table.memory_misses(machines, set(table.machine[fitting].tolist())),
    )
