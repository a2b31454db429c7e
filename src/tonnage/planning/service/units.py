"""What a fleet is built of: one machine type bought one way, the load it carries inside the promise, its prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.planning.grounds import Grounds
from tonnage.planning.plan import Option, Plan, may_win
from tonnage.planning.planner import make_plan
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import NO_LIMIT, Requests, ServeJob, Workload

FULL_RATE_PER_S = 1e7  # so many machines that the rounding to whole ones does not show
Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetUnit:
    """One kind of machine of a fleet. `capacity_per_s`: requests it answers within the promise."""

    option: Option
    capacity_per_s: Figure
    replicas: int  # on one machine
    usd_per_hour: float
    reserved_usd_per_hour: float | None  # the same machine committed for a year; None: no price is known

    @property
    def key(self) -> Key:
        return (self.option.provider, self.option.instance_type)

    @property
    def name(self) -> str:
        return f"{self.option.provider} {self.option.instance_type} {self.option.purchase.replace('_', '-')}"

    def slowed(self, factor: float) -> FleetUnit:
        """The same machine, carrying `factor` of the load."""
        return replace(self, capacity_per_s=self.capacity_per_s.scaled(factor))


def capacity_plan(workload: Workload, catalog: Catalog, grounds: Grounds | None = None) -> Plan:
    """The plan of a rate so high that every machine is filled: what one machine carries at most within the promise."""
    assert isinstance(workload.job, ServeJob)
    job = _simulated(replace(workload.job, rate_per_s=FULL_RATE_PER_S))
    limits = replace(workload.constraints, budget_usd=None, max_gpus=None, max_nodes=NO_LIMIT, quotas=())
    return make_plan(replace(workload, job=job, constraints=limits), catalog, grounds=grounds)


def _simulated(job: ServeJob) -> ServeJob:
    """The job without layouts that the simulation of a fleet does not know, where none is asked for."""
    if job.prefill_replicas or (job.expert_parallel or 1) > 1 or (job.attention_data_parallel or 1) > 1:
        raise InputError(
            "a simulated fleet has no expert parallelism, data-parallel attention or pools of its replicas",
            hint="leave expert_parallel, attention_data_parallel, prefill_replicas and decode_replicas out",
        )
    return replace(job, expert_parallel=1, attention_data_parallel=1, prefill_replicas=0, decode_replicas=0)


def fleet_units(plan: Plan, catalog: Catalog, *, reserved_discount: float | None = None) -> tuple[FleetUnit, ...]:
    """The machines worth considering at some volume, cheapest machine first.

    `reserved_discount`: part off the on-demand price that a year's commitment gives, where the catalog has no price.
    """
    hourly = [option for option in plan.options if is_machine(option) and not option.purchase.startswith("reserved")]
    chosen = may_win(hourly, any_price=plan.any_price)
    return worthwhile([_unit(option, catalog, reserved_discount) for option in chosen])


def is_machine(option: Option) -> bool:
    """Whether an option is machines that hold replicas, not a service bought by the token."""
    return "requests_per_s" in dict(option.run.rates) and "replicas_per_node" in dict(option.run.layout_fields)


def worthwhile(units: list[FleetUnit]) -> tuple[FleetUnit, ...]:
    """Machines that carry a request cheaper than every cheaper machine does: the others win at no volume."""
    kept: list[FleetUnit] = []
    for unit in sorted(units, key=lambda one: (one.usd_per_hour, -one.capacity_per_s.value, one.name)):
        if all(_per_request(unit) < _per_request(other) for other in kept):
            kept.append(unit)
    return tuple(kept)


def _per_request(unit: FleetUnit) -> float:
    return _lowest(unit) / unit.capacity_per_s.value


def _lowest(unit: FleetUnit) -> float:
    return min(unit.usd_per_hour, unit.reserved_usd_per_hour or unit.usd_per_hour)


def _unit(option: Option, catalog: Catalog, reserved_discount: float | None) -> FleetUnit:
    layout: Mapping[str, int | str] = dict(option.run.layout_fields)
    rate = dict(option.run.rates)["requests_per_s"]
    return FleetUnit(
        option=option,
        capacity_per_s=rate.scaled(1.0 / option.count),
        replicas=int(layout["replicas_per_node"]),
        usd_per_hour=option.usd_per_instance_hour,
        reserved_usd_per_hour=_reserved(option, catalog, reserved_discount),
    )


def _reserved(option: Option, catalog: Catalog, discount: float | None) -> float | None:
    offers = catalog.offers_of(catalog.instance_type(option.instance_type, option.provider))
    sold = [offer for offer in offers if offer.region == option.region]
    prices = [float(offer.usd_per_instance_hour) for offer in sold if offer.purchase == "reserved_1y"]
    if prices:
        return min(prices)
    listed = [float(offer.usd_per_instance_hour) for offer in sold if offer.purchase == "on_demand"]
    return min(listed) * (1.0 - discount) if listed and discount is not None else None


def units_for(
    workload: Workload,
    requests: Requests,
    units: tuple[FleetUnit, ...],
    catalog: Catalog,
    *,
    reserved_discount: float | None = None,
    grounds: Grounds | None = None,
) -> tuple[FleetUnit, ...]:
    """The same machines sized for other requests; those that cannot answer them drop out."""
    assert isinstance(workload.job, ServeJob)
    keys = {unit.key for unit in units}
    offers = tuple(offer for offer in catalog.offers if (offer.provider, offer.instance_type) in keys)
    changed = replace(workload, job=replace(workload.job, requests=requests))
    return fleet_units(
        capacity_plan(changed, replace(catalog, offers=offers), grounds), catalog, reserved_discount=reserved_discount
    )
