"""When nothing fits: the refusals nearest to fitting, each with changes that were tried and do let it in."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from tonnage.catalog import Catalog
from tonnage.planning.flips import Planner, chain_that_fits
from tonnage.planning.plan import NearMiss, Option, Refusal
from tonnage.planning.scenario import Scenario
from tonnage.workload.jobs import Workload

MOST_TRIED = 16  # refusals
SHOWN = 3


def nearest_misses(
    workload: Workload, catalog: Catalog, refused: Iterable[Refusal], relaxed: Iterable[Option], plan: Planner
) -> tuple[NearMiss, ...]:
    """Up to three refusals of different GPUs that a short chain of changes lets in, the smallest shortfall first.

    Those that lack a figure by a known factor go first; then what single relaxed constraints would have chosen.
    The flip of a result is the whole chain and what the option then costs.
    """
    listed = list(refused)
    measured = sorted((one for one in listed if isfinite(one.shortfall)), key=lambda one: one.shortfall)
    by_identity = {(one.provider, one.instance_type, one.purchase, one.platform): one for one in listed}
    chosen = [by_identity.get((one.provider, one.instance_type, one.purchase, one.platform)) for one in relaxed]
    found: list[NearMiss] = []
    tried: set[tuple[str | None, float]] = set()
    for miss in [*measured, *(one for one in chosen if one is not None)]:
        kind = (miss.gpu, miss.gpu_count)
        if kind in tried or len(found) == SHOWN or len(tried) == MOST_TRIED:
            continue
        tried.add(kind)
        chain = chain_that_fits(miss, Scenario(workload=workload, catalog=catalog), plan)
        if chain is not None:
            found.append(NearMiss(refusal=miss, flip=chain))
    return tuple(found)
