"""Decoder replicas on every machine type: machine x tensor parallel, with the cache each leaves and what it carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tonnage.catalog.hardware import Accelerator
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.intervals import Interval
from tonnage.planning.layouts.replica_layouts import ReplicaLayout, replica_layouts
from tonnage.planning.sized import IntArray
from tonnage.sizing.decoder_curves import DecoderCurves, DecoderRows, lay_out_decoder
from tonnage.sizing.decoder_replicas import (
    batch_bytes,
    cache_room,
    decoder_rows,
    most_requests,
    request_bytes,
    rows_memory,
    shared_bytes,
)
from tonnage.sizing.devices import Devices, Machine
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array
from tonnage.sizing.inference_devices import serving_devices
from tonnage.sizing.kv_pool import EngineMemory, with_cache
from tonnage.sizing.precision import SERVING_COMPUTE
from tonnage.sizing.schedulers import SCHEDULERS, Scheduler, scheduler_of
from tonnage.sizing.served_formats import FORMATS
from tonnage.sizing.served_weights import shared_weights
from tonnage.values import dataclass
from tonnage.workload.jobs import BatchJob, ServeJob


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderTable:
    """One row a machine type and degree. Replicas that are alike (device, degree, link) share a row of `curves`."""

    job: ServeJob | BatchJob
    engine: Engine
    scheduler: Scheduler
    intervals: Mapping[str, tuple[Interval, ...]]  # of latency, ttft and throughput (as seconds), a row each
    held: Interval  # of memory
    machine: IntArray
    layouts: tuple[ReplicaLayout, ...]
    tensor_parallel: Array  # devices of a replica
    per_node: Array  # replicas on one machine
    devices: Devices
    kind: IntArray  # the row of `curves` and of the columns below
    curves: DecoderCurves
    memory: EngineMemory
    room: Array  # requests of mean length that the cache holds
    longest_bytes: Array  # of cache that the longest request takes
    fits: np.ndarray  # of this table's rows
    held_back: np.ndarray  # rows that fit on the expected figure, and not at the upper end of the memory interval

    @property
    def machines_held_back(self) -> frozenset[int]:
        """Machines with rows that only the interval keeps out."""
        return frozenset(self.machine[self.held_back].tolist())

    @property
    def networked(self) -> np.ndarray:
        """Rows whose machines have a known network; without one two pools run inside one machine."""
        return np.isfinite(self.devices.inter_bytes_per_s)

    def factors(self, of: str) -> tuple[Array, Array]:
        """Low and high factor of an interval, a row each."""
        spreads = [one.spread for one in self.intervals[of]]
        low, high = (np.array([getattr(one, end) for one in spreads]) for end in ("low_factor", "high_factor"))
        return low, high


def job_scheduler(job: ServeJob | BatchJob) -> Scheduler:
    """The scheduler of the engine that a job names; a stated batch runs from its prompts to its last token."""
    if job.batch:
        return SCHEDULERS["static"]
    scheduler = scheduler_of(job.engine)
    return replace(scheduler, chunked=True) if job.engine_limits.chunked else scheduler


def placeable(job: ServeJob | BatchJob, machines: Sequence[Machine]) -> bool:
    """Whether any of the machines takes a replica of a degree that divides the model."""
    return any(replica_layouts(job, machine.count) for machine in machines)


def _default_batch(rows: DecoderRows, memory: EngineMemory, full_bytes: Array, calibrated: CalibratedModel) -> Array:
    """The largest batch, at most the engine's own limit, whose cache fits at full length beside the memory margin."""
    kept_free = rows.devices.memory_bytes * max(calibrated.assumed.memory_margin_fraction, 0.0)
    held = (memory.pool_bytes - shared_bytes(rows) - kept_free) / full_bytes
    return np.maximum(np.minimum(rows.slots, np.floor(held)), 1.0)


UNSEEN_LAYOUT = "layout: experts dealt out"  # no measured row has one


def _intervals(
    job: ServeJob | BatchJob, calibrated: CalibratedModel, places: Sequence[tuple[Accelerator, ReplicaLayout]]
) -> dict[str, tuple[Interval, ...]]:
    """Of latency, time to the first token and throughput, for each device and layout."""
    found: dict[tuple[str, str | None], tuple[Interval, Interval, Interval]] = {}
    keys = []
    for device, spread in places:
        unseen = UNSEEN_LAYOUT if spread.experts > 1 or spread.groups > 1 else None
        keys.append((device.name, unseen))
        if keys[-1] not in found:
            ways = (calibrated.pass_time, calibrated.first_token_time, calibrated.throughput_time)
            found[keys[-1]] = (ways[0](job, device, unseen), ways[1](job, device, unseen), ways[2](job, device, unseen))
    columns = zip(*(found[key] for key in keys), strict=True)
    return dict(zip(("latency", "ttft", "throughput"), columns, strict=True))


def decoder_table(
    job: ServeJob | BatchJob, machines: Sequence[Machine], calibrated: CalibratedModel, *, hold_memory: bool = True
) -> DecoderTable:
    """Every machine type x degree, laid out once for all that are alike. `hold_memory`: the upper end of the memory
    interval must fit too."""
    by_count = {count: replica_layouts(job, count) for count in {machine.count for machine in machines}}
    places = [(index, layout) for index, machine in enumerate(machines) for layout in by_count[machine.count]]
    alike: dict[tuple[object, ...], int] = {}
    firsts: list[tuple[int, ReplicaLayout]] = []
    kind = []
    for index, layout in places:
        machine = machines[index]
        key = (machine.accelerator.name, layout, machine.intra if layout.devices > 1 else None)
        if key not in alike:
            alike[key] = len(firsts)
            firsts.append((index, layout))
        kind.append(alike[key])
    scheduler = job_scheduler(job)
    engine = calibrated.engine(job)
    owner = np.array([index for index, _ in places], dtype=np.intp)
    tensor = np.array([float(layout.devices) for _, layout in places])
    groups = np.array([float(layout.groups) for _, layout in firsts])
    weights = shared_weights(job.weights, job.engine, [machine.accelerator for machine in machines])
    every = serving_devices(machines, SERVING_COMPUTE[weights], calibrated.assumed)
    first_owner = np.array([index for index, _ in firsts], dtype=np.intp)
    limit = job.batch or job.concurrency
    rows = decoder_rows(
        job.model, with_cache(FORMATS[weights], job.kv_cache, scheduler), scheduler, every.take(first_owner),
        [machines[index].accelerator for index, _ in firsts], [job.requests] * len(firsts),
        tensor_parallel=np.array([float(layout.devices) for _, layout in firsts]) / groups,
        data_ranks=groups, expert_parallel=np.array([float(layout.experts) for _, layout in firsts]),
        concurrency=np.full(len(firsts), np.nan if limit is None else float(limit)),
        cached=job.prefix_cache_fraction, speculation=job.speculative, engine=engine,
        limits=[job.engine_limits] * len(firsts),
    )  # fmt: skip
    devices_of = [machines[index].accelerator for index, _ in firsts]
    set_to = np.array([most_requests(scheduler, job.engine_limits, device) for device in devices_of]) * groups
    memory, room = rows_memory(rows, set_to), cache_room(rows, set_to)
    output = job.requests.output_tokens
    longest = float(job.requests.input_tokens.maximum + (0 if output is None else output.maximum))
    longest_tokens = np.full(len(firsts), longest)
    full_bytes = request_bytes(rows, longest_tokens)
    longest_bytes = full_bytes + shared_bytes(rows)
    if scheduler.admission == "fixed":  # every place of a batch is as long as its longest request
        room = (memory.pool_bytes - shared_bytes(rows)) / full_bytes
        if limit is None:
            rows = replace(rows, slots=_default_batch(rows, memory, full_bytes, calibrated))
    roomy = (memory.pool_bytes >= longest_bytes) & (room >= (limit or 1))
    some = np.flatnonzero(roomy) if roomy.any() else np.zeros(min(len(firsts), 1), dtype=np.intp)
    curves = lay_out_decoder(rows.take(some), engine).under(engine).among(rows, some)
    expected = roomy & np.isfinite(curves.decode_grid_s).all(axis=1)
    held = calibrated.served_memory()
    fixed = scheduler.admission == "fixed"
    used = batch_bytes(rows, longest_tokens) if fixed else memory.held_bytes + longest_bytes
    worst = used + memory.beyond_bytes(used, held.spread.high_factor)
    fits = expected & (worst <= memory.held_bytes + memory.pool_bytes) if hold_memory else expected
    kinds = np.array(kind, dtype=np.intp)
    devices = every.take(owner)
    return DecoderTable(
        job=job, engine=engine, scheduler=scheduler,
        intervals=_intervals(job, calibrated, [(machines[index].accelerator, layout) for index, layout in places]),
        held=held, machine=owner,
        layouts=tuple(layout for _, layout in places), tensor_parallel=tensor, per_node=devices.per_node // tensor,
        devices=devices, kind=kinds, curves=curves, memory=memory, room=room, longest_bytes=longest_bytes,
        fits=fits[kinds] if len(kinds) else np.zeros(0, dtype=bool),
        held_back=(expected & ~fits)[kinds] if len(kinds) else np.zeros(0, dtype=bool),
    )  # fmt: skip
