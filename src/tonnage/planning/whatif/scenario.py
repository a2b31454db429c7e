"""A workload and a catalog as one value, and edits of it: what a «what if» question changes before planning again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from decimal import Decimal

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.catalog.market import InstanceType
from tonnage.planning.whatif.changes import WorkloadEdit
from tonnage.values import dataclass
from tonnage.workload.discounts import percent_off
from tonnage.workload.jobs import Workload

GroupKey = tuple[str, str, str | None, str]  # provider, instance type, purchase (None: every purchase), platform
MEMORY_FIELDS = ("memory_gib", "usable_memory_gib")
SPEED_FIELDS = ("memory_bandwidth_gb_per_s", "scale_up_gb_per_s", "measured_bf16_matmul_tflops", "tdp_w")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a plan is made of."""

    workload: Workload
    catalog: Catalog


Edit = Callable[[Scenario], Scenario]


def with_workload(change: WorkloadEdit) -> Edit:
    """The workload changed, the catalog as it is."""
    return lambda scenario: replace(scenario, workload=change(scenario.workload))


def price_times(group: GroupKey, factor: float) -> Edit:
    """Every offer of the group at `factor` times its price."""
    times = Decimal(repr(factor))

    def edit(scenario: Scenario) -> Scenario:
        offers = tuple(
            replace(one, usd_per_instance_hour=one.usd_per_instance_hour * times, supposed=True)
            if _is_of(group, one.provider, one.instance_type, one.purchase)
            else one
            for one in scenario.catalog.offers
        )
        return replace(scenario, catalog=replace(scenario.catalog, offers=offers))

    return edit


def billed_times(biller: str, sku: str, factor: float) -> Edit:
    """What `biller` charges for `sku` at `factor` times what the workload pays for it now, by a discount."""

    def change(workload: Workload) -> Workload:
        key = f"{biller}/{sku}"
        off = 100.0 - (100.0 - percent_off(workload.buy.discount_percent, [biller], sku)) * factor
        kept = tuple((name, percent) for name, percent in workload.buy.discount_percent if name != key)
        return replace(workload, buy=replace(workload.buy, discount_percent=(*kept, (key, off))))

    return with_workload(change)


def memory_times(group: GroupKey, factor: float) -> Edit:
    """The group's machine with `factor` times the memory on each of its devices (in the host, where it has none)."""
    return _machine_edit(group, lambda device: _scaled(device, MEMORY_FIELDS, factor), _host_memory(factor))


def speed_times(group: GroupKey, factor: float) -> Edit:
    """The group's machine with devices `factor` times as fast: rates, memory, links and power alike."""
    rates = tuple(one.name for one in fields(Accelerator) if one.name.startswith("dense_"))
    return _machine_edit(group, lambda device: _scaled(device, (*rates, *SPEED_FIELDS), factor), lambda one: one)


def narrowed(scenario: Scenario, group: GroupKey) -> Scenario:
    """The scenario with no machine on offer but the group's; token APIs stay, they are not offers."""
    catalog = scenario.catalog
    offers = tuple(one for one in catalog.offers if _is_of(group, one.provider, one.instance_type, one.purchase))
    machines = tuple(one for one in catalog.instance_types if one.key == group[:2])
    return replace(scenario, catalog=replace(catalog, offers=offers, instance_types=machines))


def _machine_edit(
    group: GroupKey,
    device_edit: Callable[[Accelerator], Accelerator],
    host_edit: Callable[[InstanceType], InstanceType],
) -> Edit:
    """The group's machine alone gets a changed device of its own: other machines with that device keep theirs."""

    def edit(scenario: Scenario) -> Scenario:
        catalog = scenario.catalog
        machine = next(one for one in catalog.instance_types if one.key == group[:2])
        added: tuple[Accelerator, ...] = ()
        if machine.accelerator is None:
            changed = host_edit(machine)
        else:
            before = catalog.accelerator(machine.accelerator)
            shared = any(one.accelerator == before.name and one.key != machine.key for one in catalog.instance_types)
            device = replace(device_edit(before), name=f"{before.name} (changed)" if shared else before.name)
            changed, added = replace(machine, accelerator=device.name), (device,)
        machines = tuple(changed if one.key == group[:2] else one for one in catalog.instance_types)
        kept = tuple(one for one in catalog.accelerators if one.name not in {device.name for device in added})
        return replace(scenario, catalog=replace(catalog, instance_types=machines, accelerators=(*kept, *added)))

    return edit


def _host_memory(factor: float) -> Callable[[InstanceType], InstanceType]:
    return lambda one: one if one.memory_gib is None else replace(one, memory_gib=one.memory_gib * factor)


def _scaled(device: Accelerator, names: tuple[str, ...], factor: float) -> Accelerator:
    known = {name: getattr(device, name) for name in names}
    return replace(device, **{name: value * factor for name, value in known.items() if value is not None})


def _is_of(group: GroupKey, provider: str, instance_type: str, purchase: str) -> bool:
    return (provider, instance_type) == group[:2] and group[2] in (None, purchase)
