"""A service under study: which machines its fleet may have, what they cost at a rate, what an API asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tonnage.catalog import Catalog
from tonnage.planning.calibrated_model import CalibratedModel, generates
from tonnage.planning.plan import MachineOption
from tonnage.planning.planner import make_plan
from tonnage.pricing.tokens import TokenPrices
from tonnage.service.answer import BreakEvenQuestion
from tonnage.service.crossings import Cost
from tonnage.service.economics import (
    Demand,
    End,
    MonthFleet,
    burst_factor,
    cheapest_fleet,
    figure_of,
    planned_fleet,
)
from tonnage.service.units import FleetUnit, fleet_units, unit_of, units_for
from tonnage.service.verification import Verified, promise_of, simulated, verify_unit
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import Requests, ServeJob, Workload

MOST_CACHED = 0.99  # of a prompt: its last token is always read


class FleetStudy:
    """The fleet's side of the question: units, and what they cost at a busy rate."""

    def __init__(
        self, workload: Workload, catalog: Catalog, question: BreakEvenQuestion, calibrated: CalibratedModel | None
    ) -> None:
        self.workload, self.catalog, self.question = workload, catalog, question
        self.calibrated = calibrated or CalibratedModel.packaged()
        self.job = self.asked(workload.service.requests)
        sized = replace(workload, job=self.job)
        self.plan = make_plan(sized, catalog, calibrated=self.calibrated)
        found = next((option for option in self.plan.choices if isinstance(option, MachineOption)), None)
        self.planned = None if found is None else self._unit(found)
        self.units: tuple[FleetUnit, ...] = ()
        if self.planned is not None:
            every = fleet_units(
                sized, catalog, reserved_discount=question.reserved_discount, calibrated=self.calibrated,
            )  # fmt: skip
            self.units = (self.planned, *(one for one in every if one.key != self.planned.key))

    def _unit(self, option: MachineOption) -> FleetUnit:
        used = self.calibrated.assumed.target_utilisation
        return unit_of(
            option,
            self.workload,
            self.catalog.services,
            self.plan.choices,
            self.question.reserved_discount,
            used=used,
        )

    def asked(self, requests: Requests, cached: float | None = None) -> ServeJob:
        """The job for these requests, with the spare replicas asked for; a prefix cache of the own fleet holds the
        cached share of their prompts.

        A job that states its own share keeps it.
        """
        job = self.workload.service
        cached = self.question.cached_fraction if cached is None else cached
        share = job.prefix_cache_fraction
        if self.question.own_prefix_cache and cached and not share and generates(job):
            share = min(cached, MOST_CACHED)
        spare = self.question.policy.spare
        return replace(job, requests=requests, prefix_cache_fraction=share, spare_replicas=spare)

    @property
    def requests(self) -> Requests:
        return self.job.requests

    @property
    def usual(self) -> bool:
        """Whether the question is the plan's: p95, Poisson arrivals and no bounds of the fleet."""
        question, policy = self.question, self.question.policy
        return (
            policy.minimum <= 1
            and policy.maximum is None
            and question.quantile == "p95"
            and question.demand.variation == 1.0
        )

    def verify(self) -> Verified | None:
        """Simulates a replica of the fleet at my rate under its planned load.

        The plan's own question is not answered twice: its fleet is kept, and the simulation says whether it holds.
        Bursts and p99 are not in the closed form: there units that carry less are slowed until one that wins holds.
        """
        job = self.job
        if not self.question.verify or job.speculative:  # the simulation knows no speculative decoding
            return None
        done: dict[tuple[object, ...], Verified] = {}
        while self.units:
            unit = self.fleet(job.rate_per_s).unit
            identity = (*unit.key, unit.option.purchase)
            if identity in done:
                return done[identity]
            if not simulated(unit):
                return None
            found = self._verified(unit)
            if self.usual:
                return found
            done[identity] = found
            self.units = tuple(
                one.slowed(found.factor) if one is unit else one
                for one in self.units
                if one is not unit or found.factor
            )
        return None

    def _verified(self, unit: FleetUnit) -> Verified:
        """At the load a replica has while the spare ones are down, at most what fleets are planned to."""
        question = self.question
        variation = question.demand.variation
        planned = unit.pools[0].value * burst_factor(variation, unit.used) * unit.used
        working = self.fleet(self.job.rate_per_s).machines_peak * unit.replicas - question.policy.spare
        load = min(planned, self.job.rate_per_s / max(working, 1.0))
        return verify_unit(
            unit, self.job, promise_of(self.job, question.quantile), self.catalog, load_per_s=load,
            seed=question.seed, variation=variation, calibrated=self.calibrated,
        )  # fmt: skip

    def fleet(self, rate: float, end: End = "value") -> MonthFleet:
        """The cheapest fleet; at the file's own rate on a flat day the plan's, at any other as a plan would size it."""
        if self._is_plans(rate) and end == "value":
            assert self.planned is not None
            return planned_fleet(self.planned)
        return cheapest_fleet(self.units, self.question.demand, rate, self.question.policy, end=end)

    def _is_plans(self, rate: float) -> bool:
        flat = self.question.demand.curve.flat and self.question.reserved_discount is None
        return flat and self.usual and rate == self.job.rate_per_s

    def figure(self, rate: float) -> Figure:
        if self._is_plans(rate):
            assert self.planned is not None
            return self.planned.option.cost_usd
        usd, faster, slower = (self.fleet(rate, end).usd for end in ("value", "high", "low"))
        return figure_of(usd, faster, slower)


Way = tuple[TokenPrices, bool]


def ways_to_buy(prices: Sequence[TokenPrices]) -> list[Way]:
    return [(one, kind) for one in prices for kind in (False, True) if not kind or one.provisioned is not None]


def api_usd(study: FleetStudy, way: Way, demand: Demand, requests: Requests, cached: float) -> Cost:
    """USD a month as a function of the busy rate."""
    prices, provisioned = way
    read, written = study.workload.buy.tokens.of_request(requests)
    each = prices.usd_per_request(
        input_tokens=read, output_tokens=written, cached_fraction=cached, batch=study.question.batch_prices
    )
    tokens = read + written

    def by_token(rate: float) -> float:
        return each * demand.requests_per_month(rate)

    def by_unit(rate: float) -> float:
        hourly = prices.provisioned_usd_per_hour(peak_rate_per_s=rate, tokens_per_request=tokens)
        assert hourly is not None
        return hourly * demand.hours_per_month

    return by_unit if provisioned else by_token


def resizer(study: FleetStudy) -> Callable[[Requests, float], tuple[FleetUnit, ...]]:
    """The units sized for other requests, slowed as the verified unit was."""
    loads = {unit.key: unit.load for unit in study.units}

    def resized(requests: Requests, cached: float) -> tuple[FleetUnit, ...]:
        job = study.asked(requests, cached)
        if job == study.job:
            return study.units
        made = units_for(
            study.workload, job, study.units, study.catalog, reserved_discount=study.question.reserved_discount,
            calibrated=study.calibrated,
        )  # fmt: skip
        return tuple(unit.slowed(loads.get(unit.key, 1.0)) for unit in made)

    return resized
