"""The answer: ranked options, what was refused and why, what the job needs, how old the prices are."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import ClassVar, Literal, TypeVar

from tonnage.catalog.market import Platform, Purchase
from tonnage.planning.intervals import Interval
from tonnage.planning.layouts.fleets import ReplicaFleet
from tonnage.planning.reasons.changes import RelaxingChange
from tonnage.planning.reasons.distances import Distance
from tonnage.planning.reasons.flips import Flip
from tonnage.planning.reasons.miss import Binding, Unknown
from tonnage.planning.reasons.misses import Miss
from tonnage.planning.reasons.notes import PlanNote, RunNote
from tonnage.planning.reasons.origins import Origin
from tonnage.planning.reasons.risks import Doubt, DoubtLevel, PriceRisk, Promise, Risk, doubt_level
from tonnage.pricing.ledger import Ledger
from tonnage.sizing.devices import HostStage
from tonnage.sizing.estimates import Figure
from tonnage.spot_instances.detail import SpotDetail
from tonnage.values import dataclass

Objective = Literal["cost", "time", "pareto"]
Bought = Purchase | Literal["batch", "provisioned"]  # the last two: tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShare:
    """What all hosts of an option get ready, against what its devices would take. None: their vCPUs are not stated."""

    stage: HostStage
    vcpus: float | None  # of one machine
    items_per_s: Figure | None
    devices_per_s: float
    needed_vcpus: float  # of all machines, to keep up with the devices; 0: the processors do nothing

    @property
    def binds(self) -> bool:
        """Whether the hosts hold the devices up."""
        return self.items_per_s is not None and self.items_per_s.value < self.devices_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """How one machine type x count does the work: layout, and every predicted figure with its breakdown."""

    layout: str
    layout_fields: tuple[tuple[str, int | str], ...]
    time_s: Figure | None  # None for a service, which has no end
    time_parts: tuple[tuple[str, float], ...]  # seconds, of one step or pass
    time_parts_of: str  # what the parts are of: "step", "request"...
    memory_gib: Figure  # per device (host memory where there is no device)
    memory_parts_gib: tuple[tuple[str, float], ...]
    memory_available_gib: float
    rates: tuple[tuple[str, Figure], ...]  # "samples_per_s", "tokens_per_s"...
    latency_p95_s: Figure | None = None
    ttft_p95_s: Figure | None = None  # where tokens are generated
    tpot_p95_s: Figure | None = None  # per token after the first
    percentiles: tuple[tuple[str, tuple[tuple[str, float], ...]], ...] = ()  # ttft, tpot, latency: mean, p50 ... p99
    promise: Promise = "latency"
    utilisation: float | None = None  # of a service: its busy rate over the capacity of all replicas held
    notes: tuple[RunNote, ...] = ()
    intervals: tuple[Interval, ...] = ()  # behind time, memory, latency, rate
    host: HostShare | None = None  # None: the host does nothing that could hold devices up
    fleet: ReplicaFleet | None = None  # of a service


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseOption:
    """What every way to do the work that meets every constraint has: what is bought, and what it costs."""

    rank: int
    provider: str
    instance_type: str  # of tokens: the model
    region: str
    purchase: Bought
    platform: Platform
    count: int  # instances; of tokens: model units, or 1
    price_read_on: date | None
    time_s: Figure | None  # wall clock: start-up, checkpoints and re-done work included
    cost_usd: Figure  # of the job; of a month for a service
    ledger: Ledger
    risks: tuple[Risk, ...]
    pareto: bool
    loses_by: Distance | None  # None: the winner

    @property
    def price_doubts(self) -> tuple[PriceRisk, ...]:
        """Why one would not rely on the price."""
        return tuple(risk for risk in self.risks if isinstance(risk, PriceRisk))

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Why one would not rely on it: on its price, or on a host whose vCPUs are not stated."""
        return tuple(risk for risk in self.risks if isinstance(risk, Doubt))

    @property
    def relied_on(self) -> bool:
        """Whether the price is dated, young, like its kind's, and of a data centre, and the host known to keep up."""
        return not self.doubts

    @property
    def doubt_level(self) -> DoubtLevel:
        """0 where it is relied on; 1 where only the fee of its platform is doubted; else 2."""
        return doubt_level(self.doubts)

    @property
    def identity(self) -> tuple[str, str, str, str, int]:
        return (self.provider, self.instance_type, self.region, self.purchase, self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOption(BaseOption):
    """Machines that do the work."""

    gpu: str | None
    gpu_count: float  # per instance
    usd_per_instance_hour: float
    run: RunDetail
    spot: SpotDetail | None = None  # of work on spot that ends

    @property
    def layout(self) -> str:
        return self.run.layout

    @property
    def latency_p95_s(self) -> Figure | None:
        return self.run.latency_p95_s

    @property
    def ttft_p95_s(self) -> Figure | None:
        return self.run.ttft_p95_s

    @property
    def promised(self) -> tuple[Promise, Figure] | None:
        """What a service promised and its 95th percentile; None for work that has an end."""
        known = {"latency": self.latency_p95_s, "ttft": self.ttft_p95_s, "tpot": self.run.tpot_p95_s}
        of: Promise = "latency" if known[self.run.promise] is None else self.run.promise
        figure = known[of]
        return None if figure is None else (of, figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOption(BaseOption):
    """Tokens of a model that a platform runs or trains, on no machine of the buyer's; latencies as the buyer states."""

    training: bool
    input_tokens: int
    output_tokens: int
    latency_p95_s: Figure | None
    ttft_p95_s: Figure | None
    gpu: ClassVar[None] = None
    gpu_count: ClassVar[float] = 0.0
    usd_per_instance_hour: ClassVar[None] = None
    spot: ClassVar[None] = None

    @property
    def layout(self) -> str:
        return "learning on the platform" if self.training else "tokens through an API"

    @property
    def promised(self) -> tuple[Promise, Figure] | None:
        return None if self.latency_p95_s is None else ("latency", self.latency_p95_s)


Option = MachineOption | TokenOption
Some = TypeVar("Some", bound=BaseOption)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A candidate that is out, and why."""

    provider: str
    instance_type: str
    region: str
    purchase: Bought | None
    count: int
    gpu: str | None
    gpu_count: float
    miss: Miss
    platform: Platform = "vm"

    @property
    def binding(self) -> Binding:
        """The limit that binds."""
        return self.miss.binding

    @property
    def shortfall(self) -> float:
        """How near the miss is: what is needed over what there is, else infinity."""
        return self.miss.shortfall

    @property
    def unknown(self) -> Unknown | None:
        """The unknown figure, where the candidate is out for that and not for what it is."""
        return self.miss.unknown

    @property
    def would_cost_usd(self) -> float | None:
        """What it would cost, were that known and good."""
        return self.miss.would_cost_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskAccepted:
    """The option that would be best if the memory need only fit on its expected figure."""

    risk: Literal["memory"]
    option: MachineOption
    saves_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTrusted:
    """The option that would be best if any were relied on: at a price that is undated, old, odd, or of a community
    host,
    or with a host whose vCPUs are not stated."""

    option: Option
    saves_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownAnswered:
    """A candidate that is out because of an unknown figure, and would win if the figure were good."""

    candidate: Option | Refusal
    unknown: Unknown
    cost_usd: float
    saves_usd: float


Cheaper = RiskAccepted | PriceTrusted | UnknownAnswered


@dataclass(frozen=True, slots=True, kw_only=True)
class NearMiss:
    """A refusal, and changes that were tried and let the candidate in."""

    refusal: Refusal
    flip: Flip


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """A single constraint whose removal gives an option, and the best one then."""

    change: RelaxingChange
    best: Option


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What the job needs wherever it runs: (key with unit, figure, how it was found)."""

    figures: tuple[tuple[str, Figure, Origin], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogStamp:
    """Which prices the plan is based on."""

    snapshot: str
    built_on: date
    oldest_price: date | None
    undated_prices: int
    offers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole answer. `options` are ranked; `refused` holds one entry per instance type and purchase."""

    name: str
    kind: str
    summary: tuple[tuple[str, str], ...]  # the workload in words: (label, value)
    objective: Objective
    as_of: datetime
    horizon: Literal["job", "month"]
    need: Need
    options: tuple[Option, ...]
    refused: tuple[Refusal, ...]
    catalog: CatalogStamp
    notes: tuple[PlanNote, ...]
    cheaper: tuple[Cheaper, ...] = ()  # what would win but for a risk, a doubted price, an unknown
    relaxations: tuple[Relaxation, ...] = ()  # where nothing fits: single constraints whose removal gives an option
    nearest_misses: tuple[NearMiss, ...] = ()  # where nothing fits: up to three, their changes tried and found to fit

    any_price: bool = False  # the workload trusts any price

    @property
    def choices(self) -> tuple[Option, ...]:
        """The options that may win: those of the least doubt (`may_win`)."""
        return may_win(self.options, any_price=self.any_price)

    @property
    def best(self) -> Option | None:
        return self.options[0] if self.options else None


def may_win(options: Iterable[Some], *, any_price: bool) -> tuple[Some, ...]:
    """Those of `options` whose price is least in doubt; all of them where any price is trusted.

    Where a platform's every fee is old or estimated, that is no reason to take a machine's undated price there: the
    same rule holds for the machine's price wherever it is sold.
    """
    listed = tuple(options)
    least = min((option.doubt_level for option in listed), default=0)
    return tuple(option for option in listed if any_price or option.doubt_level == least)
