"""A batch of requests on every machine type: the fullest concurrency, and as many machines as are allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.planning.calibrated_model import CalibratedModel, generates
from tonnage.planning.layouts.decoder_sizing import size_decoder_batch
from tonnage.planning.layouts.layout_grid import node_counts
from tonnage.planning.layouts.replica_table import replica_table
from tonnage.planning.plan import RunDetail
from tonnage.planning.sized import Sized, best_per_group
from tonnage.sizing.devices import Machine
from tonnage.workload.jobs import BatchJob, Constraints


def size_batch(
    job: BatchJob, machines: Sequence[Machine], constraints: Constraints, calibrated: CalibratedModel
) -> Sized:
    """Seconds to answer `items` requests on 1 ... `max_nodes` machines of each type, latency no matter."""
    if generates(job):
        return size_decoder_batch(job, machines, constraints, calibrated)
    table = replica_table(job, machines, calibrated, hold_memory=constraints.held("memory"))
    fitting = np.flatnonzero(table.fits)
    per_machine = table.carried() * table.per_node
    # A batch has no arrivals to wait for: replicas run at their capacity, not at the target utilisation of a service.
    best = fitting[best_per_group(table.machine[fitting].astype(np.int64), -per_machine[fitting])]
    counts = np.array(node_counts(constraints.max_nodes), dtype=np.float64)
    rows, nodes = np.repeat(best, len(counts)), np.tile(counts, len(best))
    if constraints.max_gpus is not None:
        allowed = nodes * table.devices.per_node[rows] <= constraints.max_gpus
        rows, nodes = rows[allowed], nodes[allowed]
    work = job.items / (per_machine[rows] * nodes)

    low, high = table.factors("throughput", rows)
    if table.hosts.any:
        every = table.factors("throughput", np.arange(len(table.machine)))
        fastest, slowest = table.carried(every[0], "high"), table.carried(every[1], "low")
        low, high = table.carried()[rows] / fastest[rows], table.carried()[rows] / slowest[rows]

    def detail(row: int) -> RunDetail:
        interval = replace(table.intervals["throughput"][int(table.machine[rows[row]])], of="time")
        return table.detail(int(rows[row]), nodes=int(nodes[row]), time=(interval, float(job.items)))

    return Sized(
        machine=table.machine[rows],
        nodes=nodes,
        low_factor=low,
        high_factor=high,
        nodes_low=nodes,
        nodes_high=nodes,
        work_s=work,
        breakdown=detail,
        in_flight_s=table.replicas.concurrency[rows] / table.replicas.requests_per_s[rows],  # each item's own pass
        host_in_doubt=table.hosts_in_doubt(rows),
        misses=table.memory_misses(job, machines, set(table.machine[fitting].tolist())),
        held_back=table.machines_held_back,
    )
