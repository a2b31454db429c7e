"""The plans behind a portfolio: each workload over the catalog, and over each region that a limit names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tonnage.catalog import Catalog
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.plan import Plan
from tonnage.planning.planner import make_plan
from tonnage.workload.jobs import Workload
from tonnage.workload.portfolio.values import CapacityLimit, Commitment, Portfolio, PortfolioEntry

Place = tuple[str | None, str | None]


def entry_plans(
    entry: PortfolioEntry, portfolio: Portfolio, catalog: Catalog, calibrated: CalibratedModel | None
) -> list[Plan]:
    """The workload's plans: over the whole catalog, and over each region that a limit names.

    A plan keeps the cheapest region of a machine; where a limit names regions, the others may be needed too.
    """
    workload = _shared_by_runs(_without_reserved(entry.workload), entry.runs_per_month)
    providers = tuple(share.provider for share in portfolio.shares)
    if providers:
        workload = _within(workload, providers)
    return [make_plan(workload, part, calibrated=calibrated) for part in _parts(catalog, _named_places(portfolio))]


def _without_reserved(workload: Workload) -> Workload:
    """Commitments are bought for the portfolio, not pro rata for one run."""
    kept = tuple(one for one in workload.buy.purchases if not one.startswith("reserved"))
    return replace(workload, buy=replace(workload.buy, purchases=kept or ("on_demand",)))


def _shared_by_runs(workload: Workload, runs: int) -> Workload:
    """What comes once a month whatever the runs, set-up hours and committed spend, in equal parts on each run."""
    team, buy = workload.team, workload.buy
    return replace(
        workload,
        team=replace(team, setup_hours=tuple((name, hours / runs) for name, hours in team.setup_hours)),
        buy=replace(buy, committed_usd=tuple((name, usd / runs) for name, usd in buy.committed_usd)),
    )


def _within(workload: Workload, providers: tuple[str, ...]) -> Workload:
    own = workload.constraints.providers
    allowed = tuple(name for name in (own or providers) if name in providers)
    # None left: the workload keeps its own, and the shares will say that they cannot hold.
    return replace(workload, constraints=replace(workload.constraints, providers=allowed or own))


def _named_places(portfolio: Portfolio) -> tuple[Place, ...]:
    limits: Iterable[CapacityLimit | Commitment] = (*portfolio.capacity, *portfolio.commitments)
    return tuple(dict.fromkeys((one.provider, one.region) for one in limits if one.region is not None))


def _parts(catalog: Catalog, places: Sequence[Place]) -> list[Catalog]:
    """The catalog, and where regions are named: its offers split by the set of named places they lie in."""
    if not places:
        return [catalog]
    groups: dict[tuple[bool, ...], list[int]] = {}
    for number, offer in enumerate(catalog.offers):
        where = tuple(offer.region == region and provider in (None, offer.provider) for provider, region in places)
        groups.setdefault(where, []).append(number)
    return [replace(catalog, offers=tuple(catalog.offers[i] for i in rows)) for rows in groups.values()]
