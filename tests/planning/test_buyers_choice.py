"""What a buyer relies on: memory that holds, prices one can trust, exclusions, quotas, and nothing cheaper hidden."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from tonnage.catalog import Catalog
from tonnage.planning import make_plan
from tonnage.planning.offers.market import superseded_offers
from tonnage.planning.plan import MachineOption, Plan, PriceTrusted, RiskAccepted, UnknownAnswered
from tonnage.planning.reasons.changes import AcceptRisk, DropExclusion
from tonnage.planning.reasons.notes import BatchAboveSamplesNote
from tonnage.planning.reasons.risks import ArmHostRisk, MemoryRisk, RocmRisk
from tonnage.planning.whatif.changes import edit_of
from tonnage.planning.whatif.relaxations import relaxed_workloads
from tonnage.workload.exclusions import parse_exclusion
from tonnage.workload.jobs import BuyTerms, Constraints, Tokens
from tonnage.workload.quotas import Quota

Maker = Callable[..., Any]
TIGHT = {"samples": 2000, "global_batch": 16}  # a 13 B model beside its adapters: near the memory of many cards


def overrunning(plan: Plan) -> list[str]:
    """Options whose memory may pass the device."""
    return [
        one.instance_type
        for one in plan.options
        if isinstance(one, MachineOption) and one.run.memory_gib.high > one.run.memory_available_gib
    ]


@pytest.fixture(scope="module")
def tight(catalog: Catalog) -> Callable[[Constraints], Plan]:
    from tests.planning.conftest import train

    return lambda limits: make_plan(train("llama-2-13b", method="lora", constraints=limits, **TIGHT), catalog)


def test_memory_holds_unless_the_risk_is_accepted(tight: Callable[[Constraints], Plan]) -> None:
    """By default the upper end of every option's memory fits its device; with the risk accepted more options stand,
    some of which may run out, and carry that risk."""
    held, bold = tight(Constraints()), tight(Constraints(accept_risk=("memory",)))
    assert held.options
    assert not overrunning(held)
    assert overrunning(bold)
    for option in bold.options:
        risky = any(isinstance(risk, MemoryRisk) for risk in option.risks)
        assert risky == (option.run.memory_gib.high > option.run.memory_available_gib)


def test_a_machine_where_no_layout_holds_says_what_accepting_takes(tight: Callable[[Constraints], Plan]) -> None:
    """Its refusal names the upper end, and the accepted risk lets it in."""
    held, bold = tight(Constraints()), tight(Constraints(accept_risk=("memory",)))
    in_bold = {(one.provider, one.instance_type) for one in bold.options}
    risky = [one for one in held.refused if AcceptRisk(limit="memory") in one.miss.lifted_by]
    assert risky
    assert all((one.provider, one.instance_type) in in_bold for one in risky if one.purchase == "on_demand")


@pytest.mark.parametrize(("model", "method", "saves"), [("llama-3.1-8b", "full", True), ("gpt2-xl", "lora", False)])
def test_what_accepting_the_memory_risk_saves_is_said(
    model: str, method: str, saves: bool, catalog: Catalog, make_train: Maker
) -> None:
    """The plan names the option that wins with the risk accepted, at its price; nothing where it costs the same."""
    work = make_train(model, method=method, **TIGHT)
    held = make_plan(work, catalog)
    bold = make_plan(replace(work, constraints=replace(work.constraints, accept_risk=("memory",))), catalog)
    assert held.best is not None
    assert bold.best is not None
    said = [(one.option.identity, one.saves_usd) for one in held.cheaper if isinstance(one, RiskAccepted)]
    less = held.best.cost_usd.value - bold.best.cost_usd.value
    assert (less > 0) is saves
    assert said == ([(bold.best.identity, pytest.approx(less))] if saves else [])


def test_the_best_is_dated_young_and_of_a_data_centre(catalog: Catalog, make_train: Maker) -> None:
    """What an undated or community offer would save stands beside it, and wins only where any price is trusted."""
    work = make_train()
    plan = make_plan(work, catalog)
    best = plan.best
    assert best is not None
    assert best.relied_on
    assert best.price_read_on is not None
    assert (work.as_of.date() - best.price_read_on).days <= 180
    said = next(one for one in plan.cheaper if isinstance(one, PriceTrusted))
    assert not said.option.relied_on
    free = make_plan(replace(work, constraints=replace(work.constraints, trust="any")), catalog)
    assert free.best is not None
    assert free.best.identity == said.option.identity
    assert [one.cost_usd.value for one in free.options] == sorted(one.cost_usd.value for one in free.options)


def test_an_old_price_is_not_relied_on(catalog: Catalog, make_train: Maker) -> None:
    """A plan that accepts prices of one day only has none to rely on, and still answers."""
    plan = make_plan(make_train(), catalog, max_price_age_days=1)
    assert plan.best is not None
    assert not plan.best.relied_on
    assert not any(one.relied_on for one in plan.options)


@pytest.mark.parametrize("word", ["community", "undated", "arm64", "rocm", "runpod", "T4", "g4dn", "azure/NC"])
def test_what_is_excluded_is_out_with_its_reason(word: str, catalog: Catalog, make_train: Maker) -> None:
    """Nothing that an entry covers is an option; it is refused by that entry, which taken away lets it in again."""
    entry = parse_exclusion(word, catalog)
    work = make_train(constraints=Constraints(exclude=(entry,)))
    plan = make_plan(work, catalog)
    machines = {one.key: one for one in catalog.instance_types}
    for option in plan.options:
        if isinstance(option, MachineOption):
            assert not entry.covers_machine(machines[option.provider, option.instance_type], catalog)
            assert word != "undated" or option.price_read_on is not None or option.platform != "vm"
    out = [one for one in plan.refused if one.binding == "excluded"]
    assert out
    for one in out:
        edit = edit_of(one.miss.lifted_by[0])
        assert edit is not None
        assert not edit(work).constraints.exclude


def test_an_exclusion_that_leaves_nothing_says_which_to_drop(catalog: Catalog, make_train: Maker) -> None:
    """Of two exclusions the plan names the one without which there is an option."""
    entries = tuple(parse_exclusion(word, catalog) for word in ("aws", "arm64"))
    work = make_train(constraints=Constraints(providers=("aws",), exclude=entries))
    plan = make_plan(work, catalog)
    assert not plan.options
    dropped = {one.change.exclusion for one in plan.relaxations if isinstance(one.change, DropExclusion)}
    assert "aws" in dropped
    assert "arm64" not in dropped
    assert DropExclusion(exclusion="aws") in [change for change, _ in relaxed_workloads(work)]


def test_arm_hosts_and_rocm_devices_say_what_must_be_built_again(catalog: Catalog, make_train: Maker) -> None:
    """Every option on such a machine has the risk, no other has."""
    plan = make_plan(make_train("llama-2-7b", method="lora"), catalog)
    machines = {one.key: one for one in catalog.instance_types}
    seen = set()
    for option in plan.options:
        machine = machines[option.provider, option.instance_type]
        device = catalog.accelerator(machine.accelerator or "")
        kinds = {type(risk) for risk in option.risks}
        assert (ArmHostRisk in kinds) == (machine.cpu_arch == "arm64")
        assert (RocmRisk in kinds) == (device.vendor == "AMD")
        seen |= kinds
    assert {ArmHostRisk, RocmRisk} <= seen


def test_a_quota_bounds_the_machines_of_its_family(catalog: Catalog, make_serve: Maker) -> None:
    """A fleet larger than the quota is refused by it, with the quota that would do; one that fits stands."""
    work = make_serve("gpt2", rate_per_s=2000.0)
    free = make_plan(work, catalog)
    fleet = next(one for one in free.options if one.instance_type == "g4dn.xlarge" and one.platform == "vm")
    assert fleet.count > 1
    needed = fleet.count * 4.0  # vCPUs
    for limit, stands in ((needed, True), (needed - 4, False)):
        quota = Quota(provider="aws", unit="vcpus", limit=limit, families=("g4dn",), purchase="on_demand", name="G")
        plan = make_plan(replace(work, constraints=replace(work.constraints, quotas=(quota,))), catalog)
        found = [one for one in plan.options if one.instance_type == "g4dn.xlarge" and one.platform == "vm"]
        assert bool(found) == stands
        if not stands:
            miss = next(one for one in plan.refused if one.instance_type == "g4dn.xlarge" and one.binding == "quota")
            edit = edit_of(miss.miss.lifted_by[0])
            assert edit is not None
            raised = edit(replace(work, constraints=replace(work.constraints, quotas=(quota,))))
            assert raised.constraints.quotas[0].limit == needed


def test_a_fleet_keeps_the_most_machines(catalog: Catalog, make_serve: Maker) -> None:
    """`max_nodes` binds a service too."""
    work = make_serve("gpt2", rate_per_s=300.0, constraints=Constraints(max_nodes=2))
    plan = make_plan(work, catalog)
    assert {one.count for one in plan.options if isinstance(one, MachineOption)} == {1, 2}
    assert any(one.binding == "max_nodes" for one in plan.refused)


def test_a_token_api_out_for_an_unknown_is_named_with_its_price(catalog: Catalog, make_serve: Maker) -> None:
    """Refused as nobody knows its TTFT, it would have won: price and question stand beside the best."""
    buy = BuyTerms(purchases=("on_demand",), tokens=Tokens(models=("meta.llama3-1-8b-instruct-v1:0",)))
    work = make_serve("llama-3.1-8b", rate_per_s=0.01, p95_latency_s=None, p95_ttft_s=1.0, buy=buy)
    plan = make_plan(work, catalog)
    said = next(one for one in plan.cheaper if isinstance(one, UnknownAnswered))
    assert said.unknown == "p95 TTFT"
    assert plan.best is not None
    assert 0 < said.cost_usd < plan.best.cost_usd.value
    assert said.saves_usd == pytest.approx(plan.best.cost_usd.value - said.cost_usd)


def test_one_machine_under_two_names_has_its_newest_price(catalog: Catalog) -> None:
    """RunPod's A100 pod is listed as `A100-80GB` and as `A100-80GB-PCIe`: the dated price replaces the undated one."""
    machines = {one.key: one for one in catalog.instance_types}
    out = superseded_offers(catalog.offers, machines)
    pods = {(one.instance_type, newer.instance_type) for one, newer in out.items() if one.provider == "runpod"}
    assert ("1x_A100-80GB_SECURE", "1x_A100-80GB-PCIe_SECURE") in pods
    assert all((newer.read_on or date.min) > (one.read_on or date.min) for one, newer in out.items())


def test_a_spot_price_far_below_its_own_on_demand_price_is_doubted(catalog: Catalog) -> None:
    """Eight A100 for 2.99 USD an hour are a ninth of their on-demand price, where spot usually asks for two fifths."""
    from tonnage.catalog.expected_prices import ExpectedPrices

    odd = next(
        one for one in catalog.offers
        if one.instance_type == "Standard_ND96asr_v4" and one.purchase == "spot" and one.region == "eastus"
    )  # fmt: skip
    doubt = ExpectedPrices(catalog).doubt(odd)
    assert doubt is not None
    assert doubt.ratio < 1 / 3
    usual = next(one for one in catalog.offers if one.instance_type == "g2-standard-4" and one.purchase == "spot")
    assert ExpectedPrices(catalog).doubt(usual) is None


def test_a_batch_above_the_samples_is_noted(catalog: Catalog, make_train: Maker) -> None:
    """A global batch that no epoch fills is said in the notes; one that it does is not."""
    note = BatchAboveSamplesNote(global_batch=64, samples=32)
    assert note in make_plan(make_train(samples=32, global_batch=64), catalog).notes
    enough = make_plan(make_train(samples=6400, global_batch=64), catalog).notes
    assert not any(isinstance(one, BatchAboveSamplesNote) for one in enough)
