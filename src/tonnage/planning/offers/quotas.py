"""Quotas against deals: how many machines of each an account may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.families import in_family
from tonnage.catalog.market import InstanceType
from tonnage.pricing.deals import Deal
from tonnage.workload.quotas import Quota, tightest

OWN_MACHINES = ("vm", "databricks")  # platforms whose machines run in the buyer's account, under its quotas


def most_machines(
    quotas: Sequence[Quota], deals: Sequence[Deal], instances: Mapping[tuple[str, str], InstanceType], catalog: Catalog
) -> np.ndarray:
    """The most machines of each deal; infinity where no quota is stated for it."""
    if not quotas:
        return np.full(len(deals), np.inf)
    found: dict[tuple[str, str, str, str], float] = {}
    for deal in deals:
        key = _key(deal)
        if key not in found:
            found[key] = tightest(covering(quotas, deal, instances, catalog), instances[key[:2]])[0]
    return np.array([found[_key(deal)] for deal in deals], dtype=np.float64)


def covering(
    quotas: Sequence[Quota], deal: Deal, instances: Mapping[tuple[str, str], InstanceType], catalog: Catalog
) -> list[Quota]:
    """The quotas that a deal's machines count against."""
    offer = deal.offer
    if deal.platform not in OWN_MACHINES:
        return []
    instance = instances[offer.provider, offer.instance_type]
    bought = "spot" if offer.purchase == "spot" else "on_demand"
    return [
        quota
        for quota in quotas
        if quota.provider == offer.provider
        and quota.region in ("", offer.region)
        and quota.purchase in ("any", bought)
        and _covers(quota, instance, catalog)
    ]


def _covers(quota: Quota, instance: InstanceType, catalog: Catalog) -> bool:
    if quota.gpu is not None:
        device = None if instance.accelerator is None else catalog.accelerator(instance.accelerator)
        if device is None or not quota.gpu.matches_device(device):
            return False
    return not quota.families or any(in_family(instance, family) for family in quota.families)


def _key(deal: Deal) -> tuple[str, str, str, str]:
    bought = "spot" if deal.offer.purchase == "spot" else "on_demand"
    own = "own" if deal.platform in OWN_MACHINES else "other"
    return (deal.offer.provider, deal.offer.instance_type, deal.offer.region, f"{bought} {own}")
