"""An own fleet beside prices per token: cost at my rate, and where they cross over volume, bursts, cache, lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from tonnage.catalog import Catalog
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.pricing.tokens import TokenPrices
from tonnage.service.answer import ApiCost, BreakEven, BreakEvenQuestion, CostCurve, CurvePoint
from tonnage.service.autoscaling import MOST_MACHINES
from tonnage.service.crossings import Cost, find_crossings, volume_grid, with_intervals
from tonnage.service.economics import Demand, End, burst_factor, cheapest_fleet, figure_of, planned_fleet
from tonnage.service.study import FleetStudy, Way, api_usd, resizer, ways_to_buy
from tonnage.service.units import ENDS, FleetUnit
from tonnage.sizing.estimates import Array
from tonnage.workload.jobs import Lengths, Requests, Workload

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


VARIATIONS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
CACHED = (0.0, 0.25, 0.5, 0.75, 0.9)
RATIOS = (0.25, 1.0, 4.0, 16.0, 64.0)  # input tokens for one of output, the sum as it is


def cost_curves(study: FleetStudy, apis: Sequence[ApiCost], rate: float) -> tuple[CostCurve, ...]:
    """What an own fleet and each API cost for 1,000 requests as volume, burstiness, cached share and lengths vary."""
    demand, cached, requests = study.question.demand, study.question.cached_fraction, study.requests
    points = _CurvePoints(study, [(api.prices, api.provisioned) for api in apis], rate)
    volumes = [rate * 10 ** (step / 2) for step in range(-6, 7)]
    resized = resizer(study)
    return (
        CostCurve(name="volume", unit="requests a month", points=tuple(
            points.make(demand.requests_per_month(at), study.units, demand, requests, cached, at) for at in volumes
        )),
        CostCurve(name="burstiness", unit="variation of the gaps", points=tuple(
            points.make(value, study.units, replace(demand, variation=value), requests, cached) for value in VARIATIONS
        )),
        CostCurve(name="cached share", unit="part of the input", points=tuple(
            points.make(value, resized(requests, value), demand, requests, value) for value in CACHED
        )),
        *((CostCurve(name="input per output token", unit="tokens", points=tuple(
            points.make(ratio, resized(changed, cached), demand, changed, cached)
            for ratio, changed in ((ratio, with_ratio(requests, ratio)) for ratio in RATIOS)
        )),) if requests.output_tokens is not None else ()),
    )  # fmt: skip


class _CurvePoints:
    """Points of curves at a usual rate; those of the study's own fleet and demand share what was computed for one."""

    def __init__(self, study: FleetStudy, ways: Sequence[Way], rate: float) -> None:
        self._study, self._ways, self._rate = study, ways, rate
        self._usual = self._own_of(study.units, study.question.demand)

    def make(
        self, value: float, units: Sequence[FleetUnit], demand: Demand, requests: Requests, cached: float,
        at: float | None = None,
    ) -> CurvePoint:  # fmt: skip
        """The point at `value` of what varies; `at`: another rate than the usual one."""
        study, at = self._study, self._rate if at is None else at
        months = demand.requests_per_month(at) / 1000.0
        costs = [api_usd(study, way, demand, requests, cached) for way in self._ways]
        paid = tuple(api(at) / months for api in costs)
        if not units:
            return CurvePoint(
                value=value, own_usd_per_1000=None, api_usd_per_1000=paid, crossing_per_s=(None,) * len(costs)
            )
        policy = study.question.policy
        if units is study.units and demand is study.question.demand:
            paid_own, own = study.figure(at).scaled(1.0 / months), self._usual
        else:
            fleets = [cheapest_fleet(units, demand, at, policy, end=end) for end in ("value", "high", "low")]
            paid_own = figure_of(*(fleet.usd / months for fleet in fleets))
            own = self._own_of(units, demand)
        grid = volume_grid(self._rate, (), per_decade=6)
        first = tuple(
            next((found for found, above in find_crossings(own, api, grid) if above == "own fleet"), None)
            for api in costs
        )
        return CurvePoint(value=value, own_usd_per_1000=paid_own, api_usd_per_1000=paid, crossing_per_s=first)

    def _own_of(self, units: Sequence[FleetUnit], demand: Demand) -> Cost:
        policy = self._study.question.policy
        return cache(lambda volume: cheapest_fleet(units, demand, volume, policy).usd)


def with_ratio(requests: Requests, ratio: float) -> Requests:
    """Requests of the same tokens in all, `ratio` of input for one of output; the longest scale alike.

    >>> asked = Requests(input_tokens=Lengths(mean=60.0, maximum=120), output_tokens=Lengths(mean=40.0, maximum=80))
    >>> with_ratio(asked, 4.0).output_tokens
    Lengths(mean=20.0, maximum=40)
    """
    assert requests.output_tokens is not None
    total = requests.input_tokens.mean + requests.output_tokens.mean
    output = total / (1.0 + ratio)
    return replace(
        requests,
        input_tokens=_scaled(requests.input_tokens, total - output),
        output_tokens=_scaled(requests.output_tokens, output),
    )


def _scaled(lengths: Lengths, mean: float) -> Lengths:
    mean = max(mean, 1.0)
    return Lengths(mean=mean, maximum=max(round(lengths.maximum * mean / lengths.mean), 1))
