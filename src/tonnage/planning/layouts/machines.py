"""Instance types -> the distinct machines that sizing has to look at, and why some cannot be sized."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Link
from tonnage.catalog.market import InstanceType
from tonnage.planning.reasons.changes import Publish, TakeGpu, UseFp16
from tonnage.planning.reasons.misses import Miss, NoGpuMiss, SharedGpuMiss, UnpublishedMiss
from tonnage.sizing.assumptions import Assumptions, HostAssumptions
from tonnage.sizing.devices import Machine, missing_figure
from tonnage.sizing.host import HostItem, host_rate
from tonnage.units import gbit_to_gb_per_s
from tonnage.values import dataclass

Key = tuple[str, str]  # provider, instance type


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTypes:
    """Distinct machines, which of them each instance type is, and the instance types that cannot be sized."""

    machines: tuple[Machine, ...]
    index: dict[Key, int]
    unsized: dict[Key, Miss]


def accelerator_machine_types(
    catalog: Catalog, instances: Iterable[InstanceType], *, precision: str, assumed: Assumptions, stated: str = "",
    item: HostItem | None = None,
) -> MachineTypes:  # fmt: skip
    """Machines with accelerators that publish what sizing at `precision` needs. Instance types that differ only in
    memory, name or processors share a machine. `stated`: the format of the weights, where it is not `precision`;
    `item`: what the host does for each item, where that may hold devices up: then processors tell machines apart."""
    host = HostAssumptions()
    machines: list[Machine] = []
    seen: dict[tuple[object, ...], int] = {}
    index: dict[Key, int] = {}
    unsized: dict[Key, Miss] = {}
    for instance in instances:
        miss = _unsized(catalog, instance, precision, stated or precision)
        if miss is not None:
            unsized[instance.key] = miss
            continue
        key = (
            instance.accelerator,
            instance.accelerator_count,
            instance.scale_up,
            instance.scale_out,
            instance.network_gbit_per_s,
            None if item is None else instance.vcpus,
        )
        if key not in seen:
            seen[key] = len(machines)
            rate = None if item is None else host_rate(item, instance.vcpus, instance.network_gbit_per_s, host)
            machines.append(replace(_machine(catalog, instance, assumed), host=rate))
        index[instance.key] = seen[key]
    return MachineTypes(machines=tuple(machines), index=index, unsized=unsized)


def _unsized(catalog: Catalog, instance: InstanceType, precision: str, stated: str) -> Miss | None:
    """Why this instance type cannot be sized for work on accelerators, or None."""
    if instance.accelerator is None:
        return NoGpuMiss(lifted_by=(TakeGpu(),))
    if instance.accelerator_count < 1 or instance.accelerator_count != int(instance.accelerator_count):
        return SharedGpuMiss(gpu_count=instance.accelerator_count, lifted_by=(Publish(what="rate of a slice"),))
    accelerator = catalog.accelerator(instance.accelerator)
    missing = missing_figure(accelerator, precision)
    if missing is None:
        return None
    lacks = Publish(what="compiler" if missing == "vendor" else "figure")
    in_fp16 = missing == "rate" and precision in ("bf16", "fp8") and missing_figure(accelerator, "fp16") is None
    return UnpublishedMiss(
        binding="rate",
        what=missing,
        device=accelerator.name,
        vendor=accelerator.vendor if missing == "vendor" else "",
        precision=precision if missing == "rate" else "",
        lifted_by=(UseFp16(stated=stated) if in_fp16 else lacks,),
    )


def _machine(catalog: Catalog, instance: InstanceType, assumed: Assumptions) -> Machine:
    assert instance.accelerator is not None
    out = catalog.link(instance.scale_out)
    return Machine(
        accelerator=catalog.accelerator(instance.accelerator),
        count=int(instance.accelerator_count),
        intra=catalog.link(instance.scale_up),
        network_gb_per_s=_network_gb_per_s(instance, out),
        network_measured=out is not None and out.bus_bandwidth_gb_per_s is not None,
        network_latency_us=assumed.network_latency_us if out is None or out.latency_us is None else out.latency_us,
    )


def _network_gb_per_s(instance: InstanceType, out: Link | None) -> float | None:
    """Between nodes: what collectives were measured to reach where the link's row has it, else the printed rate.

    A link's own rate goes before the instance's, which counts network cards that devices do not use.
    """
    if out is not None and out.bus_bandwidth_gb_per_s is not None:
        return out.bus_bandwidth_gb_per_s
    if out is not None and out.peak_gb_per_s is not None:
        return out.peak_gb_per_s
    if instance.network_gbit_per_s is None:
        return None
    return gbit_to_gb_per_s(instance.network_gbit_per_s)
