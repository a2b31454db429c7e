"""From a checked portfolio file to frozen values."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.errors import InputError
from tonnage.workload.portfolio.fields import CapacityFields, CommitmentFields
from tonnage.workload.portfolio.values import CapacityLimit, Commitment, Share


def freeze_shares(shares: Mapping[str, float]) -> tuple[Share, ...]:
    """Shares as fractions of one, in the file's order."""
    total = math.fsum(shares.values())
    return tuple(Share(provider=name, fraction=share / total) for name, share in shares.items())


def freeze_capacity(limit: CapacityFields) -> CapacityLimit:
    return CapacityLimit(
        gpu=parse_gpu_filter(limit.gpu),
        at_once=limit.at_once,
        provider=limit.provider,
        region=limit.region,
        purchases=limit.purchases,
    )


def freeze_commitment(one: CommitmentFields, catalog: Catalog) -> Commitment:
    """A commitment; for a machine it is bought in whole machines, else GPU by GPU."""
    step, gpu, name = 1, one.gpu, one.instance_type
    if one.instance_type is not None:
        instance = catalog.instance_type(one.instance_type, one.provider)
        step, gpu, name = max(int(instance.accelerator_count), 1), gpu or instance.accelerator, instance.name
    price = one.usd_per_gpu_hour if one.usd_per_gpu_hour is not None else reserved_usd_per_gpu_hour(one, catalog)
    assert price is not None
    assert gpu is not None
    stated = one.usd_per_gpu_hour is not None
    return Commitment(
        provider=one.provider,
        gpu=parse_gpu_filter(gpu),
        usd_per_gpu_hour=price,
        gpus=one.gpus,
        up_to_gpus=one.gpus if one.up_to_gpus is None else one.up_to_gpus,
        step_gpus=step,
        region=one.region,
        instance_type=name,
        usable_fraction=one.usable_percent / 100.0,
        source="the portfolio file" if stated else "the catalog's reserved_1y price",
    )


def reserved_usd_per_gpu_hour(one: CommitmentFields, catalog: Catalog) -> float | None:
    """The catalog's lowest one-year price of the machine (in `region`), per GPU and hour; None where there is none."""
    if one.instance_type is None:
        return None
    try:
        instance = catalog.instance_type(one.instance_type, one.provider)
    except InputError:  # reported by the checks
        return None
    prices = [
        float(offer.usd_per_instance_hour)
        for offer in catalog.offers_of(instance)
        if offer.purchase == "reserved_1y" and one.region in (None, offer.region)
    ]
    return min(prices) / instance.accelerator_count if prices and instance.accelerator_count else None
