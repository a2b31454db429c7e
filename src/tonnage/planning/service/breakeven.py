"""An own fleet beside prices per token: cost at my rate, and where they cross over volume, bursts, cache, lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tonnage.catalog import Catalog
from tonnage.errors import InputError
from tonnage.planning.plan import CatalogStamp, Plan
from tonnage.planning.service.autoscaling import MOST_MACHINES, Autoscaling
from tonnage.planning.service.crossings import Cost, Crossing, find_crossings, volume_grid, with_intervals
from tonnage.planning.service.economics import Demand, End, MonthFleet, burst_factor, cheapest_fleet, figure_of
from tonnage.planning.service.units import FleetUnit, capacity_plan, fleet_units, units_for
from tonnage.planning.service.verification import Quantile, Verified, promise_of, verify_unit
from tonnage.pricing.tokens import TokenPrices
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.estimates import Array, Figure
from tonnage.workload.jobs import Lengths, Requests, ServeJob, Workload

VARIATIONS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
CACHED = (0.0, 0.25, 0.5, 0.75, 0.9)
RATIOS = (0.25, 1.0, 4.0, 16.0, 64.0)  # input tokens for one of output, the sum as it is
STAIRS = 40  # machines up to which every stair of a fleet stands in the grid


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What `breakeven` is asked: demand, fleet policy, and how requests and prices meet."""

    demand: Demand
    policy: Autoscaling
    quantile: Quantile = "p95"
    cached_fraction: float = 0.0
    own_prefix_cache: bool = False  # True: the own fleet does not read cached input again either
    reserved_discount: float | None = None
    batch_prices: bool = False
    verify: bool = True
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCost:
    """One way to buy tokens: at my rate, and where the own fleet crosses it."""

    prices: TokenPrices
    provisioned: bool
    usd_per_month: float
    usd_per_1000_requests: float
    crossings: tuple[Crossing, ...]
    cheaper_throughout: str | None  # "own fleet" or "API" where they never cross in `volumes`

    @property
    def name(self) -> str:
        return f"{self.prices.name}, provisioned" if self.provisioned else self.prices.name


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Both costs at one value of what is varied. None: no machine answers such requests within the promise."""

    value: float
    own_usd_per_1000: Figure | None
    api_usd_per_1000: tuple[float, ...]  # in the order of `apis`
    crossing_per_s: tuple[float | None, ...]  # the first rate above which the own fleet is cheaper; None: never


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Costs as one thing varies and the rest stays."""

    name: str  # "volume", "burstiness", "cached share", "input per output token"
    unit: str
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The whole answer for a service. `fleet` None: no machine keeps the promise."""

    workload: Workload
    question: Question
    fleet: MonthFleet | None
    verified: Verified | None
    usd_per_month: Figure | None
    apis: tuple[ApiCost, ...]
    curves: tuple[Curve, ...]
    volumes_per_s: tuple[float, float]  # mean rates that were looked at
    catalog: CatalogStamp
    refused: int
    plan: Plan

    @property
    def job(self) -> ServeJob:
        assert isinstance(self.workload.job, ServeJob)
        return self.workload.job

    @property
    def requests_per_month(self) -> float:
        return self.question.demand.requests_per_month(self.job.rate_per_s)


def break_even(
    workload: Workload,
    catalog: Catalog,
    prices: Sequence[TokenPrices],
    question: Question,
    *,
    assumed: Assumptions | None = None,
) -> BreakEven:
    """The cheapest fleet for the workload's mean rate, verified by simulation, beside each price per token.

    Raises InputError for a workload that is no service.
    """
    if not isinstance(workload.job, ServeJob):
        raise InputError(f"{workload.name} is of kind {workload.kind}, not a service", hint="kind: serve")
    study = _Study(workload, catalog, question, assumed)
    plan = study.plan
    empty = BreakEven(
        workload=workload, question=question, fleet=None, verified=None, usd_per_month=None, apis=(), curves=(),
        volumes_per_s=(0.0, 0.0), catalog=plan.catalog, refused=len(plan.refused), plan=plan,
    )  # fmt: skip
    verified = study.verify()
    if not study.units:
        return empty
    rate = workload.job.rate_per_s
    fleet = study.fleet(rate)
    grid = volume_grid(rate, [*_stairs(study), *_api_stairs(study, prices)], top=_saturated(study))
    apis = tuple(_api_cost(study, way, rate, grid) for way in _ways(prices))
    return replace(
        empty,
        fleet=fleet,
        verified=verified,
        usd_per_month=study.figure(rate),
        apis=apis,
        curves=_curves(study, apis, rate) if apis else (),
        volumes_per_s=(float(grid[0]), float(grid[-1])),
    )


class _Study:
    """The fleet's side of the question: units, and what they cost at a rate."""

    def __init__(self, workload: Workload, catalog: Catalog, question: Question, assumed: Assumptions | None) -> None:
        assert isinstance(workload.job, ServeJob)
        self.workload, self.catalog, self.question, self.assumed = workload, catalog, question, assumed
        self.requests = workload.job.requests
        sized = replace(workload, job=replace(workload.job, requests=self.read_requests(self.requests)))
        self.plan = capacity_plan(sized, catalog, assumed)
        self.units = fleet_units(self.plan, catalog, reserved_discount=question.reserved_discount)

    def read_requests(self, requests: Requests, cached: float | None = None) -> Requests:
        """Requests as the own fleet reads them: without cached input where it has a prefix cache."""
        cached = self.question.cached_fraction if cached is None else cached
        if not (self.question.own_prefix_cache and cached):
            return requests
        prompt = requests.input_tokens
        left = replace(prompt, mean=max(prompt.mean * (1.0 - cached), 1.0))
        return replace(requests, input_tokens=left)

    def verify(self) -> Verified | None:
        """Simulates the unit that wins at my rate; a unit that carries less is slowed, until a verified one wins."""
        if not self.question.verify:
            return None
        job = self.workload.job
        assert isinstance(job, ServeJob)
        promise = promise_of(job, self.question.quantile)
        done: dict[tuple[str, str, str], Verified] = {}
        while self.units:
            unit = self.fleet(job.rate_per_s).unit
            identity = (*unit.key, unit.option.purchase)
            if identity in done:
                return done[identity]
            variation = self.question.demand.variation
            found = verify_unit(
                unit, replace(job, requests=self.read_requests(self.requests)), promise, self.catalog,
                seed=self.question.seed, variation=variation, load_factor=burst_factor(variation), assumed=self.assumed,
            )  # fmt: skip
            done[identity] = found
            if found.factor < 1.0:
                slowed = unit.slowed(found.factor)
                self.units = tuple(
                    slowed if one is unit else one for one in self.units if one is not unit or found.factor > 0
                )
        return None

    def fleet(self, rate: float, end: End = "value", units: Sequence[FleetUnit] | None = None) -> MonthFleet:
        return cheapest_fleet(units or self.units, self.question.demand, rate, self.question.policy, end=end)

    def figure(self, rate: float, units: Sequence[FleetUnit] | None = None) -> Figure:
        usd, faster, slower = (self.fleet(rate, end, units).usd for end in ("value", "high", "low"))
        return figure_of(usd, faster, slower)


Way = tuple[TokenPrices, bool]


def _ways(prices: Sequence[TokenPrices]) -> list[Way]:
    return [(one, kind) for one in prices for kind in (False, True) if not kind or one.provisioned is not None]


def _api_usd(study: _Study, way: Way, demand: Demand, requests: Requests, cached: float) -> Cost:
    """USD a month as a function of the mean rate."""
    prices, provisioned = way
    output = 0.0 if requests.output_tokens is None else requests.output_tokens.mean
    each = prices.usd_per_request(
        input_tokens=requests.input_tokens.mean, output_tokens=output, cached_fraction=cached,
        batch=study.question.batch_prices,
    )  # fmt: skip
    tokens = requests.input_tokens.mean + output

    def by_token(rate: float) -> float:
        return each * demand.requests_per_month(rate)

    def by_unit(rate: float) -> float:
        hourly = prices.provisioned_usd_per_hour(peak_rate_per_s=rate * demand.curve.peak, tokens_per_request=tokens)
        assert hourly is not None
        return hourly * demand.hours_per_month

    return by_unit if provisioned else by_token


def _stairs(study: _Study) -> list[float]:
    """Mean rates at which the day's peak needs one machine more, for each unit and end of the interval."""
    peak = study.question.demand.curve.peak
    return [
        number * getattr(unit.capacity_per_s, end) * burst_factor(study.question.demand.variation) / peak
        for unit in study.units
        for end in ("value", "low", "high")
        for number in range(1, STAIRS + 1)
    ]


def _api_stairs(study: _Study, prices: Sequence[TokenPrices]) -> list[float]:
    """Mean rates at which the day's peak needs one provisioned unit more."""
    tokens = study.requests.input_tokens.mean
    tokens += 0.0 if study.requests.output_tokens is None else study.requests.output_tokens.mean
    peak = study.question.demand.curve.peak
    units = [one.provisioned for one in prices if one.provisioned is not None]
    return [
        number * unit.tokens_per_minute / (60.0 * tokens * peak) for unit in units for number in range(1, STAIRS + 1)
    ]


def _saturated(study: _Study) -> float:
    """A rate beyond which the cost of a request no longer changes: what does not cross below never does."""
    return 2.0 * MOST_MACHINES * max(unit.capacity_per_s.high for unit in study.units)


def _api_cost(study: _Study, way: Way, rate: float, grid: Array) -> ApiCost:
    demand = study.question.demand
    api = _api_usd(study, way, demand, study.requests, study.question.cached_fraction)

    def own(end: End) -> Cost:
        return lambda volume: study.fleet(volume, end).usd

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


def _curves(study: _Study, apis: Sequence[ApiCost], rate: float) -> tuple[Curve, ...]:
    question, demand = study.question, study.question.demand
    ways = [(api.prices, api.provisioned) for api in apis]

    def point(
        value: float, units: Sequence[FleetUnit], demand: Demand, requests: Requests, cached: float, at: float = rate
    ) -> CurvePoint:
        months = demand.requests_per_month(at) / 1000.0
        costs = [_api_usd(study, way, demand, requests, cached) for way in ways]
        paid = tuple(api(at) / months for api in costs)
        if not units:
            return CurvePoint(
                value=value, own_usd_per_1000=None, api_usd_per_1000=paid, crossing_per_s=(None,) * len(ways)
            )
        ends = [
            cheapest_fleet(units, demand, at, question.policy, end=end).usd / months for end in ("value", "high", "low")
        ]

        def own(volume: float) -> float:
            return cheapest_fleet(units, demand, volume, question.policy).usd

        grid = volume_grid(rate, (), per_decade=6)
        first = tuple(
            next((found for found, above in find_crossings(own, api, grid) if above == "own fleet"), None)
            for api in costs
        )
        return CurvePoint(value=value, own_usd_per_1000=figure_of(*ends), api_usd_per_1000=paid, crossing_per_s=first)

    cached, requests = question.cached_fraction, study.requests
    volumes = [rate * 10 ** (step / 2) for step in range(-6, 7)]
    resized = _resizer(study)
    return (
        Curve(name="volume", unit="requests a month", points=tuple(
            point(demand.requests_per_month(at), study.units, demand, requests, cached, at) for at in volumes
        )),
        Curve(name="burstiness", unit="variation of the gaps", points=tuple(
            point(value, study.units, replace(demand, variation=value), requests, cached) for value in VARIATIONS
        )),
        Curve(name="cached share", unit="part of the input", points=tuple(
            point(value, resized(requests, value), demand, requests, value) for value in CACHED
        )),
        *((Curve(name="input per output token", unit="tokens", points=tuple(
            point(ratio, resized(changed, cached), demand, changed, cached)
            for ratio, changed in ((ratio, with_ratio(requests, ratio)) for ratio in RATIOS)
        )),) if requests.output_tokens is not None else ()),
    )  # fmt: skip


def _resizer(study: _Study) -> Callable[[Requests, float], tuple[FleetUnit, ...]]:
    """The units sized for other requests, slowed as the verified unit was."""
    factors = {
        unit.key: unit.capacity_per_s.value * unit.option.count / dict(unit.option.run.rates)["requests_per_s"].value
        for unit in study.units
    }

    def resized(requests: Requests, cached: float) -> tuple[FleetUnit, ...]:
        read = study.read_requests(requests, cached)
        if read == study.read_requests(study.requests):
            return study.units
        made = units_for(
            study.workload, read, study.units, study.catalog, reserved_discount=study.question.reserved_discount,
            assumed=study.assumed,
        )  # fmt: skip
        return tuple(unit.slowed(factors.get(unit.key, 1.0)) for unit in made)

    return resized


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
