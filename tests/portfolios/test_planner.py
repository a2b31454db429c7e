"""Whole portfolios on real prices of three GPUs: limits hold, the reserved base is shared, infeasible ones say why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tonnage.catalog import Catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.catalog.market import Platform
from tonnage.planning import make_plan
from tonnage.portfolios import PortfolioPlan, plan_portfolio
from tonnage.reports.portfolio import portfolio_report
from tonnage.reports.reasons.flips import unplaced_hint
from tonnage.reports.rendering import FORMATS, render_report
from tonnage.workload.jobs import BuyTerms, Constraints, Team
from tonnage.workload.portfolio.values import CapacityLimit, Commitment, Portfolio, PortfolioEntry, Share

from ..planning.conftest import offers_of
from .conftest import AS_OF, workload


@pytest.fixture(scope="module")
def catalog(catalog: Catalog) -> Catalog:
    """Three GPUs that several providers rent."""
    return offers_of(catalog, "T4", "A10G", "L4")


def portfolio(count: int = 3, **changes: object) -> Portfolio:
    entries = tuple(
        PortfolioEntry(name=f"w{number}", workload=workload(f"w{number}"), runs_per_month=40 + number, split=True)
        for number in range(count)
    )
    return replace(Portfolio(name="p", entries=entries, as_of=AS_OF), **changes)  # type: ignore[arg-type]


def test_without_limits_everyone_takes_the_cheapest(catalog: Catalog) -> None:
    """The total is the sum of each workload's own best option."""
    found = plan_portfolio(portfolio(), catalog)
    best = make_plan(workload(), catalog).best
    assert best is not None
    assert found.total_usd is not None
    assert found.total_usd.value == pytest.approx(best.cost_usd.value * (40 + 41 + 42), rel=1e-6)
    assert found.gap is not None
    assert found.gap <= 1e-4


def test_shares_hold_and_cost(catalog: Catalog) -> None:
    """Spend by provider lies within the tolerance; the portfolio costs no less than without shares."""
    shares = (Share(provider="aws", fraction=0.6), Share(provider="gcp", fraction=0.4))
    found = plan_portfolio(portfolio(shares=shares, share_tolerance=0.02), catalog)
    free = plan_portfolio(portfolio(), catalog)
    assert found.total_usd is not None
    assert free.total_usd is not None
    assert {one.provider: one.share for one in found.spend} == pytest.approx({"aws": 0.6, "gcp": 0.4}, abs=0.02 + 1e-6)
    assert found.total_usd.value >= free.total_usd.value
    assert sum(one.usd for one in found.spend) == pytest.approx(found.total_usd.value)


def test_a_region_full_moves_work_to_the_next_region(catalog: Catalog) -> None:
    """Where the cheapest region has no GPU left, the plan takes another region, not another machine at any price."""
    best = make_plan(workload(), catalog).best
    assert best is not None
    assert best.gpu is not None
    full = CapacityLimit(gpu=parse_gpu_filter(best.gpu), at_once=0, provider=best.provider, region=best.region)
    found = plan_portfolio(portfolio(1, capacity=(full,)), catalog)
    assert found.assignments
    assert all((one.option.provider, one.option.region) != (best.provider, best.region) or one.option.gpu != best.gpu
               for one in found.assignments)  # fmt: skip
    rest = replace(
        catalog,
        offers=tuple(
            offer for offer in catalog.offers
            if (offer.provider, offer.region) != (best.provider, best.region)
            or catalog.instance_type(offer.instance_type, offer.provider).accelerator != best.gpu
        ),
    )  # fmt: skip
    elsewhere = make_plan(workload(), rest).best
    assert elsewhere is not None
    assert found.total_usd is not None
    assert found.total_usd.value == pytest.approx(elsewhere.cost_usd.value * 40, rel=1e-6)


def committed(catalog: Catalog, usd: float) -> PortfolioPlan:
    on_demand = BuyTerms(purchases=("on_demand",))
    limits = Constraints(providers=("aws",), gpus=(parse_gpu_filter("A10G"),))
    busy = replace(workload("busy"), buy=on_demand, constraints=limits)
    busy = replace(busy, job=replace(busy.job, items=200_000_000))  # type: ignore[type-var]
    base = Commitment(provider="aws", gpu=parse_gpu_filter("A10G"), usd_per_gpu_hour=usd, up_to_gpus=64)
    entry = PortfolioEntry(name="busy", workload=busy, runs_per_month=30)
    return plan_portfolio(Portfolio(name="p", entries=(entry,), as_of=AS_OF, commitments=(base,)), catalog)


def test_a_reserved_base_is_bought_where_it_pays(catalog: Catalog) -> None:
    """Cheap commitments are taken and filled to no more than is usable; dear ones are not taken at all."""
    cheap, dear = committed(catalog, 0.2), committed(catalog, 5.0)
    (held,) = cheap.commits
    assert held.gpus > 0
    assert held.used_gpu_hours <= 0.85 * held.paid_gpu_hours + 1e-6
    assert dear.commits[0].gpus == 0
    assert cheap.total_usd is not None
    assert dear.total_usd is not None
    assert cheap.total_usd.value < dear.total_usd.value


def on_platform(catalog: Catalog, platform: Platform) -> PortfolioPlan:
    """Nightly work on A10G at AWS through one platform, with eight GPUs committed beside it."""
    limits = Constraints(providers=("aws",), gpus=(parse_gpu_filter("A10G"),), platforms=(platform,))
    nightly = replace(workload("nightly"), constraints=limits, buy=BuyTerms(purchases=("on_demand",)))
    nightly = replace(nightly, job=replace(nightly.job, items=2_000_000))  # type: ignore[type-var]
    base = Commitment(provider="aws", gpu=parse_gpu_filter("A10G"), usd_per_gpu_hour=0.2, gpus=8, up_to_gpus=8)
    entry = PortfolioEntry(name="nightly", workload=nightly, runs_per_month=30)
    return plan_portfolio(Portfolio(name="p", entries=(entry,), as_of=AS_OF, commitments=(base,)), catalog)


@pytest.mark.parametrize("platform", ["vm", "databricks", "sagemaker"])
def test_the_cost_is_what_was_proven_least(catalog: Catalog, platform: Platform) -> None:
    """Rows and commitments add up to the program's own total: hours on committed GPUs save what those hours cost."""
    found = on_platform(catalog, platform)
    assert found.total_usd is not None
    assert found.bound_usd == pytest.approx(found.total_usd.value, rel=1e-4)
    assert sum(one.usd for one in found.spend) == pytest.approx(found.total_usd.value)


def test_commitments_cover_machines_and_not_the_fees_on_them(catalog: Catalog) -> None:
    """Plain machines move whole; under Databricks the units are still paid; SageMaker's machines do not move."""
    plain, databricks, sagemaker = (on_platform(catalog, one) for one in ("vm", "databricks", "sagemaker"))
    assert sum(one.committed_gpu_hours for one in plain.assignments) > 0
    assert sum(one.cost_usd.value for one in plain.assignments) == pytest.approx(0, abs=1e-6)
    [managed] = databricks.assignments
    units = sum(line.usd for line in managed.option.ledger.lines if line.unit == "DBU") * managed.runs
    assert managed.committed_gpu_hours > 0
    assert managed.cost_usd.value == pytest.approx(float(units))
    assert sum(one.committed_gpu_hours for one in sagemaker.assignments) == 0


def test_what_comes_once_a_month_is_not_paid_for_every_run(catalog: Catalog) -> None:
    """Ten set-up hours are ten hours whether a workload runs once or twenty times, and so is a committed spend."""
    busy = replace(
        workload("busy"),
        team=Team(hourly_usd=100.0, setup_hours=(("vm", 10.0),)),
        buy=BuyTerms(committed_usd=(("azure", 0.01),)),
        constraints=Constraints(platforms=("vm",), providers=("azure",)),
    )

    def cost(runs: int) -> float:
        entry = PortfolioEntry(name="busy", workload=busy, runs_per_month=runs, split=False)
        total = plan_portfolio(Portfolio(name="p", entries=(entry,), as_of=AS_OF), catalog).total_usd
        assert total is not None
        return total.value

    plain = make_plan(replace(busy, team=Team(), buy=BuyTerms()), catalog).best
    assert plain is not None
    for runs in (1, 20):
        assert cost(runs) == pytest.approx(1000.0 - 0.01 + runs * plain.cost_usd.value, abs=0.01)


def test_what_must_give_is_enough(catalog: Catalog) -> None:
    """A budget too small names the budget that does; with it there is an assignment."""
    free = plan_portfolio(portfolio(), catalog)
    assert free.total_usd is not None
    poor = plan_portfolio(portfolio(budget_usd=free.total_usd.value / 2), catalog)
    assert not poor.found
    (give,) = poor.gives
    assert (give.kind, give.alone) == ("budget", True)
    assert plan_portfolio(portfolio(budget_usd=give.needed * 1.0001), catalog).found


def test_a_workload_that_fits_nowhere_is_named(catalog: Catalog) -> None:
    """Its name and a change that would let it in stand in the answer."""
    late = replace(workload("late"), constraints=Constraints(deadline_s=1.0))
    entries = (*portfolio(1).entries, PortfolioEntry(name="late", workload=late))
    found = plan_portfolio(Portfolio(name="p", entries=entries, as_of=AS_OF), catalog)
    assert [one.workload for one in found.unplaced] == ["late"]
    assert found.unplaced[0].sellers == ()
    assert unplaced_hint(found.unplaced[0])
    assert not found.found


def test_a_workload_outside_the_shares_is_named(catalog: Catalog) -> None:
    """A workload that may only run where no share goes is told so, with the providers it may run at."""
    away = replace(workload("away"), constraints=Constraints(providers=("azure",)))
    shares = (Share(provider="aws", fraction=0.6), Share(provider="gcp", fraction=0.4))
    entries = (*portfolio(1).entries, PortfolioEntry(name="away", workload=away))
    found = plan_portfolio(Portfolio(name="p", entries=entries, as_of=AS_OF, shares=shares), catalog)
    assert [one.workload for one in found.unplaced] == ["away"]
    assert found.unplaced[0].sellers == ("azure",)


@pytest.mark.parametrize("form", FORMATS)
def test_every_outcome_renders_in_every_form(catalog: Catalog, form: str) -> None:
    """An assignment, an infeasible portfolio and one with an unplaced workload."""
    late = PortfolioEntry(name="late", workload=replace(workload("late"), constraints=Constraints(deadline_s=1.0)))
    for one in (portfolio(1), portfolio(1, budget_usd=1e-4), portfolio(1, entries=(late,))):
        assert render_report(portfolio_report(plan_portfolio(one, catalog)), form).endswith("\n")  # type: ignore[arg-type]


def test_same_inputs_same_bytes(catalog: Catalog) -> None:
    """Two runs print the same JSON."""
    shares = (Share(provider="aws", fraction=0.6), Share(provider="gcp", fraction=0.4))
    texts = {
        render_report(portfolio_report(plan_portfolio(portfolio(shares=shares), catalog)), "json") for _ in range(2)
    }
    assert len(texts) == 1
