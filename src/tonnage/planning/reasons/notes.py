"""What a reader must know before relying on a plan or a run: a closed set of kinds, each with its figures."""

from __future__ import annotations

from typing import ClassVar, Literal

from tonnage.catalog.market import Purchase
from tonnage.planning.intervals import Interval
from tonnage.reason import Reason
from tonnage.values import dataclass

UnpricedService = Literal["object storage", "block storage"]
UnreadPlatform = Literal["databricks", "vertex"]  # no source states the prices of their endpoints
TermName = Literal["startup_s", "checkpoint_gb_per_s", "spot_interruptions_per_hour"]
EngineClass = Literal[  # every class of `sizing.engines`
    "eager", "captured", "graph", "traced", "compiled", "inductor", "optimised", "converted", "library", "fused",
    "static-llm", "hosted-llm", "llm", "llm-python",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutPriceNote(Reason):
    """A row of the snapshot is not used as a price. `row`: its place and its fault, as the reader found it."""

    kind: ClassVar[str] = "left-out price"
    row: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreLeftOutNote(Reason):
    """As many further rows of the snapshot are not used as prices."""

    kind: ClassVar[str] = "more left-out prices"
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOffersNote(Reason):
    """The catalog has no price of a purchase mode that the workload allows."""

    kind: ClassVar[str] = "no offers"
    purchase: Purchase


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedTerm:
    """A term that the workload leaves open: the value taken, and the range it may have. The name ends with the unit."""

    name: TermName
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedTermsNote(Reason):
    """Terms of starting, saving and losing machines that the workload does not state."""

    kind: ClassVar[str] = "assumed terms"
    terms: tuple[AssumedTerm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAboveSamplesNote(Reason):
    """The global batch is larger than the samples of an epoch: a step is counted as full, and none is."""

    kind: ClassVar[str] = "batch above samples"
    global_batch: int
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpricedServiceNote(Reason):
    """A service that the workload uses is in the totals only at the `sellers`, and there not in every region."""

    kind: ClassVar[str] = "unpriced service"
    service: UnpricedService
    sellers: tuple[str, ...]  # none: in no total


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadPlatformNote(Reason):
    """The platform sells this kind of work at prices that no source here states, so it is left out unless named."""

    kind: ClassVar[str] = "unread platform"
    platform: UnreadPlatform


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineNote(Reason):
    """The engine whose inference figures the plan has. `engine` None: the workload names none."""

    kind: ClassVar[str] = "engine"
    engine: str | None
    engine_class: EngineClass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedFormNote(Reason):
    """The 95th percentiles are closed forms for steady arrivals rather than simulated."""

    kind: ClassVar[str] = "closed form"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedIntervalsNote(Reason):
    """No measured rows are behind the 80 % intervals."""

    kind: ClassVar[str] = "judged intervals"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalsNote(Reason):
    """The calibration and the measured rows behind the 80 % intervals of the first option."""

    kind: ClassVar[str] = "intervals"
    calibrated_on: str | None  # as a date; None: not calibrated
    intervals: tuple[Interval, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadNote(Reason):
    """How full the fleet is. `promised`: of what it carries within its promise, rather than at most."""

    kind: ClassVar[str] = "load"
    load_fraction: float
    planned_fraction: float
    promised: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoadNote(Reason):
    """How full the replicas that read prompts are, and those that write answers."""

    kind: ClassVar[str] = "pool load"
    prefill_fraction: float
    decode_fraction: float
    planned_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontEndNote(Reason):
    """The engine's front end, rather than the device, limits a replica."""

    kind: ClassVar[str] = "front end"
    engine: str
    accept_s: float  # of one request


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorNote(Reason):
    """The allocator may hold more memory than the run needs, while there is room."""

    kind: ClassVar[str] = "allocator"
    held_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCapacityNote(Reason):
    """Capacity is held for all workloads of a portfolio at once; runs of one workload are spread over the month."""

    kind: ClassVar[str] = "shared capacity"
    hours_per_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedHoursNote(Reason):
    """Committed hours are paid whether used or not; only work bought on demand moves to them."""

    kind: ClassVar[str] = "committed hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedLeftOutNote(Reason):
    """Reserved prices of single workloads are left out of a portfolio, which buys its own reserved base."""

    kind: ClassVar[str] = "reserved left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesNote(Reason):
    """Shares of providers are of the expected spend and hold within a tolerance."""

    kind: ClassVar[str] = "shares"
    tolerance_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledFleetNote(Reason):
    """The machines of a service come and go with its traffic, by the control law of `tonnage serve --replicas`: what
    they take on a simulated mean day, beside the fixed fleet for the busy rate. `kept_fraction`: of requests, those
    that find a machine below the most it carries within the promise."""

    kind: ClassVar[str] = "scaled fleet"
    least_machines: int
    most_machines: int
    machine_hours_per_day: float
    fixed_machines: int
    fixed_machine_hours_per_day: float
    kept_fraction: float
    start_up_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedFleetNote(Reason):
    """The machines of a service stay on: simulated on its traffic, the control law keeps the promise to too few, or
    takes no fewer machine-hours."""

    kind: ClassVar[str] = "fixed fleet"
    machines: int
    kept_fraction: float
    start_up_s: float


RunNote = LoadNote | PoolLoadNote | FrontEndNote | AllocatorNote | ScaledFleetNote | FixedFleetNote
PortfolioNote = (
    LeftOutPriceNote | MoreLeftOutNote | SharedCapacityNote | CommittedHoursNote | ReservedLeftOutNote | SharesNote
)
PlanNote = (
    LeftOutPriceNote
    | MoreLeftOutNote
    | NoOffersNote
    | AssumedTermsNote
    | BatchAboveSamplesNote
    | UnpricedServiceNote
    | UnreadPlatformNote
    | EngineNote
    | ClosedFormNote
    | JudgedIntervalsNote
    | IntervalsNote
)
Note = PlanNote | SharedCapacityNote | CommittedHoursNote | ReservedLeftOutNote | SharesNote | RunNote
