"""An own fleet beside prices per token: cost at my rate, and where they cross over volume, bursts, cache, lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from tonnage.catalog import Catalog
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.pricing.tokens import TokenPrices
from tonnage.service.answer import ApiCost, BreakEven, BreakEvenQuestion
from tonnage.service.autoscaling import MOST_MACHINES
from tonnage.service.crossings import Cost, find_crossings, volume_grid, with_intervals
from tonnage.service.curves import cost_curves
from tonnage.service.economics import End, burst_factor, planned_fleet
from tonnage.service.study import FleetStudy, Way, api_usd, ways_to_buy
from tonnage.service.units import ENDS
from tonnage.sizing.estimates import Array
from tonnage.workload.jobs import Workload

STAIRS = 40  # machines up to which the grid holds every stair of a fleet


def break_even(
    workload: Workload,
    catalog: Catalog,
    prices: Sequence[TokenPrices],
    question: BreakEvenQuestion,
    *,
    calibrated: CalibratedModel | None = None,
) -> BreakEven:
    """The plan's fleet for the workload's busy rate (autoscaled where the day has a shape), checked by simulation,
    beside each price per token.

    Raises InputError for a workload that is no service.
    """
    study = FleetStudy(workload, catalog, question, calibrated)
    plan = study.plan
    empty = BreakEven(
        workload=workload, question=question, fleet=None, standing=None, verified=None, usd_per_month=None, apis=(),
        curves=(), volumes_per_s=(0.0, 0.0), catalog=plan.catalog, refused=len(plan.refused), plan=plan,
    )  # fmt: skip
    verified = study.verify()
    if not study.units:
        return empty
    rate = workload.service.rate_per_s
    fleet = study.fleet(rate)
    grid = volume_grid(rate, [*_stairs(study), *_api_stairs(study, prices)], top=_saturated(study))
    own = cache(lambda volume, end: study.fleet(volume, end).usd)  # asked again for each price
    apis = tuple(_api_cost(study, way, rate, grid, own) for way in ways_to_buy(prices))
    return replace(
        empty,
        fleet=fleet,
        standing=None if study.planned is None else planned_fleet(study.planned),
        verified=verified,
        usd_per_month=study.figure(rate),
        apis=apis,
        curves=cost_curves(study, apis, rate) if apis else (),
        volumes_per_s=(float(grid[0]), float(grid[-1])),
    )


def _stairs(study: FleetStudy) -> list[float]:
    """Busy rates that need one machine more, for each unit and end of the interval."""
    spare, variation = study.question.policy.spare, study.question.demand.variation
    return [
        (replicas - spare) * getattr(pool, end) * burst_factor(variation, unit.used) * unit.used
        for unit in study.units
        for each in (unit.replicas if len(unit.pools) == 1 else 1,)  # a replica of one pool may take a machine
        for pool in unit.pools
        for end in ENDS
        for replicas in range(each, STAIRS * each + 1, each)
        if replicas > spare
    ]


def _api_stairs(study: FleetStudy, prices: Sequence[TokenPrices]) -> list[float]:
    """Busy rates that need one provisioned unit more."""
    tokens = sum(study.workload.buy.tokens.of_request(study.requests))
    units = [one.provisioned for one in prices if one.provisioned is not None]
    return [number * unit.tokens_per_minute / (60.0 * tokens) for unit in units for number in range(1, STAIRS + 1)]


def _saturated(study: FleetStudy) -> float:
    """A rate beyond which the cost of a request no longer changes: what does not cross below never does."""
    return 2.0 * MOST_MACHINES * max(unit.capacity_per_s.high for unit in study.units)


def _api_cost(study: FleetStudy, way: Way, rate: float, grid: Array, own_usd: Callable[[float, End], float]) -> ApiCost:
    demand = study.question.demand
    api = api_usd(study, way, demand, study.requests, study.question.cached_fraction)

    def own(end: End) -> Cost:
        return lambda volume: own_usd(volume, end)

    found = {end: find_crossings(own(end), api, grid) for end in ("value", "low", "high")}
    throughout = None
    if not found["value"]:
        throughout = "API" if own("value")(rate) > api(rate) else "own fleet"
    return ApiCost(
        prices=way[0],
        provisioned=way[1],
        usd_per_month=api(rate),
        usd_per_1000_requests=1000.0 * api(rate) / demand.requests_per_month(rate),
        crossings=with_intervals(found["value"], found["high"], found["low"]),
        cheaper_throughout=throughout,
    )
