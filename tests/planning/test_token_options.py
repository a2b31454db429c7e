"""Tokens beside machines in one ranking: prices, limits, regions, provisioned units."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from tonnage.catalog import Catalog
from tonnage.catalog.services import ServicePrices
from tonnage.errors import InputError
from tonnage.planning import Option, TokenOption, make_plan
from tonnage.planning.limits import check_limits
from tonnage.planning.reasons.changes import LeaveOut, State
from tonnage.planning.reasons.misses import QuotaMiss, UnpricedMiss
from tonnage.planning.reasons.risks import OtherModelRisk
from tonnage.workload.jobs import (
    BuyTerms,
    Constraints,
    DataPlace,
    OwnPrices,
    Schedule,
    Tokens,
)

from .conftest import Maker, batch, lines, pick


def test_tokens_of_the_same_model_stand_beside_machines(catalog: Catalog) -> None:
    """Llama 3.1 8B: 200 M tokens in and 50 M out at the APIs' prices; a batch at half; no other model is taken."""
    plan = make_plan(batch(), catalog)
    tokens = {(o.platform, o.instance_type, o.purchase): o for o in plan.options if isinstance(o, TokenOption)}
    name = "meta.llama3-1-8b-instruct-v1:0"
    assert set(tokens) == {
        ("bedrock", name, "on_demand"), ("bedrock", name, "batch"), ("databricks", "Llama 3.1 8B", "on_demand"),
    }  # fmt: skip
    assert tokens["bedrock", name, "on_demand"].cost_usd.value == pytest.approx(250 * 0.22)
    assert tokens["bedrock", name, "batch"].cost_usd.value == pytest.approx(250 * 0.11)
    assert tokens["databricks", "Llama 3.1 8B", "on_demand"].cost_usd.value == pytest.approx(200 * 0.15 + 50 * 0.45)
    assert all(o.time_s is None for o in tokens.values())
    assert not any(isinstance(o, TokenOption) for o in make_plan(batch("llama-2-7b"), catalog).options)


def test_token_prices_of_other_ways_and_regions_are_not_mixed(catalog: Catalog) -> None:
    """Each region has its own option; prices in batches or at priority are not taken for on-demand ones."""
    name = "meta.llama3-1-8b-instruct-v1:0"
    [old, *_] = [one for one in catalog.managed.tokens if (one.model, one.kind) == (name, "input")]
    east = [
        replace(old, kind=kind, region="us-east-1", usd_per_million_tokens=Decimal(usd), conditions=said)
        for kind in ("input", "output")
        for usd, said in (
            ("0.2", "on-demand; USE1-a"), ("0.3", "on-demand; USE1-b"), ("9", "priority; USE1-c"), ("0.1", "batch; d"),
        )
    ]  # fmt: skip
    tokens = (*catalog.managed.tokens, *east)
    plan = make_plan(batch(), replace(catalog, managed=replace(catalog.managed, tokens=tokens)))
    found = {
        (one.region, one.purchase): one.cost_usd.value
        for one in plan.options if isinstance(one, TokenOption) and one.platform == "bedrock"
    }  # fmt: skip
    assert found["us-east-1", "on_demand"] == pytest.approx(250 * 0.3)
    assert found["us-east-1", "batch"] == pytest.approx(250 * 0.15)
    elsewhere = sorted(cost for (region, _), cost in found.items() if region != "us-east-1")
    assert elsewhere == pytest.approx([250 * 0.11, 250 * 0.22])


def test_what_is_not_known_of_an_api_is_not_assumed(catalog: Catalog, make_serve: Maker) -> None:
    """Without a stated rate: left out by time, refused under a deadline, refused under a promise, each with the key."""
    by_time = make_plan(batch(), catalog, objective="time")
    assert {r.binding for r in by_time.refused if r.platform == "bedrock"} == {"time"}
    late = make_plan(batch(constraints=Constraints(deadline_s=86_400.0)), catalog)
    refusals = [r for r in late.refused if r.platform == "bedrock"]
    assert {(r.binding, r.miss.lifted_by) for r in refusals} == {
        ("deadline", (State(key="buy.tokens_per_minute", of="quota"),))
    }
    service = make_plan(make_serve("llama-3.1-8b"), catalog)
    [promised] = [r for r in service.refused if r.platform == "bedrock"]
    assert promised.binding == "latency"
    assert promised.miss.lifted_by == (State(key="buy.token_p95_latency", of="measured"),)


def test_stated_limits_give_an_api_a_time(catalog: Catalog, make_serve: Maker) -> None:
    """250 M tokens at 500,000 a minute take 500 minutes; a service needs its rate within the quota."""
    buy = BuyTerms(tokens=Tokens(per_minute=500_000.0))
    plan = make_plan(batch(buy=buy), catalog, objective="time")
    option = pick(plan, "meta.llama3-1-8b-instruct-v1:0", platform="bedrock")
    assert option.time_s is not None
    assert option.time_s.value == pytest.approx(500 * 60)
    assert option.time_s.basis == "assumed"
    small = BuyTerms(tokens=Tokens(per_minute=1000.0, p95_latency_s=1.0))
    [refusal] = [
        r for r in make_plan(make_serve("llama-3.1-8b", buy=small), catalog).refused if r.platform == "bedrock"
    ]
    assert isinstance(refusal.miss, QuotaMiss)
    assert refusal.miss.needed_tokens_per_minute == pytest.approx(300_000)
    large = replace(small, tokens=Tokens(per_minute=400_000.0, p95_latency_s=1.0))
    served = make_plan(make_serve("llama-3.1-8b", buy=large), catalog)
    half = replace(large, tokens=replace(large.tokens, load=0.5))
    month = 20 * 730 * 3600 * 250 / 1e6
    assert pick(served, "meta.llama3-1-8b-instruct-v1:0", platform="bedrock").cost_usd.value == pytest.approx(
        month * 0.22
    )
    quiet = pick(make_plan(make_serve("llama-3.1-8b", buy=half), catalog), option.instance_type, platform="bedrock")
    assert quiet.cost_usd.value == pytest.approx(month * 0.11)


def test_token_models_are_the_workload_s_to_name(catalog: Catalog, make_train: Maker) -> None:
    """Named models replace the match; cached input is read at its own price; training needs a customisation price."""
    buy = BuyTerms(tokens=Tokens(models=("amazon.nova-lite-v1:0",), cached_input_fraction=0.5))
    option = pick(make_plan(batch(buy=buy), catalog), "amazon.nova-lite-v1:0", platform="bedrock")
    assert option.cost_usd.value == pytest.approx(100 * 0.06 + 100 * 0.015 + 50 * 0.24)
    assert OtherModelRisk(model="amazon.nova-lite-v1:0") in option.risks
    learn = BuyTerms(tokens=Tokens(models=("nova-micro", "amazon.nova-lite-v1:0"), model_storage_months=6))
    plan = make_plan(make_train(buy=learn), catalog)
    tuned = pick(plan, "nova-micro", platform="bedrock")
    assert tuned.cost_usd.value == pytest.approx(67_000 * 3 * 64 / 1e6 * 1.0 + 6 * 1.95, abs=1e-3)
    late = make_plan(make_train(buy=learn, constraints=Constraints(deadline_s=86_400.0)), catalog)
    [unknown] = [r for r in late.refused if r.instance_type == "nova-micro"]
    assert (unknown.binding, unknown.miss.lifted_by) == ("deadline", (LeaveOut(key="deadline"),))
    [missing] = [r for r in plan.refused if r.instance_type == "amazon.nova-lite-v1:0"]
    assert isinstance(missing.miss, UnpricedMiss)
    assert (missing.miss.of, missing.miss.name) == ("customisation", "amazon.nova-lite-v1:0")


def test_provisioned_units_are_paid_by_the_hour(catalog: Catalog, make_serve: Maker) -> None:
    """How many units carry a load is not published: refused until stated, then units x 730 h for a service's month."""
    name = "cohere.command-light-text-v14"
    without = make_serve("gpt2", p95_latency_s=None, buy=BuyTerms(tokens=Tokens(models=(name,))))
    refused = [r for r in make_plan(without, catalog).refused if r.purchase == "provisioned"]
    assert {r.miss.lifted_by for r in refused} == {(State(key="buy.model_units", of="units"),)}
    stated = replace(without, buy=BuyTerms(tokens=Tokens(models=(name,), model_units=2)))
    costs = sorted(o.cost_usd.value for o in make_plan(stated, catalog).options if o.purchase == "provisioned")
    assert costs == pytest.approx([2 * 730 * 4.10976, 2 * 730 * 6.8472])


def test_residency_keeps_global_profiles_out(catalog: Catalog) -> None:
    """A profile that may answer from anywhere does not keep data in an area."""
    models = ("global.anthropic.claude-haiku-4-5-20251001-v1:0", "regional.anthropic.claude-haiku-4-5-20251001-v1:0")
    plan = make_plan(
        batch(buy=BuyTerms(tokens=Tokens(models=models)), constraints=Constraints(residency=("us",))), catalog
    )
    assert {o.instance_type for o in plan.options if isinstance(o, TokenOption)} == {models[1]}
    assert {r.binding for r in plan.refused if r.instance_type == models[0]} == {"residency"}


def test_data_is_moved_to_token_platforms_too(catalog: Catalog, make_train: Maker) -> None:
    """Learning at AWS on data held by Google pays for the way there, as machines at AWS do; no price, no option."""
    far = DataPlace(provider="gcp", region="us-central1", size_gb=200.0)
    buy = BuyTerms(tokens=Tokens(models=("nova-micro",)), prices=OwnPrices(egress_usd_per_gb=0.1))

    def of_tokens(place: DataPlace) -> Option:
        plan = make_plan(replace(make_train(buy=buy), data=place), catalog)
        [found] = [one for one in plan.options if isinstance(one, TokenOption)]
        return found

    moved, near = of_tokens(far), of_tokens(replace(far, provider="aws", region="us-east-1"))
    assert lines(moved)["data out of gcp"].usd == Decimal(20)
    assert moved.ledger.total_usd == near.ledger.total_usd + 20
    bare = replace(catalog, services=ServicePrices())
    unpriced = make_plan(replace(make_train(buy=replace(buy, prices=OwnPrices())), data=far), bare)
    assert [r.binding for r in unpriced.refused if r.platform == "bedrock"] == ["price"]


BAD_LIMITS = [
    (Constraints(budget_usd=0.00001), BuyTerms(), "less than the least that is ever billed"),
    (Constraints(deadline_s=200.0), BuyTerms(), "deadline is 3.333m away, and a machine starts in 5m"),
    (
        Constraints(),
        BuyTerms(schedule=Schedule(hours_per_day=0.05, days_per_month=20)),
        "no longer than a machine takes",
    ),
]


@pytest.mark.parametrize(("constraints", "buy", "says"), BAD_LIMITS)
def test_limits_that_nothing_could_hold_are_bad_input(
    constraints: Constraints, buy: BuyTerms, says: str, catalog: Catalog, make_train: Maker
) -> None:
    """Below one billing quantum, or shorter than a start-up: said at once, with a hint."""
    with pytest.raises(InputError, match=says) as caught:
        check_limits(make_train(constraints=constraints, buy=buy), catalog)
    assert caught.value.hint
    check_limits(make_train(constraints=Constraints(budget_usd=0.01, deadline_s=400.0)), catalog)
