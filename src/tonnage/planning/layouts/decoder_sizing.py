"""Generating models on every machine type: the fleet for a rate within its promises, or the time of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from math import ceil

import numpy as np

from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.decoder_detail import decoder_detail, memory_misses
from tonnage.planning.layouts.decoder_pools import Pools, pool_miss, pooled
from tonnage.planning.layouts.decoder_table import DecoderTable, decoder_table, placeable
from tonnage.planning.layouts.fleets import machines_for, replicas_for
from tonnage.planning.layouts.layout_grid import node_counts
from tonnage.planning.layouts.replica_layouts import layout_miss
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.changes import AnyChange, FewerOutputTokens, MoreNodes, MoveMaxGpus, MovePromise, SetField
from tonnage.planning.reasons.misses import GpuLimitMiss, LatencyMiss, Miss, NodesMiss, ReplicasMiss
from tonnage.planning.reasons.notes import LoadNote
from tonnage.planning.reasons.risks import Promise
from tonnage.planning.sized import IntArray, Sized, best_per_group
from tonnage.sizing.decoder_loads import serve_load
from tonnage.sizing.decoder_reading import states_of
from tonnage.sizing.decoder_seen import DecoderLoad, LatencySpread, SeenLoad
from tonnage.sizing.devices import Devices, Machine
from tonnage.sizing.estimates import Array, distinct
from tonnage.sizing.promises import LEAST_SHARE, LatencyLimits, endless, largest_rate
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.expert_layouts import wants_pools
from tonnage.workload.jobs import BatchJob, Constraints, ServeJob

_NONE = np.zeros(0)
NOTHING = Sized(machine=np.zeros(0, dtype=np.intp), nodes=_NONE, work_s=_NONE, low_factor=_NONE, high_factor=_NONE,
                nodes_low=_NONE, nodes_high=_NONE)  # fmt: skip


def size_decoder_service(
    job: ServeJob, machines: Sequence[Machine], constraints: Constraints, calibrated: CalibratedModel
) -> Sized:
    """The smallest fleet per machine type that answers `rate_per_s` within all promises, at the target utilisation.

    A replica's capacity is the largest load at which its promises hold (all it can answer where none is made); fleets
    are planned to `target_utilisation` of that, and latencies are shown at the load that each replica then gets.
    """
    if not placeable(job, machines):
        return replace(NOTHING, misses={index: layout_miss(job, one) for index, one in enumerate(machines)})
    table = decoder_table(job, machines, calibrated, hold_memory=constraints.held("memory"))
    limits = _limits(table, hold=constraints.held("latency"))
    most, kept = _capacity(table, limits)
    holds = table.fits & kept[table.kind]
    carries = np.where(holds, most[table.kind], np.nan)
    load = job.rate_per_s / carries
    used = calibrated.assumed.target_utilisation

    def fleet(factor: Array | float) -> Array:
        """Machines needed if a replica carries 1/factor of what is predicted."""
        if job.replicas is not None:
            return np.where(np.isfinite(load), machines_for(job.replicas, table.per_node), np.nan)
        held = replicas_for(job.rate_per_s, carries / factor, used=used, spare=job.spare_replicas)
        return machines_for(held, table.per_node)

    nodes = fleet(1.0)
    allowed = holds & (nodes <= machines_allowed(table.devices, constraints))
    if job.replicas is not None:
        allowed &= load <= job.replicas
    pools = (
        pooled(table, limits, np.where(allowed, nodes, np.nan), used=used, spare=job.spare_replicas)
        if wants_pools(job)
        else None
    )
    if pools is not None and job.prefill_replicas is not None:
        allowed &= False
    candidates = _candidates(table, np.flatnonzero(allowed), fleet, pools, constraints)
    # Fewest machines; among those the least tensor parallel (whole replicas answer more), then one pool.
    score = candidates.nodes + table.tensor_parallel[candidates.row] * 1e-3 + (candidates.pool >= 0) * 5e-4
    chosen_ones = best_per_group(table.machine[candidates.row].astype(np.int64), score)
    best, nodes_of = candidates.row[chosen_ones], candidates.nodes[chosen_ones]
    pool_of = candidates.pool[chosen_ones].astype(np.intp)
    mixed, parted = np.flatnonzero(pool_of < 0), np.flatnonzero(pool_of >= 0)

    @cache
    def seen() -> SeenLoad:
        """What requests see of each of `mixed` at the load that it gets; all at once, when the first is shown."""
        rows = best[mixed]
        each_per_s = job.rate_per_s / (job.replicas or table.per_node[rows] * nodes[rows])
        return serve_load(table.curves.take(table.kind[rows]), endless(np.minimum(each_per_s, carries[rows])))

    @cache
    def seen_in_two() -> SeenLoad:
        """The same of each of `parted`."""
        assert pools is not None
        return pools.seen(pool_of[parted])

    def detail(row: int) -> RunDetail:
        pool = int(pool_of[row])
        if pools is not None and pool >= 0:
            return pools.detail(pool, seen_in_two().take(np.flatnonzero(parted == row)))
        chosen = int(best[row])
        count = job.replicas or int(table.per_node[chosen] * nodes[chosen])
        capacity = float(carries[chosen]) * count
        share = job.rate_per_s / capacity
        note = LoadNote(load_fraction=share, planned_fraction=used, promised=_promised(job) is not None)
        return decoder_detail(
            table, chosen, seen().take(np.flatnonzero(mixed == row)), nodes=int(nodes[chosen]), replicas=count,
            requests_per_s=capacity, notes=(note,), promise=_promised(job) or "latency", utilisation=share,
        )  # fmt: skip

    return Sized(
        machine=table.machine[best],
        nodes=nodes_of,
        low_factor=np.ones(len(best)),  # a month is a month: the size of the fleet is what varies
        high_factor=np.ones(len(best)),
        nodes_low=candidates.nodes_low[chosen_ones],
        nodes_high=candidates.nodes_high[chosen_ones],
        work_s=np.full(len(best), job.hours_per_month * SECONDS_PER_HOUR),
        breakdown=detail,
        misses=_misses(job, table, machines, holds, nodes, load, set(table.machine[best].tolist()), constraints,
                       pools if job.prefill_replicas else None),
        held_back=table.machines_held_back,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidates:
    """Fleets, one a row: of the table's row, or (`pool` at 0 and more) of two pools of its replicas."""

    row: IntArray
    pool: IntArray
    nodes: Array
    nodes_low: Array
    nodes_high: Array


def _candidates(
    table: DecoderTable,
    rows: IntArray,
    fleet: Callable[[Array | float], Array],
    pools: Pools | None,
    constraints: Constraints,
) -> _Candidates:
    low, high = table.factors("throughput")
    mixed = _Candidates(
        row=rows, pool=np.full(len(rows), -1), nodes=fleet(1.0)[rows], nodes_low=fleet(low)[rows],
        nodes_high=fleet(high)[rows],
    )  # fmt: skip
    if pools is None:
        return mixed
    nodes = pools.nodes()
    fit = np.flatnonzero(nodes <= machines_allowed(table.devices, constraints)[pools.row])
    of_pools = (pools.row, np.arange(len(pools.row)), nodes, pools.nodes(low[pools.row]), pools.nodes(high[pools.row]))
    joined = [
        np.concatenate([one, other[fit]])
        for one, other in zip((mixed.row, mixed.pool, mixed.nodes, mixed.nodes_low, mixed.nodes_high), of_pools,
                              strict=True)
    ]  # fmt: skip
    return _Candidates(row=joined[0].astype(np.intp), pool=joined[1].astype(np.intp), nodes=joined[2],
                       nodes_low=joined[3], nodes_high=joined[4])  # fmt: skip


def size_decoder_batch(
    job: BatchJob, machines: Sequence[Machine], constraints: Constraints, calibrated: CalibratedModel
) -> Sized:
    """Seconds to answer `items` requests on 1 ... `max_nodes` machines of each type, all queued at once."""
    if not placeable(job, machines):
        return replace(NOTHING, misses={index: layout_miss(job, one) for index, one in enumerate(machines)})
    table = decoder_table(job, machines, calibrated, hold_memory=constraints.held("memory"))
    counts = np.array(node_counts(constraints.max_nodes), dtype=np.float64)
    rows = np.repeat(np.flatnonzero(table.fits), len(counts))
    nodes = np.tile(counts, int(table.fits.sum()))
    replicas = table.per_node[rows] * nodes
    if job.replicas is not None:
        exact = np.ceil(job.replicas / table.per_node[rows]) == nodes
        rows, nodes = rows[exact], nodes[exact]
        replicas = np.full(len(rows), float(job.replicas))
    if constraints.max_gpus is not None:
        allowed = nodes * table.devices.per_node[rows] <= constraints.max_gpus
        rows, nodes, replicas = rows[allowed], nodes[allowed], replicas[allowed]
    if not len(rows):
        return replace(NOTHING, misses=memory_misses(table, machines), held_back=table.machines_held_back)
    kinds = table.kind[rows]  # a kind of replica comes once for each number of machines
    states = None if table.curves.rows.scheduler.admission == "fixed" else states_of(table.curves).take(kinds)
    seen = serve_load(table.curves.take(kinds), _queued(job.items / replicas), states)
    work = seen.makespan_s
    group = table.machine[rows].astype(np.int64) * (len(counts) + 1) + np.searchsorted(counts, nodes)
    best = best_per_group(group, work)
    rows, nodes, replicas, work, seen = rows[best], nodes[best], replicas[best], work[best], seen.take(best)
    low, high = table.factors("throughput")

    def detail(row: int) -> RunDetail:
        interval = replace(table.intervals["throughput"][int(rows[row])], of="time")
        return decoder_detail(
            table, int(rows[row]), seen.take(np.array([row])), nodes=int(nodes[row]), replicas=int(replicas[row]),
            requests_per_s=job.items / float(work[row]), time=(interval, float(work[row])),
        )  # fmt: skip

    return Sized(
        machine=table.machine[rows],
        nodes=nodes,
        low_factor=low[rows],
        high_factor=high[rows],
        nodes_low=nodes,
        nodes_high=nodes,
        work_s=work,
        breakdown=detail,
        in_flight_s=_in_flight_s(table, rows, job.items / replicas, work),
        misses=memory_misses(table, machines),
        held_back=table.machines_held_back,
    )


def _in_flight_s(table: DecoderTable, rows: np.ndarray, requests: Array, work_s: Array) -> Array:
    """How long an item is in flight, by Little's law: items in flight over items a second, of one replica."""
    slots = np.minimum(table.curves.rows.slots[table.kind[rows]], requests)
    return np.asarray(slots * work_s / requests)


def _queued(requests: Array) -> DecoderLoad:
    """All there at once."""
    everywhere = np.full(np.shape(requests), np.inf)
    return DecoderLoad(requests=requests, rate_per_s=everywhere, users=everywhere)


def _capacity(table: DecoderTable, limits: LatencyLimits) -> tuple[Array, np.ndarray]:
    """(requests a second within the promises, whether they can be kept) of each kind of replica that fits."""
    fitting = distinct(table.kind[table.fits])
    most, kept = np.full(len(table.curves.batches), np.nan), np.zeros(len(table.curves.batches), dtype=bool)
    most[fitting], kept[fitting] = largest_rate(table.curves.take(fitting), limits.take(fitting))
    return most, kept


def _limits(table: DecoderTable, *, hold: bool) -> LatencyLimits:
    """What is promised, for each kind of replica. `hold`: promises hold at the far end of the 80 % interval."""
    job, kinds = table.job, len(table.curves.batches)
    assert isinstance(job, ServeJob)
    first = np.array([int(np.flatnonzero(table.kind == kind)[0]) for kind in range(kinds)], dtype=np.intp)

    def limit(promised: float | None, of: str) -> Array:
        if promised is None:
            return np.full(kinds, np.inf)
        return np.asarray(promised / (table.factors(of)[1][first] if hold else 1.0) * np.ones(kinds))

    return LatencyLimits(
        latency_s=limit(job.p95_latency_s, "latency"), ttft_s=limit(job.p95_ttft_s, "ttft"),
        tpot_s=limit(job.p95_tpot_s, "latency"),
    )  # fmt: skip


def _promised(job: ServeJob) -> Promise | None:
    """The promise that a plan reports beside the others; None: none is made."""
    if job.p95_latency_s is not None:
        return "latency"
    if job.p95_ttft_s is not None:
        return "ttft"
    return "tpot" if job.p95_tpot_s is not None else None


def machines_allowed(devices: Devices, constraints: Constraints) -> Array:
    """The most machines of a fleet under `max_nodes` and `max_gpus`."""
    most = np.full(len(devices.per_node), float(constraints.max_nodes))
    if constraints.max_gpus is None:
        return most
    return np.asarray(np.minimum(most, np.floor(constraints.max_gpus / devices.per_node)))


def _misses(
    job: ServeJob,
    table: DecoderTable,
    machines: Sequence[Machine],
    holds: np.ndarray,
    nodes: Array,
    load: Array,
    sized: set[int],
    constraints: Constraints,
    pools: Pools | None = None,
) -> dict[int, Miss]:
    """Memory misses first; then pools of stated sizes; then the promise (the best latency it shows); then replicas
    that are fixed; then GPUs."""
    out = memory_misses(table, machines)
    unsized = set(table.machine[table.fits].tolist()) - sized
    alone = _alone(table) if unsized else None
    for index in unsized:
        rows = np.flatnonzero((table.machine == index) & table.fits)
        held = rows[holds[rows]]
        enough = np.flatnonzero(table.machine[pools.row] == index) if pools is not None else rows[:0]
        if pools is not None and len(enough):
            out[index] = fleet_miss(job, pools.nodes()[enough], table.devices.per_node[pools.row[enough]], constraints)
        elif pools is not None:
            out[index] = pool_miss(table, pools, rows.tolist())
        elif not len(held):
            assert alone is not None
            out[index] = _promise_miss(job, table.kind[rows], alone)
        elif job.replicas is not None and not (load[held] <= job.replicas).any():
            needed = ceil(float(np.min(load[held])))
            out[index] = ReplicasMiss(
                needed_replicas=needed,
                given_replicas=job.replicas,
                rate_per_s=job.rate_per_s,
                lifted_by=(SetField(key="replicas", value=needed),),
            )
        else:
            out[index] = fleet_miss(job, nodes[held], table.devices.per_node[held], constraints)
    return out


def fleet_miss(job: ServeJob, nodes: Array, per_node: Array, constraints: Constraints) -> Miss:
    """The limit of GPUs, or of machines, that leaves no room for the smallest fleet that keeps the promise."""
    fewest, gpus = ceil(float(np.min(nodes))), nodes * per_node
    if constraints.max_gpus is None or float(np.min(gpus)) <= constraints.max_gpus:
        return NodesMiss(
            needed_nodes=fewest,
            allowed_nodes=constraints.max_nodes,
            rate_per_s=job.rate_per_s,
            lifted_by=(MoreNodes(max_nodes=fewest),),
        )
    fewest = ceil(float(np.min(gpus)))
    return GpuLimitMiss(
        needed_gpus=fewest,
        allowed_gpus=constraints.max_gpus or 0,
        rate_per_s=job.rate_per_s,
        lifted_by=(MoveMaxGpus(max_gpus=fewest),),
    )


def _alone(table: DecoderTable) -> SeenLoad:
    """What requests see one at a time on each kind of replica (NaN: it does not fit)."""
    with np.errstate(invalid="ignore"):
        return serve_load(table.curves, endless(np.full(len(table.curves.batches), LEAST_SHARE * 1e-3)))


def _promise_miss(job: ServeJob, kinds: IntArray, alone: SeenLoad) -> Miss:
    """The promise that is missed by most with one request at a time, on the kind that shows the best of it."""
    found: tuple[tuple[Promise, LatencySpread, float | None], ...] = (
        ("latency", alone.latency, job.p95_latency_s),
        ("ttft", alone.ttft, job.p95_ttft_s),
        ("tpot", alone.tpot, job.p95_tpot_s),
    )
    best = [
        (promise, float(np.min(spread.at["p95"][kinds])), limit)
        for promise, spread, limit in found
        if limit is not None
    ]
    return latency_miss(job, *max(best, key=lambda one: one[1] / one[2]))


def latency_miss(job: ServeJob, promise: Promise, best_s: float, limit_s: float) -> Miss:
    """The promise a little above the best that the machine shows, or shorter answers."""
    lifted_by: list[AnyChange] = [MovePromise(promise=promise, promised_s=best_s * 1.05)]
    if job.requests.output_tokens is not None and promise == "latency":
        tokens = int(job.requests.output_tokens.mean * limit_s / best_s)
        lifted_by += [FewerOutputTokens(mean_tokens=tokens)] if tokens >= 1 else []
    return LatencyMiss(promise=promise, best_s=best_s, promised_s=limit_s, lifted_by=tuple(lifted_by))
