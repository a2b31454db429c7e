"""Instance types -> the distinct machines that sizing has to look at, and why some cannot be sized."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Accelerator, Link
from tonnage.catalog.market import InstanceType
from tonnage.errors import UnsizedHardware
from tonnage.planning.changes import in_fp16
from tonnage.planning.sized import Miss
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine, peak_tflops, usable_bytes
from tonnage.units import gbit_to_gb_per_s

Key = tuple[str, str]  # provider, instance type


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePark:
    """Distinct machines, which of them each instance type is, and the instance types that cannot be sized."""

    machines: tuple[Machine, ...]
    index: dict[Key, int]
    unsized: dict[Key, Miss]


def accelerator_park(
    catalog: Catalog, instances: Iterable[InstanceType], *, precision: str, assumed: Assumptions
) -> MachinePark:
    """Machines with accelerators that publish what sizing at `precision` needs. Instance types that differ only in
    processors, memory or name share a machine."""
    machines: list[Machine] = []
    seen: dict[tuple[object, ...], int] = {}
    index: dict[Key, int] = {}
    unsized: dict[Key, Miss] = {}
    for instance in instances:
        miss = _unsized(catalog, instance, precision)
        if miss is not None:
            unsized[instance.key] = miss
            continue
        key = (
            instance.accelerator,
            instance.accelerator_count,
            instance.scale_up,
            instance.scale_out,
            instance.network_gbit_per_s,
        )
        if key not in seen:
            seen[key] = len(machines)
            machines.append(_machine(catalog, instance, assumed))
        index[instance.key] = seen[key]
    return MachinePark(machines=tuple(machines), index=index, unsized=unsized)


def _unsized(catalog: Catalog, instance: InstanceType, precision: str) -> Miss | None:
    """Why this instance type cannot be sized for work on accelerators, or None."""
    if instance.accelerator is None:
        return Miss(
            binding="hardware",
            needs="an accelerator",
            has="none",
            flips_when="nothing: it takes a GPU",
        )
    if instance.accelerator_count < 1 or instance.accelerator_count != int(instance.accelerator_count):
        return Miss(
            binding="shared gpu",
            needs="a whole device",
            has=f"{instance.accelerator_count:g} of one",
            flips_when="the rate of a slice is published",
        )
    accelerator = catalog.accelerator(instance.accelerator)
    try:
        _check_figures(accelerator, precision)
    except UnsizedHardware as error:
        if precision == "bf16" and _sizes_in(accelerator, "fp16"):
            text = "fp16 in place of bf16"
            return Miss(binding="rate", needs=error.message, has="unknown", flips_when=text, change=in_fp16)
        return Miss(binding="rate", needs=error.message, has="unknown", flips_when="the catalog gains the figure")
    return None


def _check_figures(accelerator: Accelerator, precision: str) -> None:
    """Raises UnsizedHardware naming the first figure that sizing needs and nobody publishes."""
    peak_tflops(accelerator, precision)
    usable_bytes(accelerator)
    if accelerator.memory_bandwidth_gb_per_s is None:
        raise UnsizedHardware(f"{accelerator.name}: memory bandwidth is not published")


def _sizes_in(accelerator: Accelerator, precision: str) -> bool:
    try:
        _check_figures(accelerator, precision)
    except UnsizedHardware:
        return False
    return True


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
