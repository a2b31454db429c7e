"""When nothing fits: the refusals nearest to fitting, each with changes that were tried and do let it in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import isfinite

from tonnage.catalog import Catalog
from tonnage.planning.plan import Option, Plan, Refusal
from tonnage.workload.jobs import Workload

Planner = Callable[[Workload, Catalog], Plan]
LONGEST_CHAIN = 4  # changes in a row
MOST_TRIED = 16  # refusals
SHOWN = 3


def nearest_misses(
    workload: Workload, catalog: Catalog, refused: Iterable[Refusal], relaxed: Iterable[Option], plan: Planner
) -> tuple[Refusal, ...]:
    """Up to three refusals of different GPUs that a short chain of changes lets in, the smallest shortfall first.

    Those that lack a figure by a known factor go first; then what single relaxed constraints would have chosen.
    `flips_when` of a result names the whole chain and what the option then costs.
    """
    listed = list(refused)
    measured = sorted((one for one in listed if isfinite(one.shortfall)), key=lambda one: one.shortfall)
    by_identity = {(one.provider, one.instance_type, one.purchase, one.platform): one for one in listed}
    chosen = [by_identity.get((one.provider, one.instance_type, one.purchase, one.platform)) for one in relaxed]
    found: list[Refusal] = []
    tried: set[tuple[str | None, float]] = set()
    for miss in [*measured, *(one for one in chosen if one is not None)]:
        kind = (miss.gpu, miss.gpu_count)
        if kind in tried or len(found) == SHOWN or len(tried) == MOST_TRIED:
            continue
        tried.add(kind)
        chain = chain_that_fits(miss, workload, catalog, plan)
        if chain is not None:
            found.append(replace(miss, flips_when=chain))
    return tuple(found)


def chain_that_fits(miss: Refusal, workload: Workload, catalog: Catalog, plan: Planner) -> str | None:
    """Changes, one after the other, that make the refused candidate an option, with its cost; None if none do."""
    alone = _narrowed(catalog, miss)
    texts: list[str] = []
    for _ in range(LONGEST_CHAIN):
        if miss.change is None:
            return None
        workload = miss.change(workload)
        texts.append(miss.flips_when.split(", or ")[0])
        answer = plan(workload, alone)
        now = next((one for one in answer.options if one.platform == miss.platform), None)
        if now is not None:
            return f"{' and '.join(texts)} (then ${now.cost_usd.value:,.2f})"
        key = (miss.platform, miss.instance_type)
        still = next((one for one in answer.refused if (one.platform, one.instance_type) == key), None)
        if still is None:
            return None
        miss = still
    return None


def _narrowed(catalog: Catalog, miss: Refusal) -> Catalog:
    """The catalog with nothing but the offers of one instance type under one purchase mode."""
    offers = tuple(
        offer
        for offer in catalog.offers
        if (offer.provider, offer.instance_type) == (miss.provider, miss.instance_type)
        and miss.purchase in (None, offer.purchase)
    )
    machines = tuple(one for one in catalog.instance_types if one.key == (miss.provider, miss.instance_type))
    return replace(catalog, offers=offers, instance_types=machines)
