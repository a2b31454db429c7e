"""Unlike offers in one ranking: platforms, commitments, discounts, data, people, and tokens beside machines."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal

import numpy as np
import pytest

from tonnage.catalog import Catalog
from tonnage.catalog.expected_prices import ExpectedPrices
from tonnage.catalog.services import ServicePrices
from tonnage.errors import InputError
from tonnage.planning import make_plan
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.limits import check_limits
from tonnage.planning.offers.choices import choose_deals
from tonnage.planning.offers.market import admit_offers
from tonnage.planning.offers.spot_columns import spot_columns
from tonnage.planning.options import OptionBuilder
from tonnage.planning.priced_runs import join
from tonnage.planning.reasons.changes import Include
from tonnage.planning.reasons.misses import NeverDoneMiss, SetAsidePriceMiss, UnpricedMiss
from tonnage.planning.reasons.notes import UnpricedServiceNote
from tonnage.planning.reasons.risks import CommitmentRisk, EstimatedFeeRisk, OddPremiumRisk
from tonnage.planning.sized_machines import size_job
from tonnage.planning.terms import terms_of
from tonnage.pricing.rates import rates_of
from tonnage.workload.jobs import (
    BuyTerms,
    Constraints,
    DataPlace,
    OwnPrices,
    Schedule,
    Team,
    Workload,
)

from .conftest import T4, Maker, lines, pick


def test_a_databricks_job_is_the_machine_and_its_units(catalog: Catalog, make_train: Maker) -> None:
    """g4dn.xlarge uses 0.71 DBU an hour at $0.15: the VM's lines as they are, and one line of units."""
    plan = make_plan(make_train(constraints=T4), catalog)
    plain, managed = pick(plan, "g4dn.xlarge"), pick(plan, "g4dn.xlarge", platform="databricks")
    units = lines(managed)["Databricks units"]
    hours = sum(line.quantity for line in plain.ledger.lines)
    assert units.quantity == pytest.approx(hours * Decimal("0.71"), abs=Decimal("1e-5"))
    assert (units.usd_per_unit, units.unit, units.billed_by) == (Decimal("0.15"), "DBU", "databricks")
    assert managed.ledger.total_usd == plain.ledger.total_usd + units.usd
    assert managed.time_s == plain.time_s


def test_sagemaker_is_a_premium_over_the_plain_machine(catalog: Catalog, make_train: Maker) -> None:
    """ml.g4dn.2xlarge costs $0.94 where the machine costs $0.752: the difference stands in a line of its own."""
    managed = pick(make_plan(make_train(constraints=T4), catalog), "g4dn.2xlarge", platform="sagemaker")
    premium = lines(managed)["SageMaker premium over the plain machine"]
    assert premium.usd_per_unit == Decimal("0.188")
    assert managed.usd_per_instance_hour == pytest.approx(0.94)


def test_a_premium_out_of_line_is_said(catalog: Catalog, make_train: Maker) -> None:
    """An ml. price at twice the usual ratio is doubted: the one machine and no other."""
    dear = tuple(
        replace(one, usd_per_instance_hour=2 * one.usd_per_instance_hour) if one.instance_type == "g5.xlarge" else one
        for one in catalog.managed.ml_instances
    )
    changed = replace(catalog, managed=replace(catalog.managed, ml_instances=dear))
    plan = make_plan(make_train(constraints=Constraints(platforms=("sagemaker",))), changed)
    doubted = {o.instance_type for o in plan.options if any(isinstance(risk, OddPremiumRisk) for risk in o.risks)}
    assert doubted == {"g5.xlarge"}


def test_a_premium_across_a_price_cut_is_unknown(catalog: Catalog, make_train: Maker) -> None:
    """ml.p5.48xlarge was read before AWS's cut of June 2025, the machine after it: no premium is made of the two.

    It is refused with the two days; asked for by name its premium is an estimate from other machines."""
    unasked = make_plan(make_train(), catalog)
    out = {r.instance_type: r for r in unasked.refused if r.platform == "sagemaker" and r.binding == "price"}
    assert {"p4d.24xlarge", "p5.48xlarge"} <= set(out)
    miss = out["p5.48xlarge"].miss
    assert isinstance(miss, UnpricedMiss)
    assert miss.apart is not None
    assert (miss.apart.first_on, miss.apart.cut_on) == (date(2025, 1, 26), date(2025, 6, 5))
    asked = make_plan(make_train(constraints=Constraints(platforms=("sagemaker",))), catalog)
    plain = [o for o in asked.options if o.purchase == "on_demand" and o.instance_type in ("p5.48xlarge", "g5.xlarge")]
    guessed = {o.instance_type for o in plain if any(isinstance(risk, EstimatedFeeRisk) for risk in o.risks)}
    assert guessed == {"p5.48xlarge"}
    assert {o.instance_type for o in plain} == {"p5.48xlarge", "g5.xlarge"}


def test_vertex_adds_its_fee_where_it_is_known(catalog: Catalog, make_train: Maker) -> None:
    """A fifth of the machine's price on a2-highgpu-8g in us-central1; the price of others is missing, and estimated
    where Vertex AI is asked for by name."""
    asked = make_plan(make_train(constraints=Constraints(platforms=("vertex",))), catalog)
    read = [o for o in asked.options if not any(isinstance(risk, EstimatedFeeRisk) for risk in o.risks)]
    [option] = read
    assert (option.instance_type, option.region) == ("a2-highgpu-8g", "us-central1")
    assert option.usd_per_instance_hour == pytest.approx(1.2 * 29.38708, rel=1e-6)
    missing = [r for r in make_plan(make_train(), catalog).refused if r.platform == "vertex" and r.binding == "price"]
    assert {r.instance_type for r in missing} >= {"g2-standard-4", "a3-highgpu-8g"}
    assert {o.instance_type for o in asked.options} >= {"g2-standard-4", "a3-highgpu-8g"}


def test_a_missing_price_is_refused_never_zero(catalog: Catalog, make_train: Maker) -> None:
    """Each machine that runs the work on a cloud with Databricks is an option there, or refused for its price."""
    plan = make_plan(make_train(), catalog)
    clouds = ("aws", "azure", "gcp")
    ran = {(o.provider, o.instance_type) for o in plan.options if o.platform == "vm" and o.provider in clouds}
    sold = {(o.provider, o.instance_type) for o in plan.options if o.platform == "databricks"}
    out = {(r.provider, r.instance_type) for r in plan.refused if r.platform == "databricks" and r.binding == "price"}
    assert sold | out >= ran
    assert not sold & out
    assert all(o.ledger.lines[-1].usd > 0 for o in plan.options if o.platform != "vm")


def test_platforms_can_be_chosen(catalog: Catalog, make_train: Maker) -> None:
    """With `platforms: [databricks]` all options run there; others are refused with the key that lifts it."""
    plan = make_plan(make_train(constraints=Constraints(platforms=("databricks",))), catalog)
    assert {o.platform for o in plan.options} == {"databricks"}
    refused = [r for r in plan.refused if r.binding == "platform"]
    assert {r.platform for r in refused} >= {"vm", "sagemaker"}
    assert refused[0].miss.lifted_by == (Include(key="platforms", value=refused[0].platform),)


RESERVED = BuyTerms(purchases=("on_demand", "reserved_1y"))


def test_a_commitment_for_one_job_costs_its_term(catalog: Catalog, make_train: Maker) -> None:
    """g4dn.xlarge reserved for a year is $0.331 x 8,760 h for a single job; kept busy it is cheaper than on demand."""
    alone = pick(make_plan(make_train(constraints=T4, buy=RESERVED), catalog), "g4dn.xlarge", "reserved_1y")
    assert alone.cost_usd.value == pytest.approx(0.331 * 8760, abs=0.01)
    assert "committed and not used" in lines(alone)
    [commitment] = [risk for risk in alone.risks if isinstance(risk, CommitmentRisk)]
    assert (commitment.years, commitment.usd) == (1, pytest.approx(0.331 * 8760))
    for buy, factor in ((replace(RESERVED, reserved_owned=True), 1), (replace(RESERVED, reserved_utilization=0.5), 2)):
        plan = make_plan(make_train(constraints=T4, buy=buy), catalog)
        shared, plain = pick(plan, "g4dn.xlarge", "reserved_1y"), pick(plan, "g4dn.xlarge")
        assert shared.cost_usd.value == pytest.approx(plain.cost_usd.value * 0.331 / 0.526 * factor, abs=2e-4)


def test_a_service_pays_its_whole_month(catalog: Catalog, make_serve: Maker) -> None:
    """At 176 h a month a reservation pays 730 h: dearer than on demand; around the clock it is cheaper."""
    for hours, cheaper in ((176.0, False), (730.0, True)):
        workload = make_serve("gpt2", rate_per_s=1.0, hours_per_month=hours, constraints=T4, buy=RESERVED)
        plan = make_plan(workload, catalog)
        reserved, plain = pick(plan, "g4dn.xlarge", "reserved_1y"), pick(plan, "g4dn.xlarge")
        assert reserved.cost_usd.value == pytest.approx(0.331 * 730 * reserved.count, abs=0.01)
        assert plain.cost_usd.value == pytest.approx(0.526 * hours * plain.count, abs=0.01)
        assert (reserved.cost_usd.value < plain.cost_usd.value) is cheaper


def test_set_aside_prices_are_refused_with_the_reason(catalog: Catalog, make_train: Maker) -> None:
    """A P4d reservation read before the price cut is no option: what it stood on has moved."""
    plan = make_plan(make_train(buy=RESERVED), catalog)
    [refusal] = [r for r in plan.refused if (r.instance_type, r.purchase) == ("p4d.24xlarge", "reserved_1y")]
    assert isinstance(refusal.miss, SetAsidePriceMiss)
    assert "on-demand was $32.7726" in refusal.miss.why


def test_the_most_specific_discount_counts(catalog: Catalog, make_train: Maker) -> None:
    """All of AWS, a family, a machine, a platform: each price gets one discount, the nearest one."""
    discounts = (("aws", 10.0), ("aws/g4dn", 20.0), ("aws/g4dn.xlarge", 30.0), ("sagemaker", 5.0), ("databricks", 50.0))
    buy = BuyTerms(purchases=("on_demand",), discount_percent=discounts)
    plan = make_plan(make_train(constraints=replace(T4, gpus=()), buy=buy), catalog)
    assert pick(plan, "g4dn.xlarge").usd_per_instance_hour == pytest.approx(0.526 * 0.7)
    assert pick(plan, "g4dn.2xlarge").usd_per_instance_hour == pytest.approx(0.752 * 0.8)
    assert pick(plan, "g5.xlarge").usd_per_instance_hour == pytest.approx(1.006 * 0.9)
    units = lines(pick(plan, "g4dn.xlarge", platform="databricks"))["Databricks units"]
    assert (units.discount_percent, units.usd_per_unit) == (50, Decimal("0.075"))
    for name, price in (("g5.xlarge", 1.4084), ("g4dn.xlarge", 0.7364)):  # an ml. machine is not the plain one
        assert pick(plan, name, platform="sagemaker").usd_per_instance_hour == pytest.approx(price * 0.95)


def test_committed_spend_is_free_up_to_its_amount(catalog: Catalog, make_train: Maker) -> None:
    """What is paid anyway comes off its provider's bill, never more than the bill, and changes the ranking."""
    buy = BuyTerms(purchases=("on_demand",), committed_usd=(("aws", 1000.0),))
    plan = make_plan(make_train(buy=buy), catalog)
    assert plan.best is not None
    assert (plan.best.provider, plan.best.cost_usd.value) == ("aws", 0.0)
    databricks = pick(plan, "g4dn.xlarge", platform="databricks")
    assert databricks.ledger.total_usd == lines(databricks)["Databricks units"].usd
    assert all(o.cost_usd.value > 0 for o in plan.options if o.provider != "aws")


def test_data_pays_to_leave(catalog: Catalog, make_train: Maker) -> None:
    """100 GB in us-east-1: free there, a line elsewhere at the stated price, refused where none is stated."""
    data = DataPlace(provider="aws", region="us-east-1", size_gb=100)
    prices = OwnPrices(egress_usd_per_gb=0.09, object_storage_usd_per_gb_month=0.02)
    workload = replace(make_train(buy=BuyTerms(prices=prices)), data=data)
    bare = replace(catalog, services=ServicePrices())
    plan = make_plan(workload, bare)
    for option in plan.options:
        moved = lines(option).get("data out of aws")
        assert (moved is None) == (option.provider == "aws")
        assert option.provider != "aws" or option.region == "us-east-1"
        if moved is not None:
            assert moved.usd == 9
    stranded = [r for r in plan.refused if isinstance(r.miss, UnpricedMiss) and r.miss.size_gb == 100]
    assert stranded
    assert all(r.binding == "price" and r.provider == "aws" for r in stranded)
    silent = make_plan(replace(workload, buy=BuyTerms()), bare)
    assert {o.provider for o in silent.options} == {"aws"}
    assert UnpricedServiceNote(service="object storage", sellers=()) in silent.notes


def test_catalog_prices_of_services_stand_in_for_stated_ones(catalog: Catalog, make_train: Maker) -> None:
    """100 GB leave us-east-1 for 9 USD (100 x 0.09), for another region for 2 (100 x 0.02), the page as source."""
    data = DataPlace(provider="aws", region="us-east-1", size_gb=100)
    plan = make_plan(replace(make_train(buy=BuyTerms(disk_gb=73.0)), data=data), catalog)
    abroad = next(o for o in plan.options if o.provider == "gcp")
    moved = lines(abroad)["data out of aws"]
    assert (moved.usd, moved.billed_by, moved.read_on) == (9, "aws", None)
    assert moved.source.startswith("https://aws.amazon.com/ec2/pricing/")
    home = next(o for o in plan.options if (o.provider, o.region) == ("aws", "us-east-1"))
    disks = lines(home)["disks"]
    assert disks.usd_per_unit == Decimal("0.08")
    assert "data out of aws" not in lines(home)
    for option in plan.options:
        inside = option.provider == "aws" and option.region != "us-east-1"
        assert not inside or lines(option)["data out of aws"].usd == 2
        assert sum(line.usd for line in option.ledger.lines) == option.ledger.total_usd
    assert UnpricedServiceNote(service="block storage", sellers=("aws", "gcp", "azure")) in plan.notes


def test_people_count_by_platform(catalog: Catalog, make_train: Maker, make_serve: Maker) -> None:
    """Set-up and operation at the team's rate; a service bears a month's part of its set-up."""
    team = Team(hourly_usd=100.0, setup_hours=(("databricks", 1.0), ("vm", 12.0)), operation_hours=(("vm", 2.0),))
    plan = make_plan(replace(make_train(constraints=replace(T4, trust="any")), team=team), catalog)
    people = lines(pick(plan, "g4dn.xlarge"))
    assert (people["people: set-up"].usd, people["people: operation"].usd) == (1200, 200)
    assert plan.best is not None
    assert plan.best.platform == "sagemaker"  # no hours are stated for it
    service = make_plan(replace(make_serve("gpt2", rate_per_s=1.0, constraints=T4), team=team), catalog)
    assert lines(pick(service, "g4dn.xlarge"))["people: set-up"].usd == 100


def test_a_scheduled_job_starts_every_day(catalog: Catalog, make_train: Maker) -> None:
    """On one hour a day the same work takes days and a start-up each day."""
    buy = BuyTerms(purchases=("on_demand",), startup_s=600.0)
    whole = pick(make_plan(make_train(constraints=T4, buy=buy, epochs=30), catalog), "g4dn.xlarge")
    daily = replace(buy, schedule=Schedule(hours_per_day=1, days_per_month=22))
    cut = pick(make_plan(make_train(constraints=T4, buy=daily, epochs=30), catalog), "g4dn.xlarge")
    assert whole.time_s is not None
    assert cut.time_s is not None
    starts = round(float(lines(cut)["start-up"].quantity) * 6, 4)  # the ledger counts millionths of an hour
    assert starts == round(starts)
    assert starts >= 2
    assert cut.time_s.value > (starts - 1) * 86_400
    assert lines(cut)["compute"].quantity == lines(whole)["compute"].quantity


def everything(workload: Workload) -> Workload:
    """Every kind of line in play at once."""
    buy = BuyTerms(
        purchases=("on_demand", "spot", "reserved_1y", "reserved_3y"), reserved_utilization=0.7, idle_s=600.0,
        discount_percent=(("aws", 7.5), ("gcp/a2-highgpu", 12.5)), committed_usd=(("gcp", 0.05), ("databricks", 0.01)),
        disk_gb=100.0, schedule=Schedule(hours_per_day=6, days_per_month=20),
        prices=OwnPrices(
            egress_usd_per_gb=0.09, egress_region_usd_per_gb=0.02, object_storage_usd_per_gb_month=0.02,
            block_storage_usd_per_gb_month=0.08, load_balancer_usd_per_hour=0.025,
        ),
    )  # fmt: skip
    data = DataPlace(provider="gcp", region="us-central1", size_gb=50)
    team = Team(hourly_usd=90.0, setup_hours=(("databricks", 0.1), ("vm", 0.2)))
    return replace(workload, buy=buy, data=data, team=team)


def test_ledgers_sum_and_lie_in_their_interval_with_everything_on(catalog: Catalog, make_train: Maker) -> None:
    """With every kind of line in play the lines sum to the cost, which lies in its interval and orders the ranking."""
    workload = everything(make_train())
    plan = make_plan(workload, catalog)
    assert {o.purchase for o in plan.options} == set(workload.buy.purchases)
    for option in plan.options:
        assert sum(line.usd for line in option.ledger.lines) == option.ledger.total_usd
        assert Decimal(str(option.cost_usd.value)) == option.ledger.total_usd
        assert option.cost_usd.low <= option.cost_usd.value <= option.cost_usd.high
    order = [(not option.relied_on, option.cost_usd.value) for option in plan.options]
    assert order == sorted(order)


@pytest.mark.parametrize("kind", ["train", "serve"])
def test_columns_and_ledgers_agree(kind: str, catalog: Catalog, make_train: Maker, make_serve: Maker) -> None:
    """The totals that choose (columns) are those of the ledgers that are shown, to the rounding of their lines."""
    workload = everything(make_train(epochs=20) if kind == "train" else make_serve("gpt2", rate_per_s=5.0))
    instances = {instance.key: instance for instance in catalog.instance_types}
    offers = admit_offers(workload, catalog).offers
    machines = [instances[key] for key in sorted({(o.provider, o.instance_type) for o in offers})]
    sized_machines = size_job(workload, catalog, machines, CalibratedModel.of(None))
    chosen = choose_deals(offers, instances, catalog, workload, sized_machines.index).deals
    deals = [deal for deal in chosen if (deal.offer.provider, deal.offer.instance_type) in sized_machines.index]
    machine = np.array(
        [sized_machines.index[deal.offer.provider, deal.offer.instance_type] for deal in deals], dtype=np.intp
    )
    rates, startup_s = rates_of(deals, catalog, workload), terms_of(workload.buy).startup_s
    spots = spot_columns(deals, instances, workload, startup_s)
    priced = join(deals, machine, rates, sized_machines.sized, startup_s=startup_s, spots=spots, workload=workload)
    rows = np.flatnonzero(np.isfinite(priced.wall_s))[::7]
    builder = OptionBuilder(
        workload=workload, deals=deals, instances=instances, sized=sized_machines.sized, priced=priced,
        startup_s=startup_s, spots=spots, service=kind == "serve", max_age_days=180, expected=ExpectedPrices(catalog),
        vendors={}, services=catalog.services, capacity={},
    )  # fmt: skip
    options = builder.built(rows, np.zeros(len(priced.run), dtype=bool))
    assert {o.platform for o in options} >= ({"vm", "databricks", "sagemaker"} if kind == "train" else {"vm"})
    for row, option in zip(rows, options, strict=True):
        assert option.cost_usd.value == pytest.approx(priced.cost_usd[row], rel=1e-6, abs=2e-3)


def test_a_discount_never_raises_a_cost(catalog: Catalog, make_train: Maker) -> None:
    """With a discount each of its provider's machines costs less, and nobody else's another sum."""
    before = make_plan(make_train(), catalog)
    after = make_plan(make_train(buy=BuyTerms(discount_percent=(("aws", 15.0),))), catalog)
    costs = {(o.provider, o.instance_type, o.purchase, o.platform): o.cost_usd.value for o in after.options}
    assert {option.provider == "aws" for option in before.options} == {True, False}
    for option in before.options:
        now = costs[option.provider, option.instance_type, option.purchase, option.platform]
        assert now < option.cost_usd.value if option.provider == "aws" else now == option.cost_usd.value


def test_the_least_billed_is_that_of_machines_that_may_be_used(catalog: Catalog, make_train: Maker) -> None:
    """A start-up of the cheapest admitted GPU machine; a spend that is committed anyway may pay for all of it."""
    dear = Constraints(providers=("lambda",), budget_usd=0.02)
    with pytest.raises(InputError, match=r"\$0.057 for 300 s of lambda gpu_1x_rtx6000"):
        check_limits(make_train(constraints=dear), catalog)
    check_limits(make_train(constraints=dear, buy=BuyTerms(discount_percent=(("lambda", 90.0),))), catalog)
    check_limits(make_train(constraints=dear, buy=BuyTerms(committed_usd=(("lambda", 5.0),))), catalog)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("per_hour", [60.0, 1000.0, 1e6])
def test_spot_that_never_gets_on_is_refused(catalog: Catalog, make_train: Maker, per_hour: float) -> None:
    """Interrupted faster than it starts, work on spot is never done: no option, no warning, and the reason."""
    buy = BuyTerms(purchases=("spot",), interruptions_per_hour=per_hour)
    plan = make_plan(make_train(buy=buy, constraints=Constraints(providers=("aws",))), catalog)
    spot = [one for one in plan.refused if one.purchase == "spot" and one.binding == "interruptible"]
    assert bool(plan.options) != bool(spot)
    assert all(np.isfinite(one.cost_usd.high) for one in plan.options)
    if per_hour >= 1000:
        assert all(isinstance(one.miss, NeverDoneMiss) for one in spot)
