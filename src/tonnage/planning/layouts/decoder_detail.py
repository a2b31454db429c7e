"""The breakdown of one decoder layout at the load it gets, and why no layout of a machine type holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tonnage.planning.intervals import Interval
from tonnage.planning.layouts.decoder_table import DecoderTable
from tonnage.planning.layouts.fleets import ReplicaFleet
from tonnage.planning.layouts.replica_layouts import ReplicaLayout, layout_miss, unknown_link
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.changes import AcceptRisk, JobField, LargerGpus, SetField
from tonnage.planning.reasons.misses import ConcurrencyMiss, MemoryMiss, Miss
from tonnage.planning.reasons.notes import FrontEndNote, RunNote
from tonnage.planning.reasons.risks import Promise
from tonnage.sizing.decoder_replicas import request_bytes, shared_bytes
from tonnage.sizing.decoder_seen import LatencySpread, SeenLoad
from tonnage.sizing.devices import Machine
from tonnage.sizing.estimates import Figure
from tonnage.sizing.inference_memory import weights_bytes
from tonnage.sizing.served_formats import FORMATS
from tonnage.units import to_gib
from tonnage.workload.file.job_checks import UNSUPPORTED

FRONT_END_BINDS: Final = 0.7  # share of a second that the front end is busy at a replica's capacity
KEPT_OF_FREED: Final = 0.8  # engines keep at least this share of what smaller weights free
Percentiles = tuple[tuple[str, tuple[tuple[str, float], ...]], ...]


def decoder_detail(
    table: DecoderTable,
    row: int,
    seen: SeenLoad,
    *,
    nodes: int,
    replicas: int,
    requests_per_s: float,
    time: tuple[Interval, float] | None = None,
    notes: tuple[RunNote, ...] = (),
    promise: Promise = "latency",
    pools: tuple[tuple[int, float], ...] = (),
    utilisation: float | None = None,
) -> RunDetail:
    """`requests_per_s`: of the whole fleet at its capacity, or of a batch as it goes; `seen`: at one replica's load, a
    single row. `pools`: of the replicas, those that only read prompts and those that only write answers: how many,
    and what one carries."""
    kind = int(table.kind[row])
    of_latency, of_ttft, of_rate = (table.intervals[name][row] for name in ("latency", "ttft", "throughput"))
    rate = of_rate.inverse().around(requests_per_s)
    fleet = tuple(of_rate.inverse().around(each) for _, each in pools) or (rate.scaled(1.0 / replicas),)
    per_machine = int(table.per_node[row])
    parts = _memory_parts(table, kind, float(seen.in_flight[0]))
    slots, layout = int(table.curves.rows.slots[kind]), table.layouts[row]
    held = "a batch" if table.scheduler.admission == "fixed" else f"request{'s' if slots > 1 else ''} in flight"
    text = f"{replicas} replica" + ("s" if replicas > 1 else "")
    text = f"{pools[0][0]} prefill and {pools[1][0]} decode replicas" if pools else text
    text += f", {layout.describe()}" if layout.devices > 1 else ""
    text += f", up to {slots} {held} each, {table.job.weights}"
    text += " (products in 16 bit)" if table.job.weights == "fp8" and not table.curves.rows.served.low_bit else ""
    latency, first, token = seen.latency, seen.ttft, seen.tpot
    return RunDetail(
        layout=text,
        layout_fields=(
            *_counted(replicas, per_machine, pools),
            ("nodes", nodes),
            ("tensor_parallel", layout.devices),
            *_expert_degrees(layout),
            ("concurrency", slots),
            ("weights", table.job.weights),
            ("kv_cache", "fp8" if table.curves.rows.served.kv_bytes == 1.0 else "fp16"),
            ("engine_class", table.engine.name),
            *_stated(table),
        ),
        time_s=None if time is None else time[0].around(time[1]),
        time_parts=(
            ("ttft p95", float(first.at["p95"][0])),
            ("time per output token", float(token.mean[0])),
            ("mean latency", float(latency.mean[0])),
        ),
        time_parts_of="request",
        memory_gib=_memory(table, kind, sum(gib for _, gib in parts)),
        memory_parts_gib=parts,
        memory_available_gib=to_gib(float(table.devices.memory_bytes[row])),
        rates=(
            ("requests_per_s", rate),
            ("output_tokens_per_s", rate.scaled(float(table.curves.rows.output[kind]))),
        ),
        latency_p95_s=None if time else of_latency.around(float(latency.at["p95"][0])),
        ttft_p95_s=None if time else of_ttft.around(float(first.at["p95"][0])),
        tpot_p95_s=None if time else of_latency.around(float(token.at["p95"][0])),
        percentiles=tuple((name, _columns(spread)) for name, spread in
                          (("ttft", first), ("tpot", token), ("latency", latency))),
        promise=promise,
        utilisation=utilisation,
        fleet=None if time else ReplicaFleet(
            pools=fleet, per_machine=per_machine, one_machine=len(pools) > 1 and not table.networked[row]
        ),
        notes=(*notes, *_front_end(table, requests_per_s / replicas)),
        intervals=(*(() if time is None else (time[0],)), of_latency, of_ttft, of_rate, table.held),
    )  # fmt: skip


def _front_end(table: DecoderTable, replica_per_s: float) -> tuple[RunNote, ...]:
    """Where not the device but the engine's front end limits a replica."""
    each_s = table.scheduler.accept_s
    if replica_per_s * each_s < FRONT_END_BINDS:
        return ()
    return (FrontEndNote(engine=table.scheduler.name, accept_s=each_s),)


def _counted(replicas: int, per_node: int, pools: tuple[tuple[int, float], ...]) -> tuple[tuple[str, int], ...]:
    if not pools:
        return (("replicas", replicas), ("replicas_per_node", per_node))
    return (("prefill_replicas", pools[0][0]), ("decode_replicas", pools[1][0]))


def _expert_degrees(layout: ReplicaLayout) -> tuple[tuple[str, int], ...]:
    named = (("expert_parallel", layout.experts), ("attention_data_parallel", layout.groups))
    return tuple((name, degree) for name, degree in named if degree > 1)


def _stated(table: DecoderTable) -> tuple[tuple[str, str], ...]:
    """What a job says of its decoding that other jobs do not."""
    cached, guesses = table.job.prefix_cache_fraction, table.job.speculative
    share = (("prefix_cache_fraction", f"{cached:g}"),) if cached else ()
    return (*share, *(() if guesses is None else (("speculative", guesses.describe()),)))


def _columns(spread: LatencySpread) -> tuple[tuple[str, float], ...]:
    return (("mean", float(spread.mean[0])), *((name, float(values[0])) for name, values in spread.at.items()))


def _memory(table: DecoderTable, kind: int, gib: float) -> Figure:
    """What is in use, with its interval. An engine that sets its pool by what is left never takes more than that."""
    spread, weights = table.held.spread, to_gib(float(table.memory.weights_bytes[kind]))
    low, high = (gib + (gib - weights) * (factor - 1.0) for factor in (spread.low_factor, spread.high_factor))
    figure = Figure(value=gib, low=low, high=high)
    if table.scheduler.admission == "fixed":
        return figure
    most = to_gib(float(table.memory.held_bytes[kind] + table.memory.pool_bytes[kind]))
    return replace(figure, high=max(min(figure.high, most), gib))


def _memory_parts(table: DecoderTable, kind: int, in_flight: float) -> tuple[tuple[str, float], ...]:
    rows, memory = table.curves.rows, table.memory
    shared, read = float(shared_bytes(rows)[kind]), float(np.broadcast_to(rows.read_bytes, rows.slots.shape)[kind])
    if table.scheduler.admission == "fixed":  # held to its last token, every place as long as the longest request
        each = float(table.longest_bytes[kind]) - shared - read
    else:
        each = float(request_bytes(rows, rows.context)[kind])
    own = in_flight / table.layouts[int(np.flatnonzero(table.kind == kind)[0])].groups
    cache = own * each + shared
    parts = {
        "weights": float(memory.weights_bytes[kind]),
        "activations": float(memory.step_bytes[kind]) + own * read,
        "kv cache": min(cache, max(float(memory.pool_bytes[kind]), 0.0)),
        "context": float(memory.outside_bytes[kind]),
    }
    return tuple((name, to_gib(size)) for name, size in parts.items() if size > 0)


def memory_misses(table: DecoderTable, machines: Sequence[Machine]) -> dict[int, Miss]:
    """For each machine type none of whose rows fit: the limit, from its roomiest row; or that it has none."""
    fitting = set(table.machine[table.fits].tolist())
    saved_bytes = _saved_by_smaller_weights(table)
    out: dict[int, Miss] = {}
    for index in range(len(machines)):
        rows = np.flatnonzero(table.machine == index)
        if not len(rows):
            out[index] = layout_miss(table.job, machines[index])
            continue
        if index in fitting:
            continue
        row = int(rows[np.argmax(table.room[table.kind[rows]])])
        out[index] = _memory_miss(table, row, saved_bytes)
    return out


def _memory_miss(table: DecoderTable, row: int, saved_bytes: Mapping[str, float]) -> Miss:
    kind, memory = int(table.kind[row]), table.memory
    degree = int(table.tensor_parallel[row])
    pool, longest = float(memory.pool_bytes[kind]), float(table.longest_bytes[kind])
    key: JobField = "batch" if table.job.batch else "concurrency"
    limit = table.job.batch or table.job.concurrency
    if pool >= longest and limit is not None and table.room[kind] < limit:
        room = int(table.room[kind])
        return ConcurrencyMiss(
            asked_requests=limit,
            held_requests=float(table.room[kind]),
            cache_gib=to_gib(pool),
            tensor_parallel=degree,
            lifted_by=(SetField(key=key, value=room) if room else LargerGpus(),),
        )
    total = to_gib(float(table.devices.memory_bytes[row]))
    needs = total - to_gib(pool) + to_gib(longest)
    if table.held_back[row]:
        beyond = memory.beyond_bytes(memory.held_bytes + longest, table.held.spread.high_factor)
        return MemoryMiss(
            needed_gib=needs + to_gib(float(beyond[kind])),
            available_gib=total,
            expected_gib=needs,
            tensor_parallel=degree,
            engine_keeps=True,
            lifted_by=(AcceptRisk(limit="memory"),),
        )
    if pool >= longest:  # it holds what it must: what its devices share goes over a link of unknown rate
        return unknown_link()
    each = float(table.curves.rows.tensor_parallel[kind])
    enough = (name for name, saved in saved_bytes.items() if saved / each * KEPT_OF_FREED >= longest - pool)
    smaller = next(enough, None)
    return MemoryMiss(
        needed_gib=needs,
        available_gib=total,
        tensor_parallel=degree,
        engine_keeps=True,
        lifted_by=(SetField(key="weights", value=smaller) if smaller else LargerGpus(),),
    )


def _saved_by_smaller_weights(table: DecoderTable) -> dict[str, float]:
    """Bytes of all weights that each smaller format saves, of those the engine runs, the nearest first."""
    rows = table.curves.rows
    now = weights_bytes(rows.shape, rows.served)
    formats = [name for name in ("fp8", "int8", "int4") if (table.job.engine, name) not in UNSUPPORTED]
    saved = {name: now - weights_bytes(rows.shape, FORMATS[name]) for name in formats}
    return {name: size for name, size in saved.items() if size > 0}
