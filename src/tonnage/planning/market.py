"""Which offers may be considered at all: constraints that need no sizing, and why each other offer is out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tonnage.catalog import Catalog
from tonnage.catalog.market import InstanceType, Offer, Platform
from tonnage.catalog.twins import superseded_offers
from tonnage.planning.changes import allowing, bought_as, constrained, including
from tonnage.planning.plan import Bought, Refusal
from tonnage.planning.sized import Miss
from tonnage.workload.exclusions import Exclusion
from tonnage.workload.jobs import Workload

Group = tuple[str, str, Bought]  # provider, instance type, purchase


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """Offers that pass, and one refusal per instance type x purchase none of whose offers pass."""

    offers: tuple[Offer, ...]
    refused: tuple[Refusal, ...]


def admit_offers(workload: Workload, catalog: Catalog) -> Market:
    """Split the catalog's offers by purchase, provider, region, residency and GPU constraints."""
    admitted: list[Offer] = []
    out: dict[Group, tuple[Offer, Miss]] = {}
    passing: set[Group] = set()
    fixed: dict[Group, Miss | None] = {}
    instances = {instance.key: instance for instance in catalog.instance_types}
    superseded = superseded_offers(catalog.offers, instances)
    for offer in catalog.offers:
        group = (offer.provider, offer.instance_type, offer.purchase)
        if group not in fixed:
            fixed[group] = _instance_miss(workload, catalog, offer, instances[offer.provider, offer.instance_type])
        miss = fixed[group] or _price_miss(workload, offer, superseded) or _region_miss(workload, catalog, offer)
        if miss is None:
            admitted.append(offer)
            passing.add(group)
        elif group not in out:
            out[group] = (offer, miss)
    refused = [
        refuse(instances[group[:2]], miss, region=offer.region, purchase=offer.purchase)
        for group, (offer, miss) in out.items()
        if group not in passing
    ]
    refused += [*_unpriced(catalog), *_set_aside(workload, catalog, instances, {*passing, *out})]
    return Market(offers=tuple(admitted), refused=tuple(refused))


def refuse(
    instance: InstanceType,
    miss: Miss,
    *,
    region: str = "",
    purchase: Bought | None = None,
    count: int = 1,
    platform: Platform = "vm",
) -> Refusal:
    """A miss with the identity of the candidate it is about."""
    return Refusal(
        provider=instance.provider,
        instance_type=instance.name,
        region=region,
        purchase=purchase,
        count=count,
        gpu=instance.accelerator,
        gpu_count=instance.accelerator_count,
        binding=miss.binding,
        needs=miss.needs,
        has=miss.has,
        flips_when=miss.flips_when,
        shortfall=miss.shortfall,
        change=miss.change,
        platform=platform,
        unknown=miss.unknown,
        would_cost_usd=miss.would_cost_usd,
    )


def _instance_miss(workload: Workload, catalog: Catalog, offer: Offer, instance: InstanceType) -> Miss | None:
    """Constraints that hold for the whole instance type and purchase, whatever the region."""
    wanted = workload.constraints
    if offer.purchase not in workload.buy.purchases:
        return Miss(
            binding="purchase",
            needs=f"one of {', '.join(workload.buy.purchases)}",
            has=offer.purchase,
            flips_when=f"buy.{offer.purchase}: true",
            change=bought_as(offer.purchase),
        )
    if offer.purchase == "spot" and not wanted.interruptible:
        return Miss(
            binding="interruptible",
            needs="machines that stay",
            has="spot",
            flips_when="constraints.interruptible: true",
            change=constrained(interruptible=True),
        )
    if wanted.providers and offer.provider not in wanted.providers:
        return Miss(
            binding="provider",
            needs=f"one of {', '.join(wanted.providers)}",
            has=offer.provider,
            flips_when=f"constraints.providers includes {offer.provider}",
            change=including("providers", offer.provider),
        )
    return _excluded(workload, catalog, instance) or _gpu_miss(workload, catalog, instance)


def _excluded(workload: Workload, catalog: Catalog, instance: InstanceType) -> Miss | None:
    out = next((one for one in workload.constraints.exclude if one.covers_machine(instance, catalog)), None)
    return None if out is None else exclusion_miss(out)


def _price_miss(workload: Workload, offer: Offer, superseded: Mapping[Offer, Offer]) -> Miss | None:
    """What is wrong with one price, whatever its region."""
    out = next((one for one in workload.constraints.exclude if one.covers_offer(offer)), None)
    if out is not None:
        return exclusion_miss(out)
    newer = superseded.get(offer)
    if newer is None:
        return None
    return Miss(
        binding="price",
        needs="the newest price of the machine",
        has=f"${offer.usd_per_instance_hour}, older than the ${newer.usd_per_instance_hour} of {newer.read_on} under "
        f"the name {newer.instance_type}",
        flips_when="the older listing is read again",
    )


def exclusion_miss(exclusion: Exclusion) -> Miss:
    """A candidate that the buyer rules out."""
    return Miss(
        binding="excluded",
        needs=f"what constraints.exclude leaves: not {exclusion.text}",
        has=exclusion.text,
        flips_when=f"constraints.exclude is without {exclusion.text}",
        change=allowing(exclusion),
    )


def _gpu_miss(workload: Workload, catalog: Catalog, instance: InstanceType) -> Miss | None:
    filters = workload.constraints.gpus
    if not filters:
        return None
    if instance.accelerator is not None:
        accelerator = catalog.accelerator(instance.accelerator)
        if any(wanted.matches(accelerator, instance.accelerator_count) for wanted in filters):
            return None
    asked = " or ".join(wanted.text for wanted in filters)
    if instance.accelerator is None:
        return Miss(
            binding="gpu",
            needs=asked,
            has="no GPU",
            flips_when="constraints.gpus is left out",
            change=constrained(gpus=()),
        )
    has = f"{instance.accelerator}:{instance.accelerator_count:g}"
    return Miss(
        binding="gpu", needs=asked, has=has, flips_when=f"constraints.gpus includes {has}", change=constrained(gpus=())
    )


def _region_miss(workload: Workload, catalog: Catalog, offer: Offer) -> Miss | None:
    wanted = workload.constraints
    if wanted.regions and offer.region and offer.region not in wanted.regions:
        return Miss(
            binding="region",
            needs=f"one of {', '.join(wanted.regions)}",
            has=offer.region,
            flips_when=f"constraints.regions includes {offer.region}",
            change=including("regions", offer.region),
        )
    if wanted.residency:
        region = catalog.region(offer.provider, offer.region)
        area = region.area if region else None
        if area not in wanted.residency:
            return Miss(
                binding="residency",
                needs=f"data stays in {', '.join(wanted.residency)}",
                has=f"prices in {area}" if area else "a listing that states no region",
                flips_when=f"constraints.residency includes {area}" if area else "the listing states its regions",
                change=including("residency", area) if area else None,
            )
    return None


def _set_aside(
    workload: Workload, catalog: Catalog, instances: dict[tuple[str, str], InstanceType], known: set[Group]
) -> list[Refusal]:
    """Committed prices that are on record and not believed, where nothing else prices the machine so."""
    found: dict[Group, Refusal] = {}
    for one in catalog.quarantined:
        offer = one.offer
        group: Group = (offer.provider, offer.instance_type, offer.purchase)
        if offer.purchase not in workload.buy.purchases or group in known or group[:2] not in instances:
            continue
        miss = Miss(
            binding="price",
            needs=f"a {offer.purchase.replace('_', '-')} price that holds today",
            has=f"${offer.usd_per_instance_hour:.4f} an hour, set aside: {one.why}",
            flips_when="a source states the price of today",
        )
        found.setdefault(group, refuse(instances[group[:2]], miss, region=offer.region, purchase=offer.purchase))
    return list(found.values())


def _unpriced(catalog: Catalog) -> list[Refusal]:
    """Instance types without any offer: a missing price is stated, never zero."""
    priced = {(offer.provider, offer.instance_type) for offer in catalog.offers}
    miss = Miss(binding="no price", needs="a price", has="none in the catalog", flips_when="a source states its price")
    return [
        refuse(instance, miss)
        for instance in sorted(catalog.instance_types, key=lambda one: one.key)
        if instance.key not in priced
    ]
