"""Candidates: each workload's plan options, pruned to those that no other of the same provider beats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from tonnage.catalog import Catalog
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.plan import Option, Plan
from tonnage.planning.planner import make_plan
from tonnage.units import HOURS_PER_MONTH, SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.jobs import ServeJob, Workload
from tonnage.workload.portfolio.values import CapacityLimit, Commitment, Portfolio, PortfolioEntry

Place = tuple[str | None, str | None]
COMMITTED_PLATFORMS: Final = ("vm", "databricks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to run one workload. Amounts are of one run (of the month for a service)."""

    entry: int
    option: Option
    usd: float
    hours: float  # wall clock
    gpus: float  # at a time
    gpu_hours: float
    usd_per_gpu_hour: float  # what an hour on a committed GPU saves
    capacity: tuple[int, ...]  # capacity limits it counts in
    pools: tuple[int, ...]  # commitments it can draw from

    def at_once(self, runs: int) -> int:
        """Runs at a time if `runs` are spread over the month: at least one."""
        return max(1, ceil(runs * self.hours / HOURS_PER_MONTH - 1e-9)) if runs else 0


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


def candidates_of(
    index: int, entry: PortfolioEntry, options: Iterable[Option], portfolio: Portfolio, catalog: Catalog
) -> list[Candidate]:
    """The candidates of one workload, cheapest first, without those that another of the same provider beats."""
    service = isinstance(entry.workload.job, ServeJob)
    wanted = {share.provider for share in portfolio.shares if share.fraction > 0}
    made = [_candidate(index, one, portfolio, catalog, service=service) for one in options]
    if wanted:
        made = [one for one in made if one.option.provider in wanted]
    return not_beaten(made)


def _candidate(index: int, option: Option, portfolio: Portfolio, catalog: Catalog, *, service: bool) -> Candidate:
    gpu_hours, gpu_price = _committable(option)
    committed = gpu_price > 0
    hours = HOURS_PER_MONTH if service or option.time_s is None else option.time_s.value / SECONDS_PER_HOUR
    return Candidate(
        entry=index,
        option=option,
        usd=option.cost_usd.value,
        hours=float(hours),
        gpus=option.gpu_count * option.count if option.gpu else 0.0,
        gpu_hours=gpu_hours,
        usd_per_gpu_hour=gpu_price,
        capacity=tuple(number for number, limit in enumerate(portfolio.capacity) if _counts_in(option, limit, catalog)),
        pools=tuple(
            number for number, one in enumerate(portfolio.commitments) if committed and _draws(option, one, catalog)
        ),
    )


def _committable(option: Option) -> tuple[float, float]:
    """GPU-hours that commitments can take over, and USD that each saves; (0, 0) where they hold for none of it.

    Machines bought plainly on demand, also those under Databricks, whose units are still paid. The machines of
    SageMaker and Vertex AI are other products. Never more is saved than it costs (a committed spend may cover it).
    """
    if option.purchase != "on_demand" or option.platform not in COMMITTED_PLATFORMS or not option.gpu_count:
        return 0.0, 0.0
    machines = [line for line in option.ledger.lines if line.unit == "instance-hour"]
    gpu_hours = sum(float(line.quantity) for line in machines) * option.gpu_count
    if option.gpu is None or gpu_hours <= 0:
        return 0.0, 0.0
    bill = min(float(sum(line.usd for line in machines)), option.cost_usd.value)
    return gpu_hours, bill / gpu_hours


def _counts_in(option: Option, limit: CapacityLimit, catalog: Catalog) -> bool:
    return (
        option.gpu is not None
        and limit.gpu.matches_device(catalog.accelerator(option.gpu))
        and limit.provider in (None, option.provider)
        and limit.region in (None, option.region)
        and (not limit.purchases or option.purchase in limit.purchases)
    )


def _draws(option: Option, one: Commitment, catalog: Catalog) -> bool:
    assert option.gpu is not None
    return (
        option.provider == one.provider
        and one.region in (None, option.region)
        and one.instance_type in (None, option.instance_type)
        and one.gpu.matches_device(catalog.accelerator(option.gpu))
    )


def not_beaten(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Candidates that no other of the same provider beats in everything the program looks at, cheapest first.

    So the program never buys a dearer machine of the same provider just to fill a share.
    """
    kept: list[Candidate] = []
    for one in sorted(candidates, key=lambda c: (c.usd, c.gpus, c.hours, c.option.identity)):
        if not any(_beats(other, one) for other in kept):
            kept.append(one)
    return kept


def _beats(a: Candidate, b: Candidate) -> bool:
    """Same provider, no dearer, and no more of any limit. Where commitments are drawn from: the same ones, no more."""
    if a.option.provider != b.option.provider or a.usd > b.usd:
        return False
    counted = set(a.capacity)
    if counted and not (counted <= set(b.capacity) and a.gpus <= b.gpus and a.hours <= b.hours):
        return False
    if not b.pools:
        return True
    rest_a, rest_b = (one.usd - one.gpu_hours * one.usd_per_gpu_hour for one in (a, b))
    return a.pools == b.pools and a.gpu_hours <= b.gpu_hours and rest_a <= rest_b + 1e-9
