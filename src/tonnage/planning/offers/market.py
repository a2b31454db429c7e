"""Which offers may be considered at all: constraints that need no sizing, and why each other offer is out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Final, Literal

from tonnage.catalog import Catalog
from tonnage.catalog.market import InstanceType, Offer, Platform
from tonnage.planning.plan import Bought, Refusal
from tonnage.planning.reasons.changes import AllowInterruptions, Buy, DropExclusion, Include, LeaveOut, ListKey, Publish
from tonnage.planning.reasons.misses import (
    ExcludedMiss,
    InterruptibleMiss,
    Miss,
    NoPriceMiss,
    NotAllowedMiss,
    OtherGpuMiss,
    ResidencyMiss,
    SetAsidePriceMiss,
    SupersededPriceMiss,
)
from tonnage.values import dataclass
from tonnage.workload.exclusions import Exclusion
from tonnage.workload.jobs import Workload

Group = tuple[str, str, Bought]  # provider, instance type, purchase
Listed = Literal["provider", "region", "platform"]


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
        miss=miss,
        platform=platform,
    )


def _instance_miss(workload: Workload, catalog: Catalog, offer: Offer, instance: InstanceType) -> Miss | None:
    """Constraints that hold for the whole instance type and purchase, whatever the region."""
    wanted, buys = workload.constraints, workload.buy.purchases
    if offer.purchase not in buys:
        buy = Buy(purchase=offer.purchase)
        return NotAllowedMiss(binding="purchase", allowed=buys, has=offer.purchase, lifted_by=(buy,))
    if offer.purchase == "spot" and not wanted.interruptible:
        return InterruptibleMiss(lifted_by=(AllowInterruptions(),))
    if wanted.providers and offer.provider not in wanted.providers:
        return not_listed("provider", wanted.providers, offer.provider)
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
    return SupersededPriceMiss(
        usd_per_instance_hour=float(offer.usd_per_instance_hour),
        newer_usd_per_instance_hour=float(newer.usd_per_instance_hour),
        newer_read_on=newer.read_on,
        newer_name=newer.instance_type,
        lifted_by=(Publish(what="newer price"),),
    )


def exclusion_miss(exclusion: Exclusion) -> Miss:
    """A candidate that the buyer rules out."""
    return ExcludedMiss(exclusion=exclusion.text, lifted_by=(DropExclusion(exclusion=exclusion.text),))


LISTED: Final[dict[Listed, ListKey]] = {"provider": "providers", "region": "regions", "platform": "platforms"}


def not_listed(binding: Listed, allowed: tuple[str, ...], has: str) -> Miss:
    """A candidate that is not one of what a constraint lists."""
    include = Include(key=LISTED[binding], value=has)
    return NotAllowedMiss(binding=binding, allowed=allowed, has=has, lifted_by=(include,))


def _gpu_miss(workload: Workload, catalog: Catalog, instance: InstanceType) -> Miss | None:
    filters = workload.constraints.gpus
    if not filters:
        return None
    name, count = instance.accelerator, instance.accelerator_count
    lift: Include | LeaveOut = LeaveOut(key="gpus")
    if name is not None:
        if any(wanted.matches(catalog.accelerator(name), count) for wanted in filters):
            return None
        lift = Include(key="gpus", value=f"{name}:{count:g}")
    asked = tuple(wanted.text for wanted in filters)
    return OtherGpuMiss(asked=asked, gpu=name, gpu_count=count, lifted_by=(lift,))


def _region_miss(workload: Workload, catalog: Catalog, offer: Offer) -> Miss | None:
    wanted = workload.constraints
    if wanted.regions and offer.region and offer.region not in wanted.regions:
        return not_listed("region", wanted.regions, offer.region)
    if wanted.residency:
        region = catalog.region(offer.provider, offer.region)
        area = region.area if region else None
        if area not in wanted.residency:
            lift = Include(key="residency", value=area) if area else Publish(what="regions")
            return ResidencyMiss(areas=wanted.residency, area=area, lifted_by=(lift,))
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
        miss = SetAsidePriceMiss(
            purchase=offer.purchase,
            usd_per_instance_hour=float(offer.usd_per_instance_hour),
            why=one.why,
            lifted_by=(Publish(what="price of today"),),
        )
        found.setdefault(group, refuse(instances[group[:2]], miss, region=offer.region, purchase=offer.purchase))
    return list(found.values())


def _unpriced(catalog: Catalog) -> list[Refusal]:
    """Instance types without any offer: a missing price is stated, never zero."""
    priced = {(offer.provider, offer.instance_type) for offer in catalog.offers}
    miss = NoPriceMiss(lifted_by=(Publish(what="price"),))
    return [
        refuse(instance, miss)
        for instance in sorted(catalog.instance_types, key=lambda one: one.key)
        if instance.key not in priced
    ]


# RunPod sells a pod by GPU, count and tier; lists name its GPUs differently (`A100-80GB`, `A100-80GB-PCIe`).
_POD = re.compile(r"(?P<count>\d+)x_.+_(?P<tier>COMMUNITY|SECURE)")
Identity = tuple[str, ...]


def identity_of(instance: InstanceType) -> Identity:
    """What makes a machine the same whatever its name: of a pod its GPU, count and tier; else its name."""
    pod = _POD.fullmatch(instance.name)
    if pod is None or instance.accelerator is None:
        return (instance.provider, instance.name)
    return (instance.provider, instance.accelerator, pod["count"], pod["tier"])


def superseded_offers(offers: Iterable[Offer], instances: Mapping[tuple[str, str], InstanceType]) -> dict[Offer, Offer]:
    """Each offer of which a newer price is known: the same machine, bought the same way, in the same region or in any.

    An offer without a date is older than any with one; of two without, both count.
    """
    groups: dict[tuple[Identity, str], list[Offer]] = defaultdict(list)
    for offer in offers:
        identity = identity_of(instances[offer.provider, offer.instance_type])
        groups[identity, offer.purchase].append(offer)
    found: dict[Offer, Offer] = {}
    for group in groups.values():
        if len(group) > 1:
            found |= _superseded(group)
    return found


def _superseded(group: list[Offer]) -> dict[Offer, Offer]:
    found = {}
    newest: dict[str, Offer] = {}
    for offer in sorted(group, key=lambda one: one.read_on or date.min):
        newest[offer.region] = offer
    for offer in group:
        rivals = [one for region in {"", offer.region} if (one := newest.get(region)) is not None]
        newer = max(rivals, key=lambda one: one.read_on or date.min, default=None)
        if newer is not None and (newer.read_on or date.min) > (offer.read_on or date.min):
            found[offer] = newer
    return found
