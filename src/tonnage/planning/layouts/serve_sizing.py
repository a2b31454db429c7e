"""A service on every machine type: the load one replica carries within its promise, and the fleet for the rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from tonnage.planning.calibrated_model import CalibratedModel, generates
from tonnage.planning.layouts.decoder_sizing import fleet_miss, latency_miss, machines_allowed, size_decoder_service
from tonnage.planning.layouts.fleets import machines_for, replicas_for
from tonnage.planning.layouts.replica_table import ReplicaTable, replica_table
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.misses import Miss
from tonnage.planning.reasons.notes import LoadNote
from tonnage.planning.reasons.risks import Promise
from tonnage.planning.sized import Sized, best_per_group
from tonnage.sizing.devices import Machine
from tonnage.sizing.estimates import Array
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.jobs import Constraints, ServeJob


def size_service(
    job: ServeJob, machines: Sequence[Machine], constraints: Constraints, calibrated: CalibratedModel
) -> Sized:
    """The smallest fleet per machine type that answers `rate_per_s` with p95 latency and TTFT inside the promise."""
    if generates(job):
        return size_decoder_service(job, machines, constraints, calibrated)
    table = replica_table(job, machines, calibrated, hold_memory=constraints.held("memory"))
    replicas = table.replicas
    holds = table.fits & _promise_kept(job, table, hold=constraints.held("latency"))
    carries = np.where(holds, table.carried(), np.nan)
    used = calibrated.assumed.target_utilisation

    every = np.arange(len(table.machine))
    low, high = table.factors("throughput", every)

    def fleet(factor: Array | float, end: Literal["value", "low", "high"] = "value") -> Array:
        """Machines needed if a replica carries 1/factor of what is predicted, and hosts are at that end of theirs."""
        carried = np.where(holds, table.carried(factor, end), np.nan)
        held = replicas_for(job.rate_per_s, carried, used=used, spare=job.spare_replicas)
        return machines_for(held, table.per_node)

    nodes = fleet(1.0)
    allowed = holds & (nodes <= machines_allowed(table.devices, constraints))
    rows = np.flatnonzero(allowed)
    # Fewest machines; among those the least tensor parallel (whole replicas answer more); then the lowest latency.
    score = nodes[rows] + table.tensor_parallel[rows] * 1e-3 + replicas.latency_p95_s[rows] * 1e-6
    best = rows[best_per_group(table.machine[rows].astype(np.int64), score)]
    misses = _misses(job, table, machines, holds, nodes, set(table.machine[best].tolist()), constraints)

    promise: Promise = "ttft" if job.p95_ttft_s is not None and job.p95_latency_s is None else "latency"

    def detail(row: int) -> RunDetail:
        chosen = int(best[row])
        share = job.rate_per_s / float(carries[chosen] * table.per_node[chosen] * nodes[chosen])
        promised = job.p95_latency_s is not None or job.p95_ttft_s is not None
        note = LoadNote(load_fraction=share, planned_fraction=used, promised=promised)
        return table.detail(chosen, nodes=int(nodes[chosen]), utilisation=share, notes=(note,), promise=promise)

    return Sized(
        machine=table.machine[best],
        nodes=nodes[best],
        low_factor=np.ones(len(best)),  # a month is a month: the size of the fleet is what varies
        high_factor=np.ones(len(best)),
        nodes_low=fleet(low, "high")[best],
        nodes_high=fleet(high, "low")[best],
        work_s=np.full(len(best), job.hours_per_month * SECONDS_PER_HOUR),
        breakdown=detail,
        host_in_doubt=table.hosts_in_doubt(best),
        misses=misses,
        held_back=table.machines_held_back,
    )


def _promise_kept(job: ServeJob, table: ReplicaTable, *, hold: bool) -> np.ndarray:
    kept = np.ones(len(table.machine), dtype=bool)
    every = np.arange(len(table.machine))
    if job.p95_latency_s is not None:
        margin = table.factors("latency", every)[1] if hold else 1.0
        kept &= table.replicas.latency_p95_s * margin <= job.p95_latency_s
    if job.p95_ttft_s is not None:
        margin = table.factors("ttft", every)[1] if hold else 1.0
        kept &= table.replicas.ttft_p95_s * margin <= job.p95_ttft_s
    return kept


def _misses(
    job: ServeJob,
    table: ReplicaTable,
    machines: Sequence[Machine],
    holds: np.ndarray,
    nodes: np.ndarray,
    sized: set[int],
    constraints: Constraints,
) -> dict[int, Miss]:
    """Memory misses first; then the promise (the best latency it shows); then the GPU limit."""
    fitting = set(table.machine[table.fits].tolist())
    out = table.memory_misses(job, machines, fitting)
    for index in fitting - sized:
        rows = np.flatnonzero((table.machine == index) & table.fits)
        if not holds[rows].any():
            out[index] = _latency_miss(job, table, rows)
            continue
        held = rows[holds[rows]]
        out[index] = fleet_miss(job, nodes[held], table.devices.per_node[held], constraints)
    return out


def _latency_miss(job: ServeJob, table: ReplicaTable, rows: np.ndarray) -> Miss:
    p95, ttft = table.replicas.latency_p95_s[rows], table.replicas.ttft_p95_s[rows]
    promise: Promise = "latency"
    best, limit = float(p95.min()), job.p95_latency_s
    if limit is None or (best <= limit and job.p95_ttft_s is not None):
        promise, best, limit = "ttft", float(ttft.min()), job.p95_ttft_s
    assert limit is not None
    return latency_miss(job, promise, best, limit)
