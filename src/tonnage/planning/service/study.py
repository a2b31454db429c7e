"""A service under study: which machines its fleet may have, what they cost at a rate, what an API asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tonnage.catalog import Catalog
from tonnage.planning.grounds import Grounds
from tonnage.planning.service.answer import Question
from tonnage.planning.service.crossings import Cost
from tonnage.planning.service.economics import Demand, End, MonthFleet, burst_factor, cheapest_fleet, figure_of
from tonnage.planning.service.units import FleetUnit, capacity_plan, fleet_units, units_for
from tonnage.planning.service.verification import Verified, promise_of, verify_unit
from tonnage.pricing.tokens import TokenPrices
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import Requests, ServeJob, Workload


class Study:
    """The fleet's side of the question: units, and what they cost at a rate."""

    def __init__(self, workload: Workload, catalog: Catalog, question: Question, grounds: Grounds | None) -> None:
        assert isinstance(workload.job, ServeJob)
        self.workload, self.catalog, self.question, self.grounds = workload, catalog, question, grounds
        self.requests = workload.job.requests
        sized = replace(workload, job=replace(workload.job, requests=self.read_requests(self.requests)))
        self.plan = capacity_plan(sized, catalog, grounds)
        self.units = fleet_units(self.plan, catalog, reserved_discount=question.reserved_discount)

    def read_requests(self, requests: Requests, cached: float | None = None) -> Requests:
        """Requests as the own fleet reads them: without cached input where it has a prefix cache.

        A job that states its own share is sized with it.
        """
        job = self.workload.job
        if isinstance(job, ServeJob) and job.prefix_cache_fraction:
            return requests
        cached = self.question.cached_fraction if cached is None else cached
        if not (self.question.own_prefix_cache and cached):
            return requests
        prompt = requests.input_tokens
        left = replace(prompt, mean=max(prompt.mean * (1.0 - cached), 1.0))
        return replace(requests, input_tokens=left)

    def verify(self) -> Verified | None:
        """Simulates the unit that wins at my rate; a unit that carries less is slowed, until a verified one wins."""
        job = self.workload.job
        assert isinstance(job, ServeJob)
        if not self.question.verify or job.prefix_cache_fraction or job.speculative:  # the simulation knows neither
            return None
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
                seed=self.question.seed, variation=variation, load_factor=burst_factor(variation), grounds=self.grounds,
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


def ways_to_buy(prices: Sequence[TokenPrices]) -> list[Way]:
    return [(one, kind) for one in prices for kind in (False, True) if not kind or one.provisioned is not None]


def api_usd(study: Study, way: Way, demand: Demand, requests: Requests, cached: float) -> Cost:
    """USD a month as a function of the mean rate."""
    prices, provisioned = way
    read, written = study.workload.buy.tokens.of_request(requests)
    each = prices.usd_per_request(
        input_tokens=read, output_tokens=written, cached_fraction=cached, batch=study.question.batch_prices
    )
    tokens = read + written

    def by_token(rate: float) -> float:
        return each * demand.requests_per_month(rate)

    def by_unit(rate: float) -> float:
        hourly = prices.provisioned_usd_per_hour(peak_rate_per_s=rate * demand.curve.peak, tokens_per_request=tokens)
        assert hourly is not None
        return hourly * demand.hours_per_month

    return by_unit if provisioned else by_token


def resizer(study: Study) -> Callable[[Requests, float], tuple[FleetUnit, ...]]:
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
            grounds=study.grounds,
        )  # fmt: skip
        return tuple(unit.slowed(factors.get(unit.key, 1.0)) for unit in made)

    return resized
