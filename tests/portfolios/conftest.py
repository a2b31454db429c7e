"""Small portfolios built by hand: options with stated costs, so that every assignment can be tried."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np

from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.planning.plan import MachineOption, RunDetail
from tonnage.portfolios.model import Candidate
from tonnage.pricing.ledger import Ledger, LedgerLine
from tonnage.sizing.estimates import Figure
from tonnage.units import HOURS_PER_MONTH
from tonnage.workload.jobs import BatchJob, BuyTerms, Constraints, Lengths, Requests, Team, Workload
from tonnage.workload.known import find_model
from tonnage.workload.portfolio.values import CapacityLimit, Commitment, Portfolio, PortfolioEntry, Share

from ..planning.conftest import catalog, make_serve, make_train  # noqa: F401  (fixtures)

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
PROVIDERS = ("aws", "gcp", "azure")


def option(provider: str, name: str, usd: float, hours: float, gpus: float = 1.0) -> MachineOption:
    """One machine with `gpus` T4, `hours` long, for `usd` in all."""
    price = usd / hours
    line = LedgerLine(
        what="compute", part="machines", quantity=Decimal(repr(round(hours, 6))), unit="instance-hour",
        usd_per_unit=Decimal(repr(price)), source="made up", read_on=date(2026, 11, 1),
    )  # fmt: skip
    run = RunDetail(
        layout=name, layout_fields=(), time_s=None, time_parts=(), time_parts_of="step",
        memory_gib=Figure(value=1, low=1, high=1), memory_parts_gib=(), memory_available_gib=15, rates=(),
    )  # fmt: skip
    exact = Figure(value=usd, low=usd * 0.9, high=usd * 1.2)
    return MachineOption(
        rank=1, provider=provider, instance_type=name, region="r", purchase="on_demand", count=1, platform="vm",
        gpu="T4", gpu_count=gpus, usd_per_instance_hour=price, price_read_on=None,
        time_s=Figure(value=hours * 3600, low=hours * 3600, high=hours * 3600), cost_usd=exact,
        ledger=Ledger(lines=(line,)), run=run, risks=(), pareto=False, loses_by=None,
    )  # fmt: skip


def candidate(
    entry: int, one: MachineOption, *, capacity: tuple[int, ...] = (), pools: tuple[int, ...] = ()
) -> Candidate:
    assert one.time_s is not None
    hours = one.time_s.value / 3600
    return Candidate(
        entry=entry, option=one, usd=one.cost_usd.value, hours=hours, gpus=one.gpu_count,
        gpu_hours=hours * one.gpu_count, usd_per_gpu_hour=one.usd_per_instance_hour / one.gpu_count,
        capacity=capacity, pools=pools,
    )  # fmt: skip


def workload(name: str = "w", **limits: float) -> Workload:
    job = BatchJob(
        model=find_model("gpt2"),
        requests=Requests(input_tokens=Lengths(mean=64, maximum=64), output_tokens=Lengths(mean=8, maximum=8)),
        items=100_000,
    )
    return Workload(
        name=name, job=job, constraints=replace(Constraints(), **limits), buy=BuyTerms(), team=Team(),
        as_of=AS_OF,
    )  # fmt: skip


def random_case(
    seed: int, *, split: bool, shares: bool, capacity: bool = True, pool: bool = False
) -> tuple[Portfolio, list[Candidate]]:
    """3 workloads with 2 to 4 candidates each; limits drawn so that some cases have no solution."""
    random = np.random.default_rng(seed)
    entries, candidates = [], []
    for index in range(3):
        runs = int(random.integers(1, 4))
        entries.append(PortfolioEntry(name=f"w{index}", workload=workload(), runs_per_month=runs, split=split))
        for number in range(int(random.integers(2, 5))):
            provider = PROVIDERS[int(random.integers(3))]
            hours, gpus = float(random.uniform(10, 600)), float(random.integers(1, 9))
            usd = 2.0 * hours * gpus if pool else float(random.lognormal(3, 1))
            one = option(provider, f"m{index}{number}", usd, hours, gpus)
            held = (0,) if capacity and random.random() < 0.7 else ()
            drawn = (0,) if pool and provider == "aws" else ()
            candidates.append(candidate(index, one, capacity=held, pools=drawn))
    parts = random.dirichlet((2, 2, 2))
    up_to = int(random.integers(1, 6))
    stated = tuple(Share(provider=p, fraction=float(f)) for p, f in zip(PROVIDERS, parts, strict=True))
    return Portfolio(
        name="p",
        entries=tuple(entries),
        as_of=AS_OF,
        shares=stated if shares else (),
        share_tolerance=float(random.uniform(0.05, 0.4)),
        capacity=(CapacityLimit(gpu=parse_gpu_filter("T4"), at_once=int(random.integers(4, 16))),) if capacity else (),
        commitments=(
            Commitment(
                provider="aws", gpu=parse_gpu_filter("T4"), up_to_gpus=up_to, usable_fraction=0.9,
                usd_per_gpu_hour=float(random.uniform(0.2, 1.6)),
            ),
        )
        if pool
        else (),
    ), candidates  # fmt: skip


HOURS = float(HOURS_PER_MONTH)
