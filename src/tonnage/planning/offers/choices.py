"""Admitted offers -> the deals that a plan compares: every platform allowed, and why others are out."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Final, get_args

from tonnage.catalog import Catalog
from tonnage.catalog.market import InstanceType, Offer, Platform
from tonnage.planning.layouts.machines import Key
from tonnage.planning.offers.market import not_listed, refuse
from tonnage.planning.plan import Refusal
from tonnage.planning.reasons.changes import Publish
from tonnage.planning.reasons.misses import Miss, UnpricedMiss
from tonnage.planning.tokens.ways import unpriced_egress
from tonnage.pricing.deals import Deal, PriceGap, platform_deals
from tonnage.pricing.extras import Extras
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload

PLATFORMS: Final[tuple[Platform, ...]] = get_args(Platform)
MACHINE_PLATFORMS: Final[tuple[Platform, ...]] = ("vm", "databricks", "sagemaker", "vertex")
Instances = Mapping[Key, InstanceType]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Deals that may be compared, and a refusal for each group that is out."""

    deals: tuple[Deal, ...]
    refused: tuple[Refusal, ...]


def choose_deals(
    offers: Sequence[Offer], instances: Instances, catalog: Catalog, workload: Workload, fitting: Container[Key]
) -> Choices:
    """All deals of `offers` on the platforms that the workload allows and whose data can be moved at a known price.

    A platform's missing price is reported for `fitting` machines only, on which the work runs.
    """
    wanted = workload.constraints.platforms
    deals, gaps = platform_deals(
        offers, catalog, MACHINE_PLATFORMS, kind=workload.kind, buy=workload.buy, asked_for=wanted
    )  # fmt: skip
    refused = [
        _gap_refusal(gap, instances)
        for gap in gaps
        if (not wanted or gap.platform in wanted) and (gap.offer.provider, gap.offer.instance_type) in fitting
    ]
    if wanted:
        out = {deal.group: deal for deal in reversed(deals) if deal.platform not in wanted}
        refused += [_platform_refusal(deal, instances, wanted) for deal in out.values()]
        deals = [deal for deal in deals if deal.platform in wanted]
    if workload.data is not None:
        deals, stranded = _movable(deals, Extras(workload=workload, services=catalog.services))
        refused += [_egress_refusal(deal, instances, workload) for deal in stranded]
    return Choices(deals=tuple(deals), refused=tuple(refused))


def _movable(deals: Sequence[Deal], extras: Extras) -> tuple[list[Deal], list[Deal]]:
    """Deals whose egress is priced (or not needed), and one of each group that has none such."""
    places = {(deal.offer.provider, deal.offer.region) for deal in deals}
    reached = {place for place in places if extras.moving(*place) is not None}
    kept = [deal for deal in deals if (deal.offer.provider, deal.offer.region) in reached]
    groups = {deal.group for deal in kept}
    stranded = {deal.group: deal for deal in reversed(deals) if deal.group not in groups}
    return kept, list(stranded.values())


def _refusal(deal: Deal, instances: Instances, miss: Miss) -> Refusal:
    offer = deal.offer
    instance = instances[offer.provider, offer.instance_type]
    return refuse(instance, miss, region=offer.region, purchase=offer.purchase, platform=deal.platform)


def _gap_refusal(gap: PriceGap, instances: Instances) -> Refusal:
    miss = UnpricedMiss(of=gap.of, name=gap.name, sku=gap.sku, apart=gap.apart, lifted_by=(Publish(what="price"),))
    return _refusal(Deal(offer=gap.offer, platform=gap.platform), instances, miss)


def _platform_refusal(deal: Deal, instances: Instances, wanted: Sequence[Platform]) -> Refusal:
    miss = not_listed("platform", tuple(wanted), deal.platform)
    return _refusal(deal, instances, miss)


def _egress_refusal(deal: Deal, instances: Instances, workload: Workload) -> Refusal:
    data = workload.data
    assert data is not None
    miss = unpriced_egress(data, elsewhere=deal.offer.provider != data.provider)
    return _refusal(deal, instances, miss)
