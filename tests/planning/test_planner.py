"""Plans over the built-in catalog: the arithmetic, the constraints, the reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from tonnage.catalog import Catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.planning import Plan, make_plan
from tonnage.planning.reasons.changes import LeaveOut, MoreNodes, MovePromise, SetField, UseFp16
from tonnage.workload.jobs import BuyTerms, Constraints, Workload

Maker = Callable[..., Workload]


def test_options_are_ranked_by_cost_and_ledgers_sum(catalog: Catalog, make_train: Maker) -> None:
    """Ranks count up, cost never falls among those relied on, which come first, nor among the others, and each cost is
    its ledger's total inside its own interval."""
    options = make_plan(make_train(), catalog).options
    assert [option.rank for option in options] == list(range(1, len(options) + 1))
    order = [(not option.relied_on, option.cost_usd.value) for option in options]
    assert order == sorted(order)
    for option in options:
        assert Decimal(str(option.cost_usd.value)) == option.ledger.total_usd
        assert option.cost_usd.low <= option.cost_usd.value <= option.cost_usd.high
        assert option.time_s is not None
        assert 0 < option.time_s.low <= option.time_s.value <= option.time_s.high


def test_every_priced_machine_is_an_option_or_refused(catalog: Catalog, make_train: Maker) -> None:
    """Nothing vanishes: each (machine, purchase) of the catalog appears once, ranked or refused, and unpriced machines
    are refused as such; and each is on at most one side on any platform."""
    plan = make_plan(make_train(), catalog)
    both = [(o.provider, o.instance_type, o.purchase, o.platform) for o in (*plan.options, *plan.refused)]
    assert len(set(both)) == len(both)
    ranked = [(o.provider, o.instance_type, o.purchase) for o in plan.options if o.platform == "vm"]
    refused = [(r.provider, r.instance_type, r.purchase) for r in plan.refused if r.platform == "vm"]
    priced = {(o.provider, o.instance_type, o.purchase) for o in catalog.offers}
    assert len(set(ranked)) == len(ranked)
    assert set(ranked) | {key for key in refused if key[2] is not None} == priced
    assert not set(ranked) & set(refused)
    unpriced = {r.instance_type for r in plan.refused if r.binding == "no price"}
    assert unpriced == {i.name for i in catalog.instance_types if not catalog.offers_of(i)}


def test_on_demand_cost_is_price_times_hours(catalog: Catalog, make_train: Maker) -> None:
    """The cost of an on-demand option is its price x machines x (start-up and run) hours, to a cent."""
    workload = make_train(buy=BuyTerms(purchases=("on_demand",), startup_s=600.0))
    options = [o for o in make_plan(workload, catalog).options if o.provider in ("aws", "gcp", "azure", "runpod")]
    assert {option.platform for option in options} == {"vm", "databricks", "sagemaker", "vertex"}
    for option in options:  # of providers that bill by the second
        assert option.time_s is not None
        expected = option.usd_per_instance_hour * option.count * option.time_s.value / 3600
        assert option.cost_usd.value == pytest.approx(expected, abs=0.01)
        hours = {line.what.split(",")[0]: float(line.quantity) for line in option.ledger.lines}
        assert hours["start-up"] == pytest.approx(option.count / 6, abs=1e-5)


def test_spot_pays_for_redone_work(catalog: Catalog, make_train: Maker) -> None:
    """At the same price spot costs more than on-demand, because work is done again and saved."""
    offer = next(o for o in catalog.offers if o.instance_type == "g5.xlarge" and o.region == "us-east-1")
    twins = (replace(offer, purchase="on_demand"), replace(offer, purchase="spot"))
    workload = make_train("bert-large-uncased", epochs=30, constraints=Constraints(platforms=("vm",)))
    plan = make_plan(workload, replace(catalog, offers=twins))
    by_purchase = {option.purchase: option for option in plan.options}
    assert by_purchase["spot"].cost_usd.value > by_purchase["on_demand"].cost_usd.value
    what = [line.what.split(",")[0] for line in by_purchase["spot"].ledger.lines]
    assert what == ["compute", "start-up", "saving checkpoints", "re-done work and restarts"]


CONSTRAINTS = [
    (Constraints(providers=("gcp",)), lambda o: o.provider == "gcp", "provider"),
    (Constraints(regions=("us-east-1",)), lambda o: o.region in ("us-east-1", ""), "region"),
    (Constraints(interruptible=False), lambda o: o.purchase != "spot", "interruptible"),
    (Constraints(gpus=(parse_gpu_filter("T4"),)), lambda o: o.gpu == "T4", "gpu"),
    (Constraints(gpus=(parse_gpu_filter("A100:8"),)), lambda o: o.gpu.startswith("A100") and o.gpu_count == 8, "gpu"),
    (Constraints(max_gpus=1), lambda o: o.gpu_count * o.count == 1, "layout"),
    (Constraints(budget_usd=1.0), lambda o: o.cost_usd.value <= 1.0, "budget"),
    (Constraints(deadline_s=600.0), lambda o: o.time_s.value <= 600.0, "deadline"),
    (Constraints(residency=("eu",)), lambda _: True, "residency"),
]  # fmt: skip


@pytest.mark.parametrize(("constraints", "holds", "binding"), CONSTRAINTS)
def test_constraints_hold(
    constraints: Constraints, holds: Callable[..., bool], binding: str, catalog: Catalog, make_train: Maker
) -> None:
    """Every option meets the constraint, some candidate is refused for it, and both sides are non-empty."""
    plan = make_plan(make_train(constraints=constraints), catalog)
    assert plan.options
    assert all(holds(option) for option in plan.options)
    refused = [refusal for refusal in plan.refused if refusal.binding == binding]
    assert refused
    assert all(refusal.miss.lifted_by for refusal in refused)


def test_residency_keeps_data_in_the_area(catalog: Catalog, make_train: Maker) -> None:
    """With `residency: eu` every option is in a region that the catalog places in the EU."""
    plan = make_plan(make_train(constraints=Constraints(residency=("eu",))), catalog)
    for option in plan.options:
        region = catalog.region(option.provider, option.region)
        assert region is not None
        assert region.area == "eu"


def test_a_memory_refusal_names_the_change_that_fits(catalog: Catalog, make_train: Maker) -> None:
    """A 65B full fine-tune on one 80 GB GPU is refused for memory; applying the change it names makes it fit."""
    one_gpu = Constraints(gpus=(parse_gpu_filter("80GB:1"),), max_nodes=1)
    workload = make_train("llama-65b", constraints=one_gpu)
    plan = make_plan(workload, catalog)
    assert plan.best is None
    alone = next(r for r in plan.refused if r.instance_type == "1x_H100-SXM_SECURE")  # no network is published
    linked = next(r for r in plan.refused if r.instance_type == "p5.4xlarge")
    assert (alone.binding, alone.miss.lifted_by) == ("memory", (SetField(key="method", value="qlora"),))
    [more] = linked.miss.lifted_by
    assert linked.binding == "memory"
    assert isinstance(more, MoreNodes)
    adapters = replace(workload, job=replace(workload.job, method="qlora"))  # type: ignore[arg-type]
    assert any(o.instance_type == alone.instance_type for o in make_plan(adapters, catalog).options)
    nodes = replace(workload, constraints=replace(one_gpu, max_nodes=more.max_nodes))
    assert any(o.instance_type == "p5.4xlarge" for o in make_plan(nodes, catalog).options)


def test_nearest_misses_are_the_nearest(catalog: Catalog, make_train: Maker) -> None:
    """The three nearest misses name different GPUs and lack less than every other refusal of a figure."""
    plan = make_plan(
        make_train("llama-65b", constraints=Constraints(max_nodes=1, gpus=(parse_gpu_filter("..48GB"),))),
        catalog,
    )
    assert plan.options == ()
    misses = [one.refusal for one in plan.nearest_misses]
    assert len(misses) == 3
    assert len({miss.gpu for miss in misses}) == 3
    assert misses[0].shortfall == min(refusal.shortfall for refusal in plan.refused)


def test_discounts_change_price_and_rank(catalog: Catalog, make_train: Maker) -> None:
    """Ninety per cent off one provider makes it win, at a tenth of its list price."""
    workload = make_train(buy=BuyTerms(purchases=("on_demand",), discount_percent=(("gcp", 90.0),)))
    best = make_plan(workload, catalog).best
    assert best is not None
    assert best.provider == "gcp"
    offers = catalog.offers_of(catalog.instance_type(best.instance_type))
    listed = {o.usd_per_instance_hour for o in offers if (o.region, o.purchase) == (best.region, "on_demand")}
    assert best.usd_per_instance_hour == pytest.approx(float(listed.pop()) / 10)


def test_objectives_agree_on_the_front(catalog: Catalog, make_train: Maker) -> None:
    """The cheapest and the fastest plan both lie on the Pareto front, whose options no other option beats twice."""
    workload = make_train()
    plans: dict[str, Plan] = {name: make_plan(workload, catalog, objective=name) for name in ("cost", "time", "pareto")}  # type: ignore[arg-type]
    front = [o for o in plans["pareto"].options if o.pareto]
    assert plans["pareto"].options[: len(front)] == tuple(front)
    assert plans["time"].options[0].time_s.value == min(o.time_s.value for o in front)  # type: ignore[union-attr]
    assert plans["cost"].options[0].cost_usd.value == pytest.approx(min(o.cost_usd.value for o in front), abs=1e-3)
    for a in front:
        assert not any(b.cost_usd.value < a.cost_usd.value - 1e-3 and b.time_s.value < a.time_s.value for b in front)  # type: ignore[union-attr]


def test_a_service_keeps_its_promise(catalog: Catalog, make_serve: Maker) -> None:
    """Each fleet carries the rate, within the promised p95, without spot (no spare replica)."""
    plan = make_plan(make_serve(), catalog)
    assert plan.horizon == "month"
    assert plan.options
    for option in plan.options:
        rates = dict(option.run.rates)
        assert rates["requests_per_s"].value >= 20.0
        assert option.run.latency_p95_s is not None
        assert option.run.latency_p95_s.value <= 5.0
        assert option.purchase == "on_demand"
        assert option.cost_usd.value == pytest.approx(option.usd_per_instance_hour * option.count * 730, abs=0.01)


def test_an_impossible_promise_says_what_could_be_promised(catalog: Catalog, make_serve: Maker) -> None:
    """A 10 ms p95 for 50 tokens of a 7B model fits nowhere; the nearest miss names a promise that then holds."""
    plan = make_plan(make_serve(p95_latency_s=0.010), catalog)
    assert not plan.options
    miss = min((r for r in plan.refused if r.binding == "latency"), key=lambda r: r.shortfall)
    promise = miss.miss.lifted_by[0]
    assert isinstance(promise, MovePromise)
    assert make_plan(make_serve(p95_latency_s=promise.promised_s, rate_per_s=0.01), catalog).options


def test_precision_auto_uses_fp16_where_there_is_no_bf16(catalog: Catalog, make_train: Maker) -> None:
    """A T4 trains in fp16, an A100 in bf16, under `auto`; under `bf16` the T4 is refused for want of a rate."""
    precisions = {o.gpu: dict(o.run.layout_fields)["precision"] for o in make_plan(make_train(), catalog).options}
    assert precisions["T4"] == "fp16"
    assert precisions["A100-80GB-SXM"] == "bf16"
    explicit = make_plan(make_train(precision="bf16"), catalog)
    refusal = next(r for r in explicit.refused if r.gpu == "T4")
    assert (refusal.binding, refusal.miss.lifted_by) == ("rate", (UseFp16(),))


def test_same_input_same_plan(catalog: Catalog, make_train: Maker) -> None:
    """Planning is deterministic."""
    assert make_plan(make_train(), catalog) == make_plan(make_train(), catalog)


def test_relaxations_name_the_single_constraint_that_blocks(catalog: Catalog, make_train: Maker) -> None:
    """When one constraint rules everything out, taking it away is named with the option that this gives."""
    blocked = make_train("llama-65b", constraints=Constraints(gpus=(parse_gpu_filter("T4"),)))
    plan = make_plan(blocked, catalog)
    assert not plan.options
    best = make_plan(replace(blocked, constraints=Constraints()), catalog).best
    assert best is not None
    [only] = plan.relaxations
    assert only.change == LeaveOut(key="gpus")
    assert (only.best.identity, only.best.cost_usd) == (best.identity, best.cost_usd)
