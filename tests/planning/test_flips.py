"""What would have made a loser win: every proposed change is applied to the whole scenario and planned again."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.catalog import Catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.catalog.market import Platform
from tonnage.planning import Plan
from tonnage.planning.broken_limits import deadline_of
from tonnage.planning.plan import Option, Refusal
from tonnage.planning.planner import rank_options
from tonnage.planning.reasons.changes import FasterGpus
from tonnage.planning.reasons.flips import Flip
from tonnage.planning.whatif.flips import flips_of
from tonnage.planning.whatif.parameters import Parameter, round_outward, smallest_change
from tonnage.planning.whatif.scenario import Scenario, price_times
from tonnage.reports.reasons.changes import span_words, times_words
from tonnage.workload.jobs import BuyTerms, Constraints, Workload

from .test_properties import SMALL, small_catalog, workloads

Maker = Callable[..., Workload]
FLIPPABLE = (
    "memory", "deadline", "budget", "max_gpus", "latency", "gpu", "provider", "region", "purchase", "interruptible",
)  # fmt: skip


def key(one: Option | Refusal) -> tuple[str, str, str | None, str]:
    return (one.provider, one.instance_type, one.purchase, one.platform)


def flips(loser: Option | Refusal, plan: Plan, scenario: Scenario) -> tuple[Flip, ...]:
    return flips_of(loser, plan, scenario, rank_options)


def plan_of(scenario: Scenario) -> Plan:
    return rank_options(scenario.workload, scenario.catalog)


def does_flip(flip: Flip, loser: Option | Refusal, scenario: Scenario) -> bool:
    """Whether the edited scenario, planned whole, has the loser where the flip says."""
    after = plan_of(flip.edit(scenario))
    if isinstance(loser, Option):
        return after.best is not None and key(after.best) == key(loser)
    return key(loser) in {key(option) for option in after.options}


@SMALL
@given(workloads, st.integers(0, 10**6))
def test_every_proposed_change_flips_its_loser(work: Workload, pick: int) -> None:
    """Whatever the workload and the loser: the change that is proposed for it, applied, makes it win or come in."""
    scenario = Scenario(workload=work, catalog=small_catalog())
    plan = plan_of(scenario)
    losers: list[Option | Refusal] = [*plan.options[1:], *(one for one in plan.refused if one.binding in FLIPPABLE)]
    if not losers:
        return
    loser = losers[pick % len(losers)]
    for flip in flips(loser, plan, scenario):
        assert does_flip(flip, loser, scenario), (flip.dimension, flip.changes)


def test_every_ranked_loser_has_a_price_at_which_it_wins(catalog: Catalog, make_train: Maker) -> None:
    """Ranked by cost, each option wins at some price, and not at one 2 % dearer than that."""
    scenario = Scenario(workload=make_train(), catalog=catalog)
    plan = plan_of(scenario)
    losers = [one for one in plan.options[1:80] if one.platform == "vm"][::30]  # each takes a dozen plans
    assert len(losers) > 1
    for loser in losers:
        flip = next(one for one in flips(loser, plan, scenario) if one.dimension == "price")
        assert does_flip(flip, loser, scenario)
        edited = flip.edit(scenario)
        dearer = price_times(key(loser), 1.02)(edited)
        after = plan_of(dearer).best
        assert after is not None
        assert key(after) != key(loser)


@pytest.mark.parametrize(
    "platform", ["databricks", *(pytest.param(one, marks=pytest.mark.slow) for one in ("sagemaker", "vertex"))]
)
def test_what_a_platform_resells_wins_where_it_alone_is_allowed(
    catalog: Catalog, make_train: Maker, platform: Platform
) -> None:
    """With a fee on it a machine never beats itself: its platform alone, and a lower price besides, make it win.

    Unless the fee by itself is more than another of that platform costs in all.
    """
    scenario = Scenario(workload=make_train(), catalog=catalog)
    plan = plan_of(scenario)
    losers = [one for one in plan.options if one.platform == platform][:8:4]
    assert losers
    for loser in losers:
        found = flips(loser, plan, scenario)
        fee = sum(line.usd for line in loser.ledger.lines if line.unit == "DBU")
        possible = float(fee) < losers[0].cost_usd.value
        assert bool({flip.dimension for flip in found} & {"price", "constraint"}) == possible, loser.identity
        assert all(does_flip(flip, loser, scenario) for flip in found)


def test_a_fast_option_wins_under_a_tight_deadline(catalog: Catalog, make_train: Maker) -> None:
    """An option faster than all that are cheaper is offered the deadline that they cannot keep."""
    scenario = Scenario(workload=make_train("bert-large-uncased", samples=5_000_000, global_batch=512), catalog=catalog)
    plan = plan_of(scenario)
    times = [one.time_s.value if one.time_s else float("inf") for one in plan.options]
    fast = [one for one in plan.options[1:] if times[one.rank - 1] < 0.95 * min(times[: one.rank - 1])]
    assert fast
    fastest = fast[-1]
    tight = [one for one in flips(fastest, plan, scenario) if one.dimension == "deadline"]
    assert tight
    assert all(does_flip(one, fastest, scenario) for one in tight)


@pytest.mark.parametrize(
    ("limits", "binding", "dimensions"),
    [
        (Constraints(deadline_s=400.0), "deadline", {"deadline"}),
        pytest.param(Constraints(budget_usd=0.01), "budget", {"budget", "price"}, marks=pytest.mark.slow),
        (Constraints(gpus=(parse_gpu_filter("H100:1"),)), "gpu", {"constraint"}),
    ],
)
def test_refusals_are_told_the_smallest_change_of_their_limit(
    catalog: Catalog, make_train: Maker, limits: Constraints, binding: str, dimensions: set[str]
) -> None:
    """Each binding limit is loosened just enough, and the candidate is an option then."""
    work = make_train(constraints=limits, buy=BuyTerms(purchases=("on_demand",)), samples=1_000_000, global_batch=256)
    scenario = Scenario(workload=work, catalog=catalog)
    plan = plan_of(scenario)
    refused = [one for one in plan.refused if one.binding == binding and one.gpu in ("T4", "L4", "A10G")]
    machines = [one for one in refused if one.platform == "vm"][:12:6]
    assert machines
    for loser in machines:
        found = flips(loser, plan, scenario)
        assert dimensions <= {one.dimension for one in found}
        assert all(does_flip(one, loser, scenario) for one in found)


def test_memory_refusals_are_told_the_memory_that_holds(catalog: Catalog, make_train: Maker) -> None:
    """A model too large for a GPU: with the memory proposed it fits, and the figure is not far above the need."""
    work = make_train("llama-2-7b", constraints=Constraints(max_nodes=1))
    scenario = Scenario(workload=work, catalog=catalog)
    plan = plan_of(scenario)
    losers = [one for one in plan.refused if one.binding == "memory"][:24:12]
    assert len(losers) > 1
    for loser in losers:
        flip = next(one for one in flips(loser, plan, scenario) if one.dimension == "memory")
        assert does_flip(flip, loser, scenario)


@pytest.mark.parametrize("threshold", [1.004, 1.5, 7.3, 900.0, 0.997, 0.4, 0.02])
def test_the_smallest_change_is_enough_and_no_more(threshold: float) -> None:
    """Rounded to three digits the change passes the threshold by at most 1.4 %."""
    up = threshold > 1
    parameter = Parameter(
        dimension="price", limit=1e4 if up else 1e-4, figure=1.0, change=lambda x: FasterGpus(times=x),
        edit=lambda x: price_times(("a", "b", None, "vm"), x),
    )  # fmt: skip
    found = smallest_change(parameter, lambda x: x >= threshold if up else x <= threshold)
    assert found is not None
    assert (found >= threshold) if up else (found <= threshold)
    assert abs(found / threshold - 1) < 0.014
    assert smallest_change(parameter, lambda _: False) is None


def test_rounding_goes_outward() -> None:
    """Never to the side that is not enough."""
    assert round_outward(1.0001, up=True) == 1.01
    assert round_outward(0.31249, up=False) == 0.312
    assert Decimal(str(round_outward(5245.2, up=True))) == Decimal("5250")


@given(st.floats(1.0, 1e8))
def test_a_proposed_deadline_is_the_least_that_works(wall_s: float) -> None:
    """Enough, and less than 0.1 % above what is needed; and as it is written it is enough too."""
    deadline_s = deadline_of(wall_s).deadline_s
    assert wall_s <= deadline_s <= wall_s * 1.001 + 1e-9
    figure, unit = span_words(deadline_s).replace(",", "").split()
    assert float(figure) * {"min": 60, "h": 3600}[unit] >= wall_s * (1 - 1e-12)


@given(st.floats(1.0, 100.0))
def test_a_needed_factor_is_never_rounded_to_too_little(times: float) -> None:
    assert float(times_words(times)[:-1]) >= times - 1e-9
