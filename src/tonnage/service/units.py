"""What a fleet is built of: one machine type bought one way, the load its replicas carry, its prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from tonnage.catalog import Catalog
from tonnage.catalog.services import ServicePrices
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.plan import MachineOption, Option, Plan, may_win
from tonnage.planning.planner import make_plan
from tonnage.pricing.month import MonthBill, month_bill
from tonnage.sizing.estimates import Figure
from tonnage.units import HOURS_PER_MONTH
from tonnage.values import dataclass
from tonnage.workload.jobs import NO_LIMIT, ServeJob, Workload

FULL_RATE_PER_S = 1e7  # so many machines that the rounding to whole ones does not show
Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetUnit:
    """One kind of machine of a fleet. `replica_per_s`: the capacity of one replica.

    `reserved_usd_per_hour`: the same machine committed for a year; None: not asked for, or no price is known.
    """

    option: MachineOption
    replica_per_s: Figure
    replicas: int  # on one machine
    used: float  # of the capacity, that fleets are planned to: the target utilisation
    usd_per_hour: float  # machine and platform fee, after discounts
    hours_per_month: float
    bill: MonthBill
    reserved_usd_per_hour: float | None = None

    @property
    def key(self) -> Key:
        return (self.option.provider, self.option.instance_type, self.option.platform)

    @property
    def name(self) -> str:
        return f"{self.option.provider} {self.option.instance_type} {self.option.purchase.replace('_', '-')}"

    @property
    def committed(self) -> bool:
        """Paid all month whether held or not."""
        return self.option.purchase.startswith("reserved")

    @property
    def capacity_per_s(self) -> Figure:
        """Capacity of one machine."""
        return self.replica_per_s.scaled(float(self.replicas))

    @property
    def usd_per_machine_month(self) -> float:
        """One machine held all month, with its disk."""
        paid = HOURS_PER_MONTH if self.committed else self.hours_per_month
        return self.usd_per_hour * paid + self.bill.disk_usd_per_machine_hour * self.hours_per_month

    @property
    def gpus(self) -> float:
        return self.option.gpu_count

    def slowed(self, factor: float) -> FleetUnit:
        """The same machine, carrying `factor` of the load."""
        return replace(self, replica_per_s=self.replica_per_s.scaled(factor))


def capacity_plan(workload: Workload, catalog: Catalog, calibrated: CalibratedModel | None = None) -> Plan:
    """The plan of a rate so high that every machine is filled: the capacity of each machine type."""
    assert isinstance(workload.job, ServeJob)
    job = replace(workload.job, rate_per_s=FULL_RATE_PER_S, replicas=None, **_plain(workload.job))
    limits = replace(workload.constraints, budget_usd=None, max_gpus=None, max_nodes=NO_LIMIT, quotas=())
    return make_plan(replace(workload, job=job, constraints=limits), catalog, calibrated=calibrated)


def _plain(job: ServeJob) -> dict[str, Any]:
    """Pools of prompts and answers are not tried at other volumes unless asked for: what they add is little, their
    search not. Experts dealt out are: without them a promise may not be kept that the plan keeps."""
    tried = {"prefill_replicas": 0, "decode_replicas": 0}
    return {name: least for name, least in tried.items() if getattr(job, name) is None}


def fleet_units(
    plan: Plan,
    workload: Workload,
    services: ServicePrices,
    *,
    reserved_discount: float | None = None,
    calibrated: CalibratedModel | None = None,
) -> tuple[FleetUnit, ...]:
    """The machines worth considering at some volume, cheapest machine first.

    `reserved_discount`: part off the on-demand price that a year's commitment gives, where the catalog has no price.
    """
    every = (option for option in plan.options if is_machine(option))
    machines = may_win(every, any_price=plan.any_price)
    used = (calibrated or CalibratedModel.packaged()).assumed.target_utilisation
    return worthwhile(
        [unit_of(option, workload, services, machines, reserved_discount, used=used) for option in machines]
    )


def is_machine(option: Option) -> TypeGuard[MachineOption]:
    """Whether an option is machines that hold replicas, not a service bought by the token."""
    if not isinstance(option, MachineOption):
        return False
    return "requests_per_s" in dict(option.run.rates) and "replicas_per_node" in dict(option.run.layout_fields)


def worthwhile(units: list[FleetUnit]) -> tuple[FleetUnit, ...]:
    """Machines that carry a request cheaper than every cheaper machine does: the others win at hardly any volume."""
    kept: list[FleetUnit] = []
    for unit in sorted(units, key=lambda one: (one.usd_per_machine_month, -one.capacity_per_s.value, one.name)):
        if all(_per_request(unit) < _per_request(other) for other in kept):
            kept.append(unit)
    return tuple(kept)


def _per_request(unit: FleetUnit) -> float:
    reserved = unit.reserved_usd_per_hour
    lowest = min(unit.usd_per_machine_month, (reserved or float("inf")) * HOURS_PER_MONTH)
    return lowest / unit.capacity_per_s.value


def unit_of(
    option: MachineOption,
    workload: Workload,
    services: ServicePrices,
    choices: Iterable[Option],
    reserved_discount: float | None,
    *,
    used: float,
) -> FleetUnit:
    """An option of a plan as what fleets are built of; `choices`: what the plan may choose beside it."""
    assert isinstance(workload.job, ServeJob)
    layout: Mapping[str, int | str] = dict(option.run.layout_fields)
    rate = dict(option.run.rates)["requests_per_s"]
    return FleetUnit(
        option=option,
        replica_per_s=rate.scaled(1.0 / float(layout["replicas"])),
        replicas=int(layout["replicas_per_node"]),
        used=used,
        usd_per_hour=option.usd_per_instance_hour,
        hours_per_month=workload.job.hours_per_month,
        bill=month_bill(workload, services, provider=option.provider, region=option.region, platform=option.platform),
        reserved_usd_per_hour=_reserved(option, choices, reserved_discount),
    )


def _reserved(option: MachineOption, choices: Iterable[Option], discount: float | None) -> float | None:
    """A year's commitment of an on-demand machine: as the plan may choose it, or at its stated discount."""
    if option.purchase != "on_demand" or option.platform != "vm":
        return None
    place = (option.provider, option.instance_type, option.region, "reserved_1y")
    listed = [one.usd_per_instance_hour for one in choices if one.identity[:4] == place and is_machine(one)]
    if listed:
        return min(listed)
    return None if discount is None else option.usd_per_instance_hour * (1.0 - discount)


def units_for(
    workload: Workload,
    job: ServeJob,
    units: tuple[FleetUnit, ...],
    catalog: Catalog,
    *,
    reserved_discount: float | None = None,
    calibrated: CalibratedModel | None = None,
) -> tuple[FleetUnit, ...]:
    """The same machines sized for another job; those that cannot do it drop out."""
    keys = {unit.key[:2] for unit in units}
    offers = tuple(offer for offer in catalog.offers if (offer.provider, offer.instance_type) in keys)
    changed = replace(workload, job=job)
    plan = capacity_plan(changed, replace(catalog, offers=offers), calibrated)
    return fleet_units(plan, changed, catalog.services, reserved_discount=reserved_discount, calibrated=calibrated)
