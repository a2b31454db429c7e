"""Boosted trees or an MLP on every machine type, with accelerators or without: host and device memory, seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from tonnage.calibration.tabular_fit import TabularCorrection, TabularFit, correction, gpu_spread
from tonnage.calibration.tabular_rows import physics
from tonnage.catalog import Catalog
from tonnage.catalog.market import InstanceType
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.intervals import Interval
from tonnage.planning.layouts.machines import Key, MachineTypes, accelerator_machine_types
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.changes import AcceptRisk, MoveMaxGpus, Publish, SmallerTable, TrainMlp
from tonnage.planning.reasons.misses import GpuLimitMiss, MemoryMiss, Miss, UnmeasuredTreesMiss, UnpublishedMiss
from tonnage.planning.sized import Sized
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine, stack
from tonnage.sizing.estimates import Array, Figure, Spread
from tonnage.sizing.fitting import fits, holds, room
from tonnage.sizing.tabular import (
    TABULAR_MEMORY_SPREAD,
    CpuColumns,
    TabularEstimate,
    estimate_mlp_on_gpus,
    estimate_trees_on_gpus,
)
from tonnage.units import from_gib, to_gib
from tonnage.values import dataclass
from tonnage.workload.jobs import Constraints, TabularJob

COMPUTE_PRECISION = "fp16"  # the MLP trains in mixed precision; trees never read the matrix rate

ONE_THREAD_A_CORE_FAMILIES = ("m7a.", "c7a.", "r7a.")  # AWS sells these AMD machines without hyper-threads
Holder = Literal["memory", "host memory"]
NO_ROCM = UnmeasuredTreesMiss(lifted_by=(TrainMlp(),))


@dataclass(frozen=True, slots=True, kw_only=True)
class _OnDevice:
    """Memory of one device, a machine each, and what of it is kept free."""

    bytes: Array
    margin_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The kind of device, and how far off its seconds are: by which group of rows."""

    kind: str
    spread: Spread
    group: str


def _group(job: TabularJob, kind: str, change: TabularCorrection | None) -> str:
    if change is None or not change.tables:
        return f"{job.method} on {kind}"
    return f"{job.method} on {kind}, {change.engine} on {change.tables} tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hosts:
    """Host columns beside the machines; NaN where a provider does not state them."""

    vcpus: Array
    memory_bytes: Array
    arm: np.ndarray


def size_tabular(
    job: TabularJob,
    catalog: Catalog,
    instances: Sequence[InstanceType],
    constraints: Constraints,
    calibrated: CalibratedModel,
) -> list[tuple[MachineTypes, Sized]]:
    """One table for machines with accelerators, one for processors alone; one machine each (no cluster of them)."""
    with_gpus = [one for one in instances if one.accelerator is not None]
    if job.method == "boosted-trees":
        with_gpus, amd = _split_by_vendor(catalog, with_gpus)
    else:
        amd = []
    without = [one for one in instances if one.accelerator is None]
    types, sized = _on_gpus(job, catalog, with_gpus, constraints, calibrated.assumed)
    refused = {one.key: NO_ROCM for one in amd}
    alone = _on_cpus(job, without, constraints, calibrated.tabular)
    return [(replace(types, unsized=types.unsized | refused), sized), alone]


def _split_by_vendor(
    catalog: Catalog, instances: Sequence[InstanceType]
) -> tuple[list[InstanceType], list[InstanceType]]:
    """Instance types whose devices are not AMD's, and those whose are."""
    amd = {device.name for device in catalog.accelerators if device.vendor == "AMD"}
    return [one for one in instances if one.accelerator not in amd], [
        one for one in instances if one.accelerator in amd
    ]


def _on_gpus(
    job: TabularJob, catalog: Catalog, instances: Sequence[InstanceType], constraints: Constraints, assumed: Assumptions
) -> tuple[MachineTypes, Sized]:
    shared = accelerator_machine_types(catalog, instances, precision=COMPUTE_PRECISION, assumed=assumed)
    kept = [one for one in instances if one.key in shared.index]
    machines = [shared.machines[shared.index[one.key]] for one in kept]
    types = _one_each(kept, machines, shared.unsized)
    if not kept:
        return types, _empty()
    devices = stack(machines, COMPUTE_PRECISION, assumed)
    hosts = _hosts(kept)
    estimate = (estimate_trees_on_gpus if job.method == "boosted-trees" else estimate_mlp_on_gpus)(
        job, devices, devices.per_node, hosts.memory_bytes
    )
    on_device = _OnDevice(bytes=devices.memory_bytes, margin_fraction=assumed.memory_margin_fraction)
    misses = _misses(kept, estimate, hosts, on_device, constraints, devices.per_node)
    labels = [f"{int(count)} GPU" + ("s" if count > 1 else "") for count in devices.per_node]
    shown = _Shown(kind="gpu", spread=gpu_spread(job), group=_group(job, "gpu", None))
    return types, _sized(job, estimate, misses, labels, devices.memory_bytes, shown)


def _on_cpus(
    job: TabularJob, instances: Sequence[InstanceType], constraints: Constraints, fit: TabularFit | None
) -> tuple[MachineTypes, Sized]:
    """Corrected by what rows of benches say of the engine, on whichever device they were."""
    unknown: Miss = UnpublishedMiss(binding="hardware", what="vcpus", lifted_by=(Publish(what="figure"),))
    kept = [one for one in instances if one.vcpus is not None]
    unsized = {one.key: unknown for one in instances if one.vcpus is None}
    types = MachineTypes(machines=(), index={one.key: row for row, one in enumerate(kept)}, unsized=unsized)
    if not kept:
        return types, _empty()
    hosts = _hosts(kept)
    single = np.array([one.provider == "aws" and one.name.startswith(ONE_THREAD_A_CORE_FAMILIES) for one in kept])
    threads = np.where(single | hosts.arm, 1.0, 2.0)
    columns = CpuColumns(vcpus=hosts.vcpus, memory_bytes=hosts.memory_bytes, arm=hosts.arm, threads_per_core=threads)
    change = correction(fit, method=job.method, engine=job.engine, passes=job.passes, device=None, job=job)
    estimate = physics(job, columns).corrected(change.factor, change.added_on(columns.vcpus))
    free = Constraints(accept_risk=constraints.accept_risk)
    misses = _misses(kept, estimate, hosts, None, free, np.zeros(len(kept)))
    labels = [f"{one.vcpus:g} vCPU" + ("s" if one.vcpus != 1 else "") for one in kept]
    shown = _Shown(kind="cpu", spread=change.spread, group=_group(job, "cpu", change))
    return types, _sized(job, estimate, misses, labels, hosts.memory_bytes, shown)


def _one_each(instances: Sequence[InstanceType], machines: Sequence[Machine], unsized: dict[Key, Miss]) -> MachineTypes:
    """A machine per instance type: hosts differ in processors and memory, which matter here."""
    return MachineTypes(
        machines=tuple(machines), index={one.key: row for row, one in enumerate(instances)}, unsized=unsized
    )


def _hosts(instances: Sequence[InstanceType]) -> _Hosts:
    def number(value: float | None) -> float:
        return np.nan if value is None else value

    return _Hosts(
        vcpus=np.array([number(one.vcpus) for one in instances]),
        memory_bytes=np.array([from_gib(number(one.memory_gib)) for one in instances]),
        arm=np.array([one.cpu_arch == "arm64" for one in instances], dtype=bool),
    )


def _misses(
    instances: Sequence[InstanceType],
    estimate: TabularEstimate,
    hosts: _Hosts,
    on_device: _OnDevice | None,
    constraints: Constraints,
    gpus: Array,
) -> dict[int, Miss]:
    """Rows whose host or device memory is too small, or unknown, or that hold more GPUs than allowed."""
    out: dict[int, Miss] = {}
    hold = constraints.held("memory")
    for row in range(len(instances)):
        need, has = float(estimate.host_memory_bytes[row]), float(hosts.memory_bytes[row])
        if constraints.max_gpus is not None and gpus[row] > constraints.max_gpus:
            needed = int(gpus[row])  # as the machine is sold
            out[row] = GpuLimitMiss(
                needed_gpus=needed,
                allowed_gpus=constraints.max_gpus,
                lifted_by=(MoveMaxGpus(max_gpus=needed),),
            )
        elif on_device is not None and (miss := _device_miss(estimate, on_device, row, hold)) is not None:
            out[row] = miss
        elif np.isnan(has):
            out[row] = UnpublishedMiss(
                binding="host memory",
                what="host memory",
                needed_gib=to_gib(need),
                lifted_by=(Publish(what="figure"),),
            )
        elif need > has:
            out[row] = _memory_miss("host memory", need, has)
        elif hold and not holds(need, TABULAR_MEMORY_SPREAD.high_factor, has):
            out[row] = _risky_miss("host memory", need, has)
        elif not np.isfinite(estimate.total_s[row]):
            out[row] = UnpublishedMiss(
                binding="network", what="link bandwidth", lifted_by=(Publish(what="link bandwidth"),)
            )
    return out


def _device_miss(estimate: TabularEstimate, on_device: _OnDevice, row: int, hold: bool) -> Miss | None:
    need, has = float(estimate.device_memory_bytes[row]), float(on_device.bytes[row])
    if not fits(need, has, on_device.margin_fraction):
        return _memory_miss("memory", need, room(has, on_device.margin_fraction))
    if hold and not holds(need, TABULAR_MEMORY_SPREAD.high_factor, has):
        return _risky_miss("memory", need, has)
    return None


def _risky_miss(binding: Holder, need: float, has: float) -> Miss:
    """It is expected to fit, and the upper end of its interval does not."""
    return MemoryMiss(
        binding=binding,
        of="host" if binding == "host memory" else "GPU",
        needed_gib=to_gib(need * TABULAR_MEMORY_SPREAD.high_factor),
        available_gib=to_gib(has),
        expected_gib=to_gib(need),
        lifted_by=(AcceptRisk(limit="memory"),),
    )


def _memory_miss(binding: Holder, need: float, has: float) -> Miss:
    return MemoryMiss(
        binding=binding,
        of="host" if binding == "host memory" else "GPU",
        needed_gib=to_gib(need),
        available_gib=to_gib(has),
        lifted_by=(SmallerTable(fall_fraction=1 - has / need),),
    )


def _empty() -> Sized:
    none = np.empty(0)
    return Sized(
        machine=none.astype(np.intp), nodes=none, work_s=none, low_factor=none, high_factor=none, nodes_low=none,
        nodes_high=none,
    )  # fmt: skip


def _sized(
    job: TabularJob,
    estimate: TabularEstimate,
    misses: dict[int, Miss],
    labels: Sequence[str],
    available_bytes: Array,
    shown: _Shown,
) -> Sized:
    safe = _rows(job, estimate, misses, labels, available_bytes, shown)
    hard = {row: miss for row, miss in misses.items() if not miss.risky}
    known = {row: miss for row, miss in misses.items() if miss.unknown != "host memory"}
    risky, unverified = (
        _rows(job, estimate, left, labels, available_bytes, shown) if len(left) < len(misses) else None
        for left in (hard, known)
    )
    return replace(safe, risky=risky, unverified=unverified)


def _rows(
    job: TabularJob,
    estimate: TabularEstimate,
    misses: dict[int, Miss],
    labels: Sequence[str],
    available_bytes: Array,
    shown: _Shown,
) -> Sized:
    """What is not missed."""
    rows = np.array([row for row in range(len(labels)) if row not in misses], dtype=np.intp)
    kind, spread = shown.kind, shown.spread
    ones = np.ones(len(rows))

    def detail(row: int) -> RunDetail:
        chosen = int(rows[row])
        seconds = float(estimate.total_s[chosen])
        time = spread.around(seconds, basis="assumed")
        memory = estimate.device if kind == "gpu" else estimate.host
        peak, parts = float(memory.total_bytes[chosen]), memory.components(chosen)
        rate = job.rows * (job.trees if job.method == "boosted-trees" else job.epochs) / seconds
        rows_per_s = Figure(value=rate, low=rate / spread.high_factor, high=rate / spread.low_factor, basis="assumed")
        return RunDetail(
            layout=labels[chosen],
            layout_fields=(("on", kind), ("units", labels[chosen])),
            time_s=time,
            time_parts=tuple(estimate.parts(chosen).items()),
            time_parts_of="job",
            memory_gib=TABULAR_MEMORY_SPREAD.around(to_gib(peak)),
            memory_parts_gib=tuple((name, to_gib(size)) for name, size in parts.items()),
            memory_available_gib=to_gib(float(available_bytes[chosen])),
            rates=(("row_passes_per_s", rows_per_s),),
            intervals=(
                Interval(of="time", group=shown.group, spread=spread),
                Interval(of="memory", group=f"{job.method} on {kind}", spread=TABULAR_MEMORY_SPREAD),
            ),
        )

    return Sized(
        machine=rows,
        nodes=ones,
        work_s=estimate.total_s[rows],
        low_factor=ones * spread.low_factor,
        high_factor=ones * spread.high_factor,
        nodes_low=ones,
        nodes_high=ones,
        breakdown=detail,
        misses=misses,
    )
