"""Misses of terms: what the workload allows, prices, time and money."""

from __future__ import annotations

from datetime import date
from math import inf
from typing import ClassVar, Literal

from tonnage.catalog.market import Purchase
from tonnage.planning.reasons.miss import AnyMiss, Unknown
from tonnage.planning.reasons.risks import Promise
from tonnage.pricing.price_dates import PricesApart
from tonnage.values import dataclass
from tonnage.workload.quotas import QuotaUnit

NeededPrice = Literal[
    "dbu", "serving dbu", "ml instance", "managed spot", "vertex", "egress", "tokens", "model units", "hours",
    "customisation",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAllowedMiss(AnyMiss):
    """The workload lists what is allowed, and the candidate is none of it."""

    kind: ClassVar[str] = "not allowed"
    binding: Literal["purchase", "provider", "region", "platform"]
    allowed: tuple[str, ...]
    has: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludedMiss(AnyMiss):
    """The buyer rules the candidate out. `exclusion`: the entry of `constraints.exclude`."""

    kind: ClassVar[str] = "excluded"
    binding: Literal["excluded"] = "excluded"
    exclusion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptibleMiss(AnyMiss):
    """The work must not be interrupted, and spot machines are."""

    kind: ClassVar[str] = "interruptible"
    binding: Literal["interruptible"] = "interruptible"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGpuMiss(AnyMiss):
    """The workload asks for other GPUs. `gpu` None: the machine has none. `api`: a token API, which shows none."""

    kind: ClassVar[str] = "other gpu"
    binding: Literal["gpu"] = "gpu"
    asked: tuple[str, ...]
    gpu: str | None
    gpu_count: float
    api: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidencyMiss(AnyMiss):
    """Data would leave the areas it has to stay in. `area` None: not stated. `priced_for`: where a price of tokens
    holds."""

    kind: ClassVar[str] = "residency"
    binding: Literal["residency"] = "residency"
    areas: tuple[str, ...]
    area: str | None
    priced_for: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPriceMiss(AnyMiss):
    """The machine has no price."""

    kind: ClassVar[str] = "no price"
    binding: Literal["no price"] = "no price"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAsidePriceMiss(AnyMiss):
    """The one price on record is not believed. `why`: what the snapshot says of it."""

    kind: ClassVar[str] = "set aside price"
    binding: Literal["price"] = "price"
    purchase: Purchase
    usd_per_instance_hour: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersededPriceMiss(AnyMiss):
    """The same machine has a newer price, under the name `newer_name`."""

    kind: ClassVar[str] = "superseded price"
    binding: Literal["price"] = "price"
    usd_per_instance_hour: float
    newer_usd_per_instance_hour: float
    newer_read_on: date | None
    newer_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpricedMiss(AnyMiss):
    """A price that the way takes is not known. `name`: of what (a machine, a kind of token, a model, a place)."""

    kind: ClassVar[str] = "unpriced"
    binding: Literal["price"] = "price"
    of: NeededPrice
    name: str = ""
    sku: str = ""  # of a Databricks unit
    size_gb: float | None = None  # of data that moves
    apart: PricesApart | None = None  # a price is held, and cannot be set against the machine's


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownLatencyMiss(AnyMiss):
    """A latency is promised, and that of a token API is not known. `usd`: what it would cost."""

    kind: ClassVar[str] = "unknown latency"
    binding: Literal["latency"] = "latency"
    promise: Promise
    promised_s: float
    usd: float

    @property
    def unknown(self) -> Unknown | None:
        return "p95 TTFT" if self.promise == "ttft" else "p95 latency"

    @property
    def would_cost_usd(self) -> float | None:
        return self.usd


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowApiMiss(AnyMiss):
    """The latency that the workload states of a token API is above the promise."""

    kind: ClassVar[str] = "slow api"
    binding: Literal["latency"] = "latency"
    promise: Promise
    stated_s: float
    promised_s: float
    usd: float

    @property
    def would_cost_usd(self) -> float | None:
        return self.usd

    @property
    def shortfall(self) -> float:
        return self.stated_s / self.promised_s


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownFinishMiss(AnyMiss):
    """There is a deadline, or time ranks, and when a token API is done is not known. `usd`: what it would cost."""

    kind: ClassVar[str] = "unknown finish"
    binding: Literal["deadline", "time"]
    deadline_s: float | None
    usd: float

    @property
    def unknown(self) -> Unknown | None:
        return "throughput"

    @property
    def would_cost_usd(self) -> float | None:
        return self.usd


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaMiss(AnyMiss):
    """The account may use fewer tokens a minute than the busy time asks for."""

    kind: ClassVar[str] = "quota"
    binding: Literal["rate"] = "rate"
    needed_tokens_per_minute: float
    allowed_tokens_per_minute: float

    @property
    def shortfall(self) -> float:
        return self.needed_tokens_per_minute / self.allowed_tokens_per_minute


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountQuotaMiss(AnyMiss):
    """The account may run fewer such machines. `name`: the quota's."""

    kind: ClassVar[str] = "account quota"
    binding: Literal["quota"] = "quota"
    needed: float
    limit: float
    unit: QuotaUnit
    name: str

    @property
    def shortfall(self) -> float:
        return self.needed / self.limit if self.limit else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineMiss(AnyMiss):
    """The work ends after the deadline."""

    kind: ClassVar[str] = "deadline"
    binding: Literal["deadline"] = "deadline"
    needed_s: float
    deadline_s: float

    @property
    def shortfall(self) -> float:
        return self.needed_s / self.deadline_s


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetMiss(AnyMiss):
    """The work costs more than the budget."""

    kind: ClassVar[str] = "budget"
    binding: Literal["budget"] = "budget"
    needed_usd: float
    budget_usd: float

    @property
    def shortfall(self) -> float:
        return self.needed_usd / self.budget_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSpareMiss(AnyMiss):
    """A service on spot machines has no replica to spare while they are replaced."""

    kind: ClassVar[str] = "no spare"
    binding: Literal["interruptible"] = "interruptible"


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverDoneMiss(AnyMiss):
    """Interrupted as often as expected, the work is never done."""

    kind: ClassVar[str] = "never done"
    binding: Literal["interruptible"] = "interruptible"
