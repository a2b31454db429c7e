"""Candidates: each workload's plan options, pruned to those that no other of the same provider beats."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Final

from tonnage.catalog import Catalog
from tonnage.planning.plan import Option
from tonnage.units import HOURS_PER_MONTH, SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.jobs import ServeJob
from tonnage.workload.portfolio.values import CapacityLimit, Commitment, Portfolio, PortfolioEntry

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
