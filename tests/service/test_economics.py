"""What a month of a fleet costs: the reserved base, bursts, the cheapest machine at each volume."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tonnage.catalog import Catalog, load_catalog
from tonnage.pricing.tokens import ProvisionedUnits, TokenPrices
from tonnage.service.answer import BreakEvenQuestion
from tonnage.service.autoscaling import Autoscaling, held_machines
from tonnage.service.breakeven import break_even
from tonnage.service.economics import Demand, burst_factor, cheapest_fleet, month_fleet
from tonnage.service.rate_curve import RateCurve
from tonnage.service.study import FleetStudy
from tonnage.service.units import FleetUnit, fleet_units
from tonnage.service.verification import promise_of, verify_unit
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import Lengths, Requests, ServeJob, Workload

from ..planning.conftest import offers_of, serve

POLICY = Autoscaling(spare=1)
DEMAND = Demand(curve=RateCurve.sinusoid(4.0))


@pytest.fixture(scope="module")
def catalog(catalog: Catalog) -> Catalog:
    """Three GPUs: what is claimed here holds of any machines."""
    return offers_of(catalog, "T4", "A10G", "L4")


@pytest.fixture(scope="module")
def workload() -> Workload:
    """Short answers of a small decoder, so that simulations are quick."""
    asked = Requests(input_tokens=Lengths(mean=64, maximum=256), output_tokens=Lengths(mean=20, maximum=40))
    return serve("gpt2", requests=asked, rate_per_s=100.0, p95_latency_s=0.5)


@pytest.fixture(scope="module")
def units(workload: Workload, catalog: Catalog) -> tuple[FleetUnit, ...]:
    return fleet_units(workload, catalog, reserved_discount=0.4)


def prices(usd: float, **more: object) -> TokenPrices:
    return TokenPrices(
        name="api", usd_per_million_input=usd, usd_per_million_output=4 * usd, source="made up", read_on=None,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_base_is_what_pays(units: tuple[FleetUnit, ...]) -> None:
    """Reserved are exactly the machines held for more of the month than the reserved price is of the other."""
    unit = replace(units[0], usd_per_hour=1.0, reserved_usd_per_hour=0.6)
    assert unit.replicas == 1
    each = unit.pools[0].value * unit.used
    busy = 8 * each * DEMAND.curve.peak
    held = held_machines(DEMAND.curve, 8 * each, each, POLICY).at_least
    fleet = month_fleet(unit, DEMAND, busy, POLICY)
    assert fleet.base == sum(held > 0.6)
    assert 0 < fleet.base < len(held)
    assert fleet.usd == pytest.approx(730 * sum(min(0.6, part) for part in held))
    alone = month_fleet(replace(unit, reserved_usd_per_hour=None), DEMAND, busy, POLICY)
    assert fleet.usd < alone.usd == pytest.approx(730 * held.sum())


def test_worse_throughput_costs_more(units: tuple[FleetUnit, ...]) -> None:
    """The slow end of the interval never costs less than the expected one, nor that less than the fast end."""
    for rate in (1.0, 30.0, 1000.0):
        fast, value, slow = (
            cheapest_fleet(units, DEMAND, rate, POLICY, end=end).usd for end in ("high", "value", "low")
        )
        assert fast <= value * (1 + 1e-3)
        assert value <= slow * (1 + 1e-3)


def test_units_are_worth_having() -> None:
    """No machine is cheaper than the one before, and each carries a request for less."""
    asked = Requests(input_tokens=Lengths(mean=64, maximum=256), output_tokens=Lengths(mean=20, maximum=40))
    served = serve("llama-2-7b", requests=asked, rate_per_s=100.0, p95_latency_s=2.0)
    units = fleet_units(served, offers_of(load_catalog(), "T4", "L4", "A10G", "H100-SXM"), reserved_discount=0.4)
    assert len(units) > 1
    for small, large in pairwise(units):
        each = [one.capacity_per_s.value / min(one.usd_per_hour, one.reserved_usd_per_hour or one.usd_per_hour)
                for one in (small, large)]  # fmt: skip
        assert large.usd_per_hour >= small.usd_per_hour
        assert each[1] > each[0]


def test_two_pools_follow_one_load(units: tuple[FleetUnit, ...]) -> None:
    """12 requests a second, replicas of 10 and of 4 planned to 0.8: 2 and 4 of them, on 2 machines of 4; where they
    must stand in one machine, none; a day with a shape holds fewer, and no fewer than its mean rate takes."""
    each = tuple(Figure(value=one, low=one, high=one) for one in (10.0, 4.0))
    unit = replace(units[0], pools=each, replicas=4, used=0.8, usd_per_hour=1.0, reserved_usd_per_hour=None)
    flat, alone = Demand(curve=RateCurve()), Autoscaling()
    assert unit.capacity_per_s.value == pytest.approx(4 / (1 / 10 + 1 / 4))
    assert month_fleet(unit, flat, 12.0, alone).machines_mean == 2
    assert month_fleet(replace(unit, most_machines=1.0), flat, 12.0, alone).usd == float("inf")
    for busy in (40.0, 4000.0):
        held, standing = month_fleet(unit, DEMAND, busy, alone), month_fleet(unit, flat, busy, alone)
        least = DEMAND.mean_per_s(busy) / unit.capacity_per_s.value
        assert least < held.machines_mean < standing.machines_mean < 1.3 * held.machines_peak
    bounded = month_fleet(unit, DEMAND, 12.0, Autoscaling(minimum=3, maximum=3))
    assert (bounded.machines_mean, bounded.machines_peak) == (3, 3)
    for busy, most in ((100.0, 10), (20_000.0, 10), (20_000.0, 150)):  # both sides of what is counted one by one
        assert month_fleet(unit, DEMAND, busy, Autoscaling(maximum=most)).machines_peak == most


def test_bursts_cost(units: tuple[FleetUnit, ...]) -> None:
    """The burstier the arrivals, the less a machine carries and the dearer the month."""
    factors = [burst_factor(variation, 0.8) for variation in (0.5, 1.0, 2.0, 4.0)]
    assert factors == sorted(factors, reverse=True)
    costs = [month_fleet(units[0], replace(DEMAND, variation=v), 200.0, POLICY).usd for v in (0.5, 1.0, 2.0, 4.0)]
    assert costs == sorted(costs)


def test_verification_holds_the_promise_or_slows(
    workload: Workload, units: tuple[FleetUnit, ...], catalog: Catalog
) -> None:
    """At a twentieth of its capacity a replica keeps the promise; at sixty times it, it does not, and how much does is
    told."""
    job, unit = workload.job, units[0]
    assert isinstance(job, ServeJob)
    promise = promise_of(job, "p99")
    told = verify_unit(unit, job, promise, catalog, load_per_s=unit.pools[0].value / 20)
    assert told.kept
    assert told.latency_s <= 0.5
    wild = verify_unit(unit, job, promise, catalog, load_per_s=unit.pools[0].value * 60)
    assert not wild.kept
    assert wild.latency_s > 0.5


def test_break_even_crosses_where_both_cost_the_same(workload: Workload, catalog: Catalog) -> None:
    """At each crossing the fleet and the API cost the same, or the fleet jumps past it; intervals hold the value."""
    question = BreakEvenQuestion(demand=DEMAND, policy=POLICY, verify=False)
    found = break_even(workload, catalog, [prices(0.02)], question)
    assert found.fleet is not None
    (api,) = found.apis
    assert api.crossings
    study = FleetStudy(workload, catalog, question, None)
    each = api.usd_per_1000_requests / 1000.0
    for crossing in api.crossings:
        rate = crossing.rate_per_s
        own = [study.fleet(rate * nudge).usd for nudge in (1 - 1e-5, 1 + 1e-5)]
        paid = each * DEMAND.requests_per_month(rate)
        assert min(own) * 0.999 <= paid <= max(own) * 1.001
        low, high = crossing.low_per_s or rate, crossing.high_per_s or rate
        assert low <= rate <= high
    assert [curve.name for curve in found.curves] == [
        "volume", "burstiness", "cached share", "input per output token",
    ]  # fmt: skip


def test_an_api_that_is_cheap_enough_never_crosses(workload: Workload, catalog: Catalog) -> None:
    """Prices far below a full machine's cost per request: the API is cheaper at every volume; far above: crosses."""
    question = BreakEvenQuestion(demand=DEMAND, policy=POLICY, verify=False)
    (cheap,) = break_even(workload, catalog, [prices(1e-6)], question).apis
    assert (cheap.crossings, cheap.cheaper_throughout) == ((), "API")
    (dear,) = break_even(workload, catalog, [prices(1e5)], replace(question, policy=Autoscaling(minimum=0))).apis
    assert dear.cheaper_throughout == "own fleet" or dear.crossings[-1].cheaper_above == "own fleet"


def test_provisioned_units_are_a_staircase(workload: Workload, catalog: Catalog) -> None:
    """A price by the hour stands beside the price by the token, and is for the busy rate, whatever the day's mean."""
    units = ProvisionedUnits(usd_per_unit_hour=5.0, tokens_per_minute=100_000)
    found = break_even(
        workload,
        catalog,
        [prices(0.02, provisioned=units)],
        BreakEvenQuestion(demand=DEMAND, policy=POLICY, verify=False),
    )
    assert [api.name for api in found.apis] == ["api", "api, provisioned"]
    needed = -(-100.0 * 84 * 60 // 100_000)
    assert found.apis[1].usd_per_month == pytest.approx(needed * 5.0 * 730)


def test_cached_input_without_its_own_price_costs_the_same() -> None:
    """A missing price of cached input is the input's, never zero."""
    one = prices(2.0)
    assert one.usd_per_request(input_tokens=100, output_tokens=0, cached_fraction=0.9) == pytest.approx(2e-4)


def test_capacity_is_that_of_the_planner(workload: Workload, units: tuple[FleetUnit, ...], catalog: Catalog) -> None:
    """A fleet of the unit's capacity, less the headroom, is what the planner sizes for the same rate."""
    unit = units[0]
    job = replace(workload.job, rate_per_s=20 * unit.used * unit.capacity_per_s.value * 0.999)  # type: ignore[type-var]
    from tonnage.planning import make_plan

    plan = make_plan(replace(workload, job=job), catalog)
    same = [o for o in plan.options if (o.provider, o.instance_type, o.platform, 1) == unit.key]
    assert same[0].count == 20
    assert isinstance(unit.capacity_per_s, Figure)
