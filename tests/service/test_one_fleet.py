"""One file, one fleet: plans, break-evens, portfolios, right-sizing and comparisons show equal machines and price."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tonnage.api import compare, load_workload
from tonnage.catalog import Catalog
from tonnage.planning import make_plan
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.fleets import machines_for, replicas_for
from tonnage.planning.plan import MachineOption, Option
from tonnage.portfolios.model import candidates_of
from tonnage.portfolios.planner import entry_plans
from tonnage.rightsizing.rightsize import plan_alone
from tonnage.service.answer import BreakEvenQuestion
from tonnage.service.autoscaling import Autoscaling
from tonnage.service.breakeven import break_even
from tonnage.service.economics import Demand, month_fleet
from tonnage.service.rate_curve import RateCurve
from tonnage.service.units import unit_of
from tonnage.workload.jobs import BuyTerms, DataPlace, Lengths, OwnPrices, Requests, ServeJob, Team, Workload
from tonnage.workload.known import find_model
from tonnage.workload.portfolio.values import Portfolio, PortfolioEntry

from ..planning.conftest import serve

CALIBRATED = CalibratedModel.packaged()
EXAMPLES = Path(__file__).parents[2] / "examples"
SERVICES = (
    "serve-gpt2-realtime.tonnage.yaml", "serve-llama-7b-realtime.tonnage.yaml", "compare/bert-serving.tonnage.yaml",
)  # fmt: skip
MODELS = ("bert-base-uncased", "all-minilm-l6-v2", "gpt2", "gpt-j-6b", "llama-2-7b", "llama-2-13b")
LARGE = ("llama-3.1-70b", "deepseek-v3")
GENERATED, PORTIONS = 200, 10


@pytest.fixture(scope="module")
def some(catalog: Catalog) -> Catalog:
    """Every fourteenth machine type, all ways to buy it: enough for a choice."""
    kept = {one.key for one in sorted(catalog.instance_types, key=lambda one: one.key)[::14]}
    return replace(catalog, offers=tuple(one for one in catalog.offers if (one.provider, one.instance_type) in kept))


@pytest.fixture(scope="module")
def large(catalog: Catalog) -> Catalog:
    """Machines that hold a large model, and more than one replica of a smaller one."""
    names = ("p5.48xlarge", "p6-b200.48xlarge", "p6-b300.48xlarge")
    return replace(catalog, offers=tuple(one for one in catalog.offers if one.instance_type in names))


def made_up(seed: int) -> Workload:
    """A service drawn at random: model, rate, lengths, promises, purchases, discounts, what comes besides machines."""
    random = np.random.default_rng(seed)
    model = str(random.choice(MODELS))
    text = model in MODELS[:2]
    prompt, answer = float(random.integers(16, 400)), float(random.integers(4, 120))
    requests = Requests(
        input_tokens=Lengths(mean=prompt, maximum=min(int(prompt * random.uniform(1, 3)) + 1, 512)),
        output_tokens=None if text else Lengths(mean=answer, maximum=int(answer * random.uniform(1, 3)) + 1),
    )
    promised = None if random.random() < 0.2 else float(random.uniform(0.3, 1.0) if text else random.uniform(1.0, 20.0))
    made = serve(
        model, requests=requests, rate_per_s=float(10 ** random.uniform(-1, 3)), p95_latency_s=promised,
        spare_replicas=int(random.integers(0, 3)), hours_per_month=float(random.choice([730.0, 730.0, 200.0])),
    )  # fmt: skip
    mixed = (("on_demand",), ("on_demand", "reserved_1y"), ("on_demand", "spot"))
    buy = BuyTerms(
        purchases=mixed[int(random.integers(0, 3))],  # type: ignore[arg-type]
        discount_percent=(("aws", 12.5),) if random.random() < 0.3 else (),
        committed_usd=(("gcp", 300.0),) if random.random() < 0.3 else (),
        disk_gb=float(random.choice([0.0, 200.0])),
        prices=OwnPrices(
            block_storage_usd_per_gb_month=0.08, load_balancer_usd_per_hour=0.025, object_storage_usd_per_gb_month=0.02,
            egress_usd_per_gb=0.09, egress_region_usd_per_gb=0.02,
        ),
    )  # fmt: skip
    limits = replace(made.constraints, max_gpus=16 if random.random() < 0.3 else None)
    team = Team(hourly_usd=100.0, setup_hours=(("vm", 40.0),), operation_hours=(("vm", 2.0),))
    place = DataPlace(provider="aws", region="us-east-1", size_gb=50.0)
    return replace(
        made, buy=buy, constraints=limits, team=team if random.random() < 0.3 else made.team,
        data=place if random.random() < 0.2 else None,
    )  # fmt: skip


def made_up_pools(seed: int) -> Workload:
    """The same with a large model and a promise of the first token and of each one after it, which two pools keep."""
    random = np.random.default_rng(1000 + seed)
    made = made_up(seed)
    assert isinstance(made.job, ServeJob)
    prompt, answer = float(random.integers(500, 3000)), float(random.integers(50, 400))
    job = replace(
        made.job, model=find_model(str(random.choice(LARGE))), rate_per_s=float(10 ** random.uniform(1, 3)),
        requests=Requests(
            input_tokens=Lengths(mean=prompt, maximum=int(2 * prompt)),
            output_tokens=Lengths(mean=answer, maximum=int(3 * answer)),
        ),
        p95_latency_s=None, p95_ttft_s=float(random.uniform(0.5, 3.0)), p95_tpot_s=float(random.uniform(0.02, 0.1)),
    )  # fmt: skip
    return replace(made, job=job, constraints=replace(made.constraints, max_gpus=None))


def question(job: ServeJob, curve: RateCurve | None = None) -> BreakEvenQuestion:
    demand = Demand(curve=curve or RateCurve(), hours_per_month=job.hours_per_month)
    return BreakEvenQuestion(demand=demand, policy=Autoscaling(spare=job.spare_replicas), verify=False)


def machines(options: Iterable[Option]) -> list[MachineOption]:
    return [one for one in options if isinstance(one, MachineOption)]


def first_machine(workload: Workload, catalog: Catalog) -> MachineOption | None:
    return next(iter(machines(make_plan(workload, catalog, calibrated=CALIBRATED).choices)), None)


def agrees(workload: Workload, catalog: Catalog) -> bool:
    """Whether some machine does it; every verb then says the same of it."""
    job = workload.job
    assert isinstance(job, ServeJob)
    planned = first_machine(workload, catalog)
    found = break_even(workload, catalog, [], question(job), calibrated=CALIBRATED)
    if planned is None:
        assert found.fleet is None
        return False
    assert found.fleet is not None
    fleet = found.fleet
    assert fleet.unit.option.identity == planned.identity
    assert (fleet.machines_mean, fleet.machines_peak) == (planned.count, planned.count)
    assert fleet.utilisation == planned.run.utilisation
    assert (fleet.usd, found.usd_per_month) == (planned.cost_usd.value, planned.cost_usd)
    built = month_fleet(fleet.unit, question(job).demand, job.rate_per_s, question(job).policy)
    assert built.machines_mean == planned.count
    assert built.usd == pytest.approx(planned.cost_usd.value, rel=1e-6, abs=0.02)
    return True


@pytest.mark.parametrize("name", SERVICES)
def test_examples_have_one_fleet(name: str, catalog: Catalog) -> None:
    """Each service of the examples has its plan's machines, price, interval and utilisation in `breakeven`."""
    assert agrees(load_workload(EXAMPLES / name, catalog=catalog), catalog)


@pytest.mark.parametrize("portion", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1, PORTIONS))])
def test_generated_services_have_one_fleet(portion: int, some: Catalog) -> None:
    """The same of 200 generated files, twenty in every run: models, promises, purchases, discounts, commitments,
    people, data, disks."""
    seeds = range(portion * GENERATED // PORTIONS, (portion + 1) * GENERATED // PORTIONS)
    assert sum(agrees(made_up(seed), some) for seed in seeds) >= GENERATED // PORTIONS // 2


@pytest.mark.parametrize("seeds", [range(32, 33), pytest.param(range(30), marks=pytest.mark.slow)])
def test_generated_pools_have_one_fleet(seeds: range, large: Catalog) -> None:
    """The same where prompts and answers have replicas of their own: the plan's fleet, and that of the formula."""
    made = [made_up_pools(seed) for seed in seeds]
    assert all(agrees(one, large) for one in made)
    fleets = [found.run.fleet for one in made if (found := first_machine(one, large))]
    assert sum(len(fleet.pools) == 2 for fleet in fleets if fleet) >= len(seeds) / 2


@pytest.mark.parametrize("seed", range(6))
def test_a_unit_bills_what_the_ledger_does(seed: int, some: Catalog) -> None:
    """Every option of a plan, built up again from its unit, costs its ledger's total."""
    workload = made_up(seed)
    job = workload.job
    assert isinstance(job, ServeJob)
    asked = question(job)
    for option in machines(make_plan(workload, some, calibrated=CALIBRATED).options):
        unit = replace(unit_of(option, workload, some.services, (), None, used=0.8), reserved_usd_per_hour=None)
        fleet = month_fleet(unit, asked.demand, job.rate_per_s, asked.policy)
        assert fleet.machines_mean == option.count, option.identity
        assert fleet.usd == pytest.approx(option.cost_usd.value, rel=1e-6, abs=0.02), option.identity


@pytest.mark.parametrize("name", SERVICES)
def test_a_portfolio_of_one_has_the_plans_fleet(name: str, catalog: Catalog) -> None:
    """The cheapest candidate of a portfolio is the plan's best option, at the plan's cost."""
    workload = load_workload(EXAMPLES / name, catalog=catalog)
    portfolio = Portfolio(name="one", as_of=workload.as_of, entries=(PortfolioEntry(name=name, workload=workload),))
    plans = entry_plans(portfolio.entries[0], portfolio, catalog, None)
    options = [option for plan in plans for option in plan.choices]
    cheapest = candidates_of(0, portfolio.entries[0], options, portfolio, catalog)[0]
    best = make_plan(workload, catalog, calibrated=CALIBRATED).best
    assert best is not None
    assert (cheapest.option.identity, cheapest.usd) == (best.identity, best.cost_usd.value)


def test_right_sizing_asks_the_plan_of_the_same_machine(catalog: Catalog) -> None:
    """A machine that right-sizing accepts for a workload is an option of its plan, with one machine."""
    workload = replace(load_workload(EXAMPLES / SERVICES[2], catalog=catalog), team=Team())
    planned = make_plan(workload, catalog, calibrated=CALIBRATED)
    for option in machines(planned.options)[:5]:
        offers = [
            one for one in catalog.offers_named(option.provider, option.instance_type)
            if (one.region, one.purchase) == (option.region, option.purchase)
        ]  # fmt: skip
        alone = plan_alone(workload, offers[0], catalog, machines=option.count)
        same = machines(alone.options)[0]
        assert (same.count, same.cost_usd) == (option.count, option.cost_usd)


def test_a_comparison_shows_the_plans_cost_of_own_machines(catalog: Catalog) -> None:
    """In the comparison of the examples, AWS machines of one's own cost what the plan on AWS machines says."""
    found = compare(EXAMPLES / "compare/bert-databricks-vs-bedrock.tonnage.yaml", catalog=catalog)
    row = next(one for one in found.totals["self-managed-aws"].rows if one.kind == "serve")
    workload = load_workload(EXAMPLES / SERVICES[2], catalog=catalog)
    limits = replace(workload.constraints, providers=("aws",), platforms=("vm",))
    best = make_plan(replace(workload, constraints=limits), catalog, calibrated=CALIBRATED).best
    assert best is not None
    assert row.option is not None
    assert (row.option.identity, row.usd_per_month) == (best.identity, best.cost_usd)


def test_an_autoscaled_day_is_below_the_standing_fleet_and_above_its_mean(catalog: Catalog) -> None:
    """With a shape: the busy rate is the file's, the peak is no fewer machines than the plan's, the mean fewer."""
    workload = replace(load_workload(EXAMPLES / SERVICES[1], catalog=catalog))
    job = workload.job
    assert isinstance(job, ServeJob)
    found = break_even(workload, catalog, [], question(job, RateCurve.of_load(0.3)), calibrated=CALIBRATED)
    assert found.fleet is not None
    assert found.standing is not None
    planned = first_machine(workload, catalog)
    assert planned is not None
    assert found.standing.usd == planned.cost_usd.value
    assert found.fleet.machines_mean < found.fleet.machines_peak
    assert found.requests_per_month == pytest.approx(0.3 * job.rate_per_s * 3600 * 730, rel=1e-3)


def test_the_formula_of_fleets() -> None:
    """12 requests a second on replicas of 4: 12 / 3.2 -> 4 replicas, and one spare: 5; two a machine: 3 machines."""
    replicas = replicas_for(12.0, 4.0, used=0.8, spare=1)
    assert (float(replicas), float(machines_for(replicas, 2.0))) == (5.0, 3.0)
    assert np.isnan(replicas_for(12.0, np.nan, used=0.8, spare=1))
