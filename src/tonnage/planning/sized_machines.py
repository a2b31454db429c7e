"""Sizing dispatched by kind of work: one table of sized runs over all instance types, whatever they are made of.

The sizing of a kind is imported when a workload is of that kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.catalog.market import InstanceType
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.engine_devices import by_weights, refused_by_engine
from tonnage.planning.layouts.machines import Key, MachineTypes, accelerator_machine_types
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.misses import Miss
from tonnage.planning.sized import Sized
from tonnage.sizing.assumptions import HostAssumptions
from tonnage.sizing.devices import Machine
from tonnage.sizing.host import HostItem, host_item
from tonnage.sizing.precision import SERVING_COMPUTE, TRAINING
from tonnage.values import dataclass
from tonnage.workload.jobs import BatchJob, Constraints, ServeJob, TabularJob, TrainJob, TrainPrecision, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedMachines:
    """Sized runs, which machine each instance type is (absent: see `unsized`), and the misses by instance type."""

    sized: Sized
    index: dict[Key, int]
    unsized: dict[Key, Miss]


def size_job(
    workload: Workload, catalog: Catalog, instances: Sequence[InstanceType], calibrated: CalibratedModel
) -> SizedMachines:
    """Size the workload on every instance type given."""
    job, constraints = workload.job, workload.constraints
    item = host_item(job, workload.host, HostAssumptions())
    if isinstance(job, TabularJob):
        from tonnage.planning.layouts.tabular_sizing import size_tabular

        return _merge(size_tabular(job, catalog, instances, constraints, calibrated))  # no layouts to choose
    if isinstance(job, TrainJob):
        return _merge(_size_training(job, catalog, instances, constraints, calibrated, item))
    return _merge(_size_serving(job, catalog, instances, constraints, calibrated, item))


def _size_training(
    job: TrainJob,
    catalog: Catalog,
    instances: Sequence[InstanceType],
    constraints: Constraints,
    calibrated: CalibratedModel,
    item: HostItem | None,
) -> list[tuple[MachineTypes, Sized]]:
    from tonnage.planning.layouts.train_sizing import size_training

    parts, assumed = list[tuple[MachineTypes, Sized]](), calibrated.assumed
    for precision, subset in _by_precision(job, catalog, instances):
        types = accelerator_machine_types(
            catalog, subset, precision=TRAINING[precision].compute, assumed=assumed, item=item
        )
        concrete = replace(job, precision=precision)
        parts.append((types, size_training(concrete, types.machines, constraints, calibrated)))
    return parts


def _size_serving(
    job: ServeJob | BatchJob,
    catalog: Catalog,
    instances: Sequence[InstanceType],
    constraints: Constraints,
    calibrated: CalibratedModel,
    item: HostItem | None,
) -> list[tuple[MachineTypes, Sized]]:
    parts, assumed = list[tuple[MachineTypes, Sized]](), calibrated.assumed
    refused = refused_by_engine(job, catalog, instances)
    parts = []
    for weights, subset in by_weights(job, catalog, [one for one in instances if one.key not in refused]):
        types = accelerator_machine_types(
            catalog, subset, precision=SERVING_COMPUTE[weights], assumed=assumed, stated=job.weights, item=item
        )
        parts.append((replace(types, unsized=types.unsized | refused), _served(job, types, constraints, calibrated)))
    return parts


def _served(
    job: ServeJob | BatchJob, types: MachineTypes, constraints: Constraints, calibrated: CalibratedModel
) -> Sized:
    def sized(machines: Sequence[Machine], limits: Constraints) -> Sized:
        if isinstance(job, ServeJob):
            from tonnage.planning.layouts.serve_sizing import size_service

            return size_service(job, machines, limits, calibrated)
        from tonnage.planning.layouts.batch_sizing import size_batch

        return size_batch(job, machines, limits, calibrated)

    safe = sized(types.machines, constraints)
    if not safe.held_back:
        return safe
    back = sorted(safe.held_back)
    accepted = replace(constraints, accept_risk=(*constraints.accept_risk, "memory"))
    bold = sized([types.machines[index] for index in back], accepted)
    return replace(safe, risky=replace(bold, machine=np.array(back, dtype=np.intp)[bold.machine], misses={}))


def auto_precision(device: Accelerator | None) -> TrainPrecision:
    """What `auto` trains in: bf16 where the device has a rate for it, else fp16."""
    only_fp16 = device is not None and device.dense_bf16_tflops is None and device.dense_fp16_tflops is not None
    return "fp16" if only_fp16 else "bf16"


def _by_precision(
    job: TrainJob, catalog: Catalog, instances: Sequence[InstanceType]
) -> list[tuple[TrainPrecision, list[InstanceType]]]:
    """Instance types by the precision they train in; see `auto_precision`."""
    if job.precision != "auto":
        return [(job.precision, list(instances))]
    bf16: list[InstanceType] = []
    fp16: list[InstanceType] = []
    for instance in instances:
        device = catalog.accelerator(instance.accelerator) if instance.accelerator else None
        (fp16 if auto_precision(device) == "fp16" else bf16).append(instance)
    return [("bf16", bf16), ("fp16", fp16)]


def _merge(parts: Sequence[tuple[MachineTypes, Sized]]) -> SizedMachines:
    """One table out of several, machine indexes shifted."""
    index: dict[Key, int] = {}
    unsized: dict[Key, Miss] = {}
    offsets = [0]
    for types, _ in parts:
        index |= {key: position + offsets[-1] for key, position in types.index.items()}
        unsized |= types.unsized
        offsets.append(offsets[-1] + len(types.index))  # at least as many as it has machines
    tables = [sized for _, sized in parts]

    def beside(name: str) -> Sized | None:
        found = [(getattr(one, name), offset) for one, offset in zip(tables, offsets, strict=False)]
        held = [(one, offset) for one, offset in found if one is not None]
        return _stacked([one for one, _ in held], [offset for _, offset in held]) if held else None

    both = replace(_stacked(tables, offsets), risky=beside("risky"), unverified=beside("unverified"))
    return SizedMachines(sized=both, index=index, unsized=unsized)


def _stacked(tables: Sequence[Sized], offsets: Sequence[int]) -> Sized:
    """Tables one below the other, the machines of each from its offset on."""
    first_rows = np.cumsum([0, *(len(sized.machine) for sized in tables)])
    misses = {
        position + offset: miss
        for sized, offset in zip(tables, offsets, strict=False)
        for position, miss in sized.misses.items()
    }

    def detail(row: int) -> RunDetail:
        part = int(np.searchsorted(first_rows, row, side="right")) - 1
        return tables[part].detail(row - int(first_rows[part]))

    def column(name: str, absent: float = np.nan) -> np.ndarray:
        found = [getattr(sized, name) for sized in tables]
        return np.concatenate(
            [np.full(len(one.machine), absent) if of is None else of for one, of in zip(tables, found, strict=True)]
        )

    machine = [sized.machine + offset for sized, offset in zip(tables, offsets, strict=False)]
    return Sized(
        machine=np.concatenate(machine).astype(np.intp),
        nodes=column("nodes"),
        work_s=column("work_s"),
        low_factor=column("low_factor"),
        high_factor=column("high_factor"),
        nodes_low=column("nodes_low"),
        nodes_high=column("nodes_high"),
        breakdown=detail,
        in_flight_s=column("in_flight_s"),
        state_parts=column("state_parts", 1.0),
        host_in_doubt=column("host_in_doubt", 0.0).astype(bool),
        misses=misses,
    )
