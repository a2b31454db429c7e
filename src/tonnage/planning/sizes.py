"""The answer of `tonnage size`: what the job needs, and how it would run on each kind of machine, without prices."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tonnage.catalog import Catalog
from tonnage.catalog.grammar import GpuFilter
from tonnage.catalog.market import InstanceType
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.need import needs_of
from tonnage.planning.plan import Need, RunDetail
from tonnage.planning.reasons.misses import Miss
from tonnage.planning.sized_machines import SizedMachines, size_job
from tonnage.planning.summary import summarise
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """One kind of machine that holds the job, on the fewest nodes that do, in its best layout. `gpu` None: no GPU."""

    gpu: str | None
    gpu_count: float  # in one machine
    nodes: int
    instance_types: tuple[str, ...]  # "provider/name" that are this machine
    run: RunDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeMiss:
    """A kind of machine that does not hold the job."""

    gpu: str | None
    gpu_count: float
    instance_types: tuple[str, ...]
    miss: Miss


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeReport:
    """Needs, machines that hold the job (fewest GPUs first, each with the fewest nodes), machines that do not."""

    name: str
    kind: str
    summary: tuple[tuple[str, str], ...]
    as_of: datetime
    need: Need
    rows: tuple[SizeRow, ...]
    misses: tuple[SizeMiss, ...]


def make_size_report(
    workload: Workload,
    catalog: Catalog,
    *,
    gpus: tuple[GpuFilter, ...] = (),
    calibrated: CalibratedModel | None = None,
) -> SizeReport:
    """Size `workload` on every kind of machine in the catalog, or on those that one of `gpus` asks for.

    Without `gpus` the workload's own GPU constraint holds; a count (`H100:8`) is per machine. `calibrated`: what
    predictions rest on; the packaged calibration by default. Raises UnknownAccelerator when a filter names no device.
    """
    filters = gpus or workload.constraints.gpus
    for one in filters:
        catalog.accelerators_matching(one)
    instances = [one for one in catalog.instance_types if not filters or _asked(one, catalog, filters)]
    sized_machines = size_job(workload, catalog, instances, calibrated or CalibratedModel.packaged())
    by_key = {instance.key: instance for instance in instances}
    rows, misses = _rows_and_misses(sized_machines, by_key)
    return SizeReport(
        name=workload.name,
        kind=workload.kind,
        summary=summarise(workload),
        as_of=workload.as_of,
        need=needs_of(workload.job),
        rows=tuple(
            sorted(_merged(rows), key=lambda one: (one.gpu_count * one.nodes, one.gpu or "", one.instance_types))
        ),
        misses=tuple(sorted(misses, key=lambda one: (one.gpu or "", one.gpu_count, one.instance_types))),
    )


def _rows_and_misses(
    sized_machines: SizedMachines, by_key: Mapping[tuple[str, str], InstanceType]
) -> tuple[list[SizeRow], list[SizeMiss]]:
    """What holds the job on the fewest nodes of each kind of machine, and why each other kind does not."""
    names: dict[int, list[str]] = {}
    kinds: dict[int, tuple[str | None, float]] = {}
    for key, machine in sized_machines.index.items():
        names.setdefault(machine, []).append("/".join(key))
        kinds[machine] = (by_key[key].accelerator, by_key[key].accelerator_count)
    rows = [
        SizeRow(
            gpu=kinds[machine][0], gpu_count=kinds[machine][1], nodes=int(sized_machines.sized.nodes[row]),
            instance_types=tuple(sorted(names[machine])), run=sized_machines.sized.detail(row),
        )
        for row, machine in _fewest_nodes(sized_machines)
    ]  # fmt: skip
    misses = [
        SizeMiss(
            gpu=kinds[machine][0], gpu_count=kinds[machine][1], instance_types=tuple(sorted(names[machine])), miss=miss
        )
        for machine, miss in sized_machines.sized.misses.items()
    ]
    unsized = [
        SizeMiss(
            gpu=by_key[key].accelerator, gpu_count=by_key[key].accelerator_count, instance_types=("/".join(key),),
            miss=miss,
        )
        for key, miss in sized_machines.unsized.items()
    ]  # fmt: skip
    return rows, misses + unsized


def _fewest_nodes(sized_machines: SizedMachines) -> list[tuple[int, int]]:
    """(row, machine) of the smallest node count that holds the job on each machine."""
    best: dict[int, int] = {}
    for row, machine in enumerate(sized_machines.sized.machine.tolist()):
        if machine not in best or sized_machines.sized.nodes[row] < sized_machines.sized.nodes[best[machine]]:
            best[machine] = row
    return [(row, machine) for machine, row in best.items()]


def _merged(rows: list[SizeRow]) -> list[SizeRow]:
    """Machines whose runs are the same (they differ in a network that is not used) as one row."""
    kinds: dict[tuple[str | None, float, int, RunDetail], list[str]] = {}
    for one in rows:
        kinds.setdefault((one.gpu, one.gpu_count, one.nodes, one.run), []).extend(one.instance_types)
    return [
        SizeRow(gpu=gpu, gpu_count=count, nodes=nodes, run=run, instance_types=tuple(sorted(names)))
        for (gpu, count, nodes, run), names in kinds.items()
    ]


def _asked(instance: InstanceType, catalog: Catalog, filters: tuple[GpuFilter, ...]) -> bool:
    if instance.accelerator is None:
        return False
    device = catalog.accelerator(instance.accelerator)
    return any(one.matches(device, instance.accelerator_count) for one in filters)
