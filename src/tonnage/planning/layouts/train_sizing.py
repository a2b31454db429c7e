"""A training job on every machine type: drop what does not fit, keep the fastest layout per node count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.intervals import Interval
from tonnage.planning.layouts.hosts import Hosts, hosts_of, longer
from tonnage.planning.layouts.layout_grid import LayoutGrid, degrees_divide, fixed_degrees, grid_for
from tonnage.planning.layouts.replica_layouts import unknown_link
from tonnage.planning.layouts.training_flips import cheapest_fit
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.changes import (
    AcceptRisk,
    AnyChange,
    DivideBatch,
    DivideGpus,
    WholeMachines,
)
from tonnage.planning.reasons.misses import (
    BatchDivisionMiss,
    DegreesMiss,
    MemoryMiss,
    Miss,
    WholeMachinesMiss,
)
from tonnage.planning.reasons.notes import AllocatorNote
from tonnage.planning.sized import IntArray, Sized, best_per_group, group_numbers
from tonnage.sizing.assumptions import HOST_SPREAD, Assumptions
from tonnage.sizing.devices import Devices, Machine, stack
from tonnage.sizing.estimates import Array, Figure, distinct
from tonnage.sizing.fitting import fits, holds, room
from tonnage.sizing.layouts import SHARDINGS, Layouts
from tonnage.sizing.precision import TRAINING
from tonnage.sizing.trainer_profile import TrainerProfile
from tonnage.sizing.training_memory import TrainingMemory, state_bytes
from tonnage.sizing.training_prediction import peak_memory, predict_training
from tonnage.sizing.training_time import TrainingStep
from tonnage.units import to_gib
from tonnage.values import dataclass
from tonnage.workload.jobs import Constraints, TrainJob
from tonnage.workload.programs import SPLITTING

WAITS = "waiting for the host"  # part of a step
NOTED_GIB = 0.05  # an allocator's slack below this goes without saying


@dataclass(frozen=True, slots=True, kw_only=True)
class _Intervals:
    """Of step time and memory needed, one a machine."""

    time: tuple[Interval, ...]
    memory: tuple[Interval, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """Bytes a GPU, one row of the grid each: needed, needed at the interval's upper end, usable; what fits."""

    needed: Array
    worst: Array
    capacity: Array
    usable: Array  # the capacity less the margin
    expected: np.ndarray  # whether the expected figure fits
    enough: np.ndarray  # whether the layout may be taken


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTable:
    """Layouts that fit, with their step times: the columns `detail` reads."""

    job: TrainJob
    grid: LayoutGrid
    devices: Devices
    memory: TrainingMemory
    needed_bytes: Array
    step: TrainingStep
    step_s: Array  # all parts of `step`
    host_share: Array  # of `step`
    state_bytes: Array  # what no step peaks below
    usable_bytes: Array
    intervals: _Intervals
    hosts: Hosts


def size_training(
    job: TrainJob,
    machines: Sequence[Machine],
    constraints: Constraints,
    calibrated: CalibratedModel,
    trainer: TrainerProfile | None = None,
) -> Sized:
    """Time and memory of `job` (precision not `auto`) on each machine type, all layouts tried.

    The machines must publish the figures that sizing needs (`devices.peak_tflops` has been asked before). `trainer`:
    as `predict_training` takes it.
    """
    assumed = calibrated.assumed
    grid = grid_for(job, machines, max_nodes=constraints.max_nodes, max_gpus=constraints.max_gpus)
    stacked = stack(machines, TRAINING[job.precision].compute, assumed)
    channels = None if stacked.channel_share is None else stacked.channel_share[grid.machine]
    generation = None if stacked.generation is None else stacked.generation[grid.machine]
    memory = peak_memory((job,), grid.layouts, assumed, trainer, channels, generation)
    intervals = _Intervals(
        time=tuple(calibrated.training_time(job, one.accelerator) for one in machines),
        memory=tuple(calibrated.training_memory(job, one.accelerator) for one in machines),
    )
    worst = np.array([one.spread.high_factor for one in intervals.memory])
    capacity = stacked.memory_bytes[grid.machine]
    needed = memory.needed_bytes
    expected = fits(needed, capacity, assumed.memory_margin_fraction)
    held = expected & holds(needed, worst[grid.machine], capacity)
    enough = held if constraints.held("memory") else expected
    safe, every = _largest_micro_batches(grid, enough), _largest_micro_batches(grid, expected)
    candidates = distinct(np.concatenate((safe, every))).astype(np.intp)
    table = _timed(job, grid, candidates, stacked, assumed, intervals, trainer, hosts_of(machines))
    known = np.isfinite(table.step_s)
    best = _fastest(table, known & np.isin(candidates, safe))
    boldest = best if len(safe) == len(candidates) else _fastest(table, known & np.isin(candidates, every))
    spaces = _Room(
        needed=needed, worst=needed * worst[grid.machine], capacity=capacity,
        usable=room(1.0, assumed.memory_margin_fraction) * capacity, expected=expected, enough=enough,
    )  # fmt: skip
    misses = _misses(job, machines, grid, spaces, set(table.grid.machine[best].tolist()), calibrated, constraints)
    sized = _columns(table, best, misses)
    return sized if boldest is best else replace(sized, risky=_columns(table, boldest, {}))  # timed in one go


def _columns(table: TrainingTable, best: IntArray, misses: Mapping[int, Miss]) -> Sized:
    """The chosen rows of a table, as sizing hands them on."""
    job = table.job
    steps = np.ceil(job.samples / job.global_batch) * job.epochs
    layouts = table.grid.layouts.take(best)
    nodes = layouts.nodes
    spreads = [_time_interval(table, int(row)).spread for row in best]
    work = table.step_s[best] * steps
    low, high = (np.array([getattr(one, end) for one in spreads], np.float64) for end in ("low_factor", "high_factor"))
    if table.hosts.any:
        work, low, high = _with_hosts(table, best, work, work * low, work * high)
    machine, rate = table.grid.machine[best], _items_per_machine(table, best) / work
    in_doubt = table.hosts.in_doubt(machine, rate, layouts.gpus / nodes) if table.hosts.any else None
    return Sized(
        machine=machine,
        nodes=nodes,
        low_factor=low,
        high_factor=high,
        nodes_low=nodes,
        nodes_high=nodes,
        work_s=work,
        breakdown=lambda row: _detail(table, int(best[row]), float(steps)),
        state_parts=_state_parts(layouts),
        host_in_doubt=in_doubt,
        misses=misses,
    )


def _with_hosts(table: TrainingTable, best: IntArray, work: Array, low: Array, high: Array) -> tuple[Array, ...]:
    """Seconds where hosts may hold devices up, and their ends as factors on them."""
    items = _items_per_machine(table, best)
    machine, hosts = table.grid.machine[best], table.hosts
    bounded = np.maximum(work, items / hosts.value[machine])
    least, most = np.maximum(low, items / hosts.high[machine]), np.maximum(high, items / hosts.low[machine])
    return bounded, least / bounded, most / bounded


def _items_per_machine(table: TrainingTable, best: IntArray) -> Array:
    """Of the whole job."""
    return table.job.samples * table.job.epochs / table.grid.layouts.nodes[best]


def _state_parts(layouts: Layouts) -> Array:
    """Machines that each save a part of the state: all of them where the ranks split it, by sharding or by tensor and
    pipeline parallel degrees that span machines; else the first one saves it."""
    split = layouts.tensor_parallel * layouts.pipeline_parallel
    spanned = np.clip(split * layouts.nodes / layouts.gpus, 1.0, layouts.nodes)
    return np.where(layouts.sharding == SHARDINGS.index("ddp"), spanned, layouts.nodes)


def _largest_micro_batches(grid: LayoutGrid, enough: np.ndarray) -> IntArray:
    """Per layout (everything but the micro-batch), the two largest micro-batches that fit: the fast ones."""
    rows: IntArray = np.flatnonzero(enough)
    if not len(rows):
        return rows
    lay = grid.layouts
    parts = (grid.machine, lay.nodes, lay.tensor_parallel, lay.pipeline_parallel, lay.sharding, lay.recompute)
    group = group_numbers(*(column[rows] for column in parts))
    order = np.lexsort((-lay.micro_batch[rows], group))
    ordered = group[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    second = np.r_[False, first[:-1]] & ~first
    chosen: IntArray = rows[order[first | second]]
    return chosen


def _timed(
    job: TrainJob, grid: LayoutGrid, rows: IntArray, stacked: Devices, assumed: Assumptions, intervals: _Intervals,
    trainer: TrainerProfile | None, hosts: Hosts,
) -> TrainingTable:  # fmt: skip
    layouts = grid.layouts.take(rows)
    machine = grid.machine[rows]
    devices = stacked.take(machine)
    predicted = predict_training((job,), layouts, devices, assumed, trainer)
    return TrainingTable(
        job=job,
        grid=LayoutGrid(machine=machine, layouts=layouts),
        devices=devices,
        memory=predicted.memory,
        needed_bytes=predicted.memory.needed_bytes,
        step=predicted.step,
        step_s=predicted.step.total_s,
        host_share=predicted.step.host_share,
        state_bytes=state_bytes(job, layouts, trainer),
        usable_bytes=devices.memory_bytes,
        intervals=intervals,
        hosts=hosts,
    )


def _fastest(table: TrainingTable, known: np.ndarray) -> IntArray:
    """The fastest layout of each machine x node count, without splitting the model where that fits.

    Every trainer runs DDP and ZeRO / FSDP; tensor and pipeline parallel take a framework of their own, so they are
    proposed where the program named has them, where nothing else fits, or where the workload asks for them (then the
    grid holds nothing else).
    """
    layouts = table.grid.layouts
    split = (layouts.tensor_parallel * layouts.pipeline_parallel > 1) & (table.job.program.name not in SPLITTING)
    rows = np.flatnonzero(known)
    group = group_numbers(table.grid.machine[rows], layouts.nodes[rows])
    return rows[best_per_group(group, table.step_s[rows] + 1e12 * split[rows])].astype(np.intp)


def _detail(table: TrainingTable, row: int, steps: float) -> RunDetail:
    job, layout = table.job, table.grid.layouts.row(row)
    step_s = float(table.step_s[row])
    machine = int(table.grid.machine[row])
    of_time, of_memory = _time_interval(table, row), _memory_interval(table, row)
    per_step = float(job.global_batch)
    host = table.hosts.figure(machine, layout.nodes)
    rate = longer(of_time.around(step_s), per_step, host)
    time = longer(of_time.around(step_s * steps), job.samples * job.epochs, host)
    samples = _inverse(rate, per_step)
    waits = ((WAITS, rate.value - step_s),) if rate.value > step_s else ()
    rates = [("samples_per_s", samples)]
    if job.model.architecture not in ("vision-transformer", "convolution"):
        rates.append(("tokens_per_s", samples.scaled(job.lengths.mean)))
    peak = float(table.devices.peak_flop_per_s[row])
    mfu = _inverse(rate, float(table.step.model_flop[row]) / peak)
    parts = table.memory.components(row)
    held = to_gib(parts.pop("fragmentation", 0.0))
    notes = (AllocatorNote(held_gib=held),) if held >= NOTED_GIB else ()
    return RunDetail(
        layout=layout.describe(job.virtual_stages),
        layout_fields=(
            ("gpus", layout.gpus),
            ("nodes", layout.nodes),
            ("data_parallel", layout.data_parallel),
            ("tensor_parallel", layout.tensor_parallel),
            ("pipeline_parallel", layout.pipeline_parallel),
            ("context_parallel", layout.context_parallel),
            *((("virtual_stages", job.virtual_stages),) if job.virtual_stages else ()),
            ("sharding", layout.sharding),
            ("recompute", layout.recompute),
            ("micro_batch", layout.micro_batch),
            ("accumulation", layout.accumulation),
            ("precision", job.precision),
            *((("program", job.program.name),) if job.program.name else ()),
        ),
        time_s=time,
        time_parts=(*table.step.parts(row).items(), *waits),
        time_parts_of="step",
        memory_gib=of_memory.around(to_gib(float(table.needed_bytes[row]))),
        memory_parts_gib=tuple((name, to_gib(size)) for name, size in parts.items()),
        memory_available_gib=to_gib(float(table.usable_bytes[row])),
        rates=(*rates, ("mfu_fraction", mfu)),
        notes=notes,
        intervals=(of_time, of_memory),
        host=table.hosts.share(machine, layout.nodes, per_step / step_s),
    )


def _time_interval(table: TrainingTable, row: int) -> Interval:
    """The interval of a row's step time: the wider the more of it the host bounds, whose speed no offer states; its
    near end keeps what the device's own products and memory allow."""
    step_s, floor_s = float(table.step_s[row]), float(table.step.floor_s[row])
    interval = table.intervals.time[int(table.grid.machine[row])]
    spread = interval.spread.beside(HOST_SPREAD, float(table.host_share[row]))
    return replace(interval, spread=spread.above(step_s, floor_s))


def _memory_interval(table: TrainingTable, row: int) -> Interval:
    """The interval of a row's memory; its low end keeps the state, which follows from precision and sharding."""
    interval = table.intervals.memory[int(table.grid.machine[row])]
    spread = interval.spread.above(float(table.needed_bytes[row]), float(table.state_bytes[row]))
    return replace(interval, spread=spread)


def _inverse(seconds: Figure, amount: float) -> Figure:
    """`amount` per second, its interval turned round."""
    return Figure(
        value=amount / seconds.value,
        low=amount / seconds.high,
        high=amount / seconds.low,
        basis=seconds.basis,
    )


def _misses(
    job: TrainJob,
    machines: Sequence[Machine],
    grid: LayoutGrid,
    spaces: _Room,
    sized: set[int],
    calibrated: CalibratedModel,
    constraints: Constraints,
) -> dict[int, Miss]:
    """For each machine type without a layout: how much the leanest layout needs, and the smallest change that fits."""
    missing = [index for index in range(len(machines)) if index not in sized]
    if not missing:
        return {}
    out: dict[int, Miss] = {}
    leanest = best_per_group(grid.machine.astype(np.int64), spaces.needed)
    lean_row = {int(grid.machine[row]): int(row) for row in leanest}
    flips = cheapest_fit(job, [machines[index] for index in missing], calibrated, constraints)
    any_fit = set(grid.machine[spaces.enough].tolist())
    for index, flip in zip(missing, flips, strict=True):
        if index not in lean_row:
            out[index] = _no_layout(job, machines[index], constraints.max_nodes)
            continue
        if index in any_fit:
            out[index] = unknown_link()
            continue
        row = lean_row[index]
        layout = grid.layouts.row(row).describe()
        miss = _risky_miss if spaces.expected[row] else _memory_miss
        out[index] = miss(spaces, row, layout, flip, calibrated.assumed.memory_margin_fraction)
    return out


def _memory_miss(spaces: _Room, row: int, layout: str, flip: AnyChange | None, margin_fraction: float) -> Miss:
    """The leanest layout needs more than there is."""
    return MemoryMiss(
        needed_gib=to_gib(float(spaces.needed[row])),
        available_gib=to_gib(float(spaces.usable[row])),
        layout=layout,
        kept_free_fraction=margin_fraction,
        lifted_by=(flip,) if flip else (),
    )


def _risky_miss(spaces: _Room, row: int, layout: str, flip: AnyChange | None, _: float) -> Miss:
    """The leanest layout is expected to fit, and the upper end of its interval does not."""
    return MemoryMiss(
        needed_gib=to_gib(float(spaces.worst[row])),
        available_gib=to_gib(float(spaces.capacity[row])),
        expected_gib=to_gib(float(spaces.needed[row])),
        layout=layout,
        lifted_by=(AcceptRisk(limit="memory"), *((flip,) if flip else ())),
    )


def _no_layout(job: TrainJob, machine: Machine, max_nodes: int) -> Miss:
    """No layout divides over this machine: the GPUs or nodes that are fixed, the degrees, else the global batch."""
    fixed = job.gpus or (job.nodes or 0) * machine.count
    if fixed and (fixed % machine.count or (fixed > machine.count and machine.network_gb_per_s is None)):
        lift = WholeMachines(gpus_per_machine=machine.count, one_machine=not fixed % machine.count)
        return WholeMachinesMiss(
            gpus=fixed,
            gpus_per_machine=machine.count,
            network_known=bool(fixed % machine.count),
            lifted_by=(lift,),
        )
    if not degrees_divide(job, machine, max_nodes):
        degrees = fixed_degrees(job)
        return DegreesMiss(
            degrees=tuple(f"{name} {degree}" for name, degree in degrees.items()),
            needed_gpus=prod(degrees.values()),
            gpus=machine.count,
            lifted_by=(DivideGpus(gpus=machine.count),),
        )
    divide = DivideBatch(gpus=machine.count)
    return BatchDivisionMiss(global_batch=job.global_batch, gpus=machine.count, lifted_by=(divide,))
