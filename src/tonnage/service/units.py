"""What a fleet is built of: one machine type bought one way, the load its replicas carry, its prices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import Final

from tonnage.catalog import Catalog
from tonnage.catalog.services import ServicePrices
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.fleets import machines_for
from tonnage.planning.plan import MachineOption, Option, may_win
from tonnage.planning.planner import make_plan
from tonnage.pricing.extras import Extras
from tonnage.sizing.estimates import Figure
from tonnage.units import HOURS_PER_MONTH
from tonnage.values import dataclass
from tonnage.workload.expert_layouts import wants_pools
from tonnage.workload.jobs import NO_LIMIT, ServeJob, Workload

ENDS: Final = ("value", "low", "high")
FULL_RATE_PER_S = 1e7  # so many machines that the rounding to whole ones does not show
Key = tuple[str, str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetUnit:
    """One kind of machine of a fleet. `pools`: the capacity of one replica, of each of two pools where prompts and
    answers have their own.

    `reserved_usd_per_hour`: the same machine committed for a year; None: not asked for, or no price is known.
    """

    option: MachineOption
    pools: tuple[Figure, ...]
    replicas: int  # on one machine
    most_machines: float
    used: float  # of the capacity, that fleets are planned to: the target utilisation
    usd_per_hour: float  # machine and platform fee, after discounts
    hours_per_month: float
    bill: MonthBill
    reserved_usd_per_hour: float | None = None
    load: float = 1.0  # the part of its planned load that it carries

    @property
    def key(self) -> Key:
        return (self.option.provider, self.option.instance_type, self.option.platform, len(self.pools))

    @property
    def name(self) -> str:
        return f"{self.option.provider} {self.option.instance_type} {self.option.purchase.replace('_', '-')}"

    @property
    def committed(self) -> bool:
        """Paid all month whether held or not."""
        return self.option.purchase.startswith("reserved")

    @property
    def capacity_per_s(self) -> Figure:
        """Capacity of one machine, whose replicas are of both pools as their capacities ask."""
        value, low, high = (self.replicas / sum(1.0 / getattr(one, end) for one in self.pools) for end in ENDS)
        return Figure(value=value, low=low, high=high, basis=self.pools[0].basis)

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
        return replace(self, pools=tuple(one.scaled(factor) for one in self.pools), load=self.load * factor)

    @property
    def least_usd_per_month(self) -> float:
        """The smallest fleet: one replica of each pool."""
        return self.usd_per_machine_month * float(machines_for(len(self.pools), self.replicas))


def fleet_units(
    workload: Workload,
    catalog: Catalog,
    *,
    reserved_discount: float | None = None,
    calibrated: CalibratedModel | None = None,
) -> tuple[FleetUnit, ...]:
    """The machines worth considering at some volume, the smallest fleet first: each as the plan of a rate has it that
    is so high that every machine is filled, with one pool and, where they are tried, with two.

    `reserved_discount`: part off the on-demand price that a year's commitment gives, where the catalog has no price.
    """
    job = workload.service
    full = replace(job, rate_per_s=FULL_RATE_PER_S, replicas=None, prefill_replicas=None, decode_replicas=None)
    tried = [replace(full, prefill_replicas=0, decode_replicas=0), *([full] if wants_pools(full) else [])]
    limits = replace(workload.constraints, budget_usd=None, max_gpus=None, max_nodes=NO_LIMIT, quotas=())
    found: list[MachineOption] = []
    for one in tried:
        plan = make_plan(replace(workload, job=one, constraints=limits), catalog, calibrated=calibrated)
        every = (option for option in plan.options if isinstance(option, MachineOption))
        found += may_win(every, any_price=plan.any_price)
    used = (calibrated or CalibratedModel.packaged()).assumed.target_utilisation
    return worthwhile(
        [unit_of(option, workload, catalog.services, found, reserved_discount, used=used) for option in found]
    )


def worthwhile(units: list[FleetUnit]) -> tuple[FleetUnit, ...]:
    """Machines that carry a request cheaper than every smaller fleet does: the others win at hardly any volume."""
    kept: list[FleetUnit] = []
    for unit in sorted(units, key=lambda one: (one.least_usd_per_month, -one.capacity_per_s.value, one.name)):
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
    fleet = option.run.fleet
    assert fleet is not None
    return FleetUnit(
        option=option,
        pools=fleet.pools,
        replicas=fleet.per_machine,
        most_machines=1.0 if fleet.one_machine else inf,
        used=used,
        usd_per_hour=option.usd_per_instance_hour,
        hours_per_month=workload.service.hours_per_month,
        bill=month_bill(workload, services, provider=option.provider, region=option.region, platform=option.platform),
        reserved_usd_per_hour=_reserved(option, choices, reserved_discount),
    )


def _reserved(option: MachineOption, choices: Iterable[Option], discount: float | None) -> float | None:
    """A year's commitment of an on-demand machine: as the plan may choose it, or at its stated discount."""
    if option.purchase != "on_demand" or option.platform != "vm":
        return None
    place = (option.provider, option.instance_type, option.region, "reserved_1y")
    listed = [usd for one in choices if one.identity[:4] == place and (usd := one.usd_per_instance_hour) is not None]
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
    return fleet_units(
        changed, replace(catalog, offers=offers), reserved_discount=reserved_discount, calibrated=calibrated
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthBill:
    """What a fleet at one place costs besides machines, USD a month; `usd` adds the machines as the ledger does."""

    disk_usd_per_machine_hour: float
    beside_usd: float  # on the provider's bill: storage, load balancer, data moved
    credit_usd: float  # spend committed with the provider
    outside_usd: float  # people; data that leaves another provider

    def usd(self, machines_usd: float) -> float:
        """max(machines + beside - credit, 0) + outside; `machines_usd` with their fees and disks."""
        return max(machines_usd + self.beside_usd - self.credit_usd, 0.0) + self.outside_usd


def month_bill(workload: Workload, services: ServicePrices, *, provider: str, region: str, platform: str) -> MonthBill:
    """The bill of a service at one place, after the workload's prices, people and commitments."""
    extras, data = Extras(workload=workload, services=services), workload.data
    credit = dict(workload.buy.committed_usd)
    moved = extras.egress_usd(provider, region)
    own = data is None or data.provider == provider
    abroad = 0.0 if data is None or own else max(moved - credit.get(data.provider, 0.0), 0.0)
    return MonthBill(
        disk_usd_per_machine_hour=extras.disk_usd_per_machine_hour(provider, region),
        beside_usd=extras.place_usd_per_hour(provider, region) * workload.service.hours_per_month
        + (moved if own else 0.0),
        credit_usd=credit.get(provider, 0.0),
        outside_usd=extras.people_usd(platform) + abroad,
    )
