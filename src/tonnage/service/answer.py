"""The answer of a break-even: the fleet, its cost, prices per token beside it, curves."""

from __future__ import annotations

from tonnage.planning.plan import CatalogStamp, Plan
from tonnage.pricing.tokens import TokenPrices
from tonnage.service.autoscaling import Autoscaling
from tonnage.service.crossings import Crossing
from tonnage.service.economics import Demand, MonthFleet
from tonnage.service.verification import Quantile, Verified
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass
from tonnage.workload.jobs import ServeJob, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEvenQuestion:
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
class CostCurve:
    """Costs as one thing varies and the rest stays."""

    name: str  # "volume", "burstiness", "cached share", "input per output token"
    unit: str
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """The whole answer for a service. `fleet` None: no machine keeps the promise. `standing`: the plan's fleet."""

    workload: Workload
    question: BreakEvenQuestion
    fleet: MonthFleet | None
    standing: MonthFleet | None
    verified: Verified | None
    usd_per_month: Figure | None
    apis: tuple[ApiCost, ...]
    curves: tuple[CostCurve, ...]
    volumes_per_s: tuple[float, float]  # busy rates that were looked at
    catalog: CatalogStamp
    refused: int
    plan: Plan

    @property
    def job(self) -> ServeJob:
        return self.workload.service

    @property
    def requests_per_month(self) -> float:
        return self.question.demand.requests_per_month(self.job.rate_per_s)
