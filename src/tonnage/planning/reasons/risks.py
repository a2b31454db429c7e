"""What may break an option's promise: a closed set of kinds, each with its figures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from tonnage.catalog.capacity import CapacityWay
from tonnage.catalog.expected_prices import PriceDoubt
from tonnage.catalog.market import Platform
from tonnage.pricing.deals import OddPremium
from tonnage.pricing.fee_estimates import Parts
from tonnage.reason import Reason
from tonnage.sizing.devices import HostStage
from tonnage.values import dataclass
from tonnage.workload.jobs import Promise as Promise


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineRisk(Reason):
    """The 80 % interval of the time ends after the deadline."""

    kind: ClassVar[str] = "deadline"
    reaches_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRisk(Reason):
    """The 80 % interval of a promised 95th percentile ends above the promise."""

    kind: ClassVar[str] = "latency"
    promise: Promise
    reaches_s: float
    promised_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRisk(Reason):
    """The 80 % interval of the memory ends above what the device has."""

    kind: ClassVar[str] = "memory"
    reaches_gib: float
    available_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmeasuredRisk(Reason):
    """No measured row has these devices, precisions or engines: the prediction follows published figures."""

    kind: ClassVar[str] = "unmeasured"
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OddPriceRisk(Reason):
    """The machine's price is far from the prices of its like."""

    kind: ClassVar[str] = "odd price"
    doubt: PriceDoubt


@dataclass(frozen=True, slots=True, kw_only=True)
class OddPremiumRisk(Reason):
    """A platform's price is far from its usual multiple of the plain machine's."""

    kind: ClassVar[str] = "odd premium"
    platform: Platform
    doubt: OddPremium


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedFeeRisk(Reason):
    """A platform's fee was not read but estimated from its parts; its ends are dollars an hour of one machine."""

    kind: ClassVar[str] = "estimated fee"
    platform: Platform
    parts: Parts
    line: str  # how the ledger's line of the fee begins
    usd_per_instance_hour: float
    low_usd_per_instance_hour: float
    high_usd_per_instance_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRisk(Reason):
    """The machines may be interrupted, or not be there to rent."""

    kind: ClassVar[str] = "spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class UndatedPriceRisk(Reason):
    """The price states no date; `platform`: the platform whose fee it is, None for the machine or the tokens."""

    kind: ClassVar[str] = "undated price"
    platform: Platform | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OldPriceRisk(Reason):
    """The price is older than the plan accepts; `platform` as in `UndatedPriceRisk`."""

    kind: ClassVar[str] = "old price"
    age_days: int
    platform: Platform | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunityHostRisk(Reason):
    """The host belongs to a private person rather than to a data centre."""

    kind: ClassVar[str] = "community host"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentRisk(Reason):
    """The price requires a commitment to the whole term. `usd`: all machines over the term, before discounts."""

    kind: ClassVar[str] = "commitment"
    years: float
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRisk(Reason):
    """A Databricks cluster of several machines needs a driver that the ledger does not hold."""

    kind: ClassVar[str] = "driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRisk(Reason):
    """The machine may not be had at once. `lead_days`: how long ahead it is reserved, or a raised quota takes, at most;
    `longest_days`: of one reservation."""

    kind: ClassVar[str] = "capacity"
    way: CapacityWay
    lead_days: float | None
    longest_days: float | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FewVcpusRisk(Reason):
    """The machine has few vCPUs to feed each of its GPUs."""

    kind: ClassVar[str] = "few vcpus"
    vcpus_per_gpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimitRisk(Reason):
    """The hosts get fewer items ready than the devices take: figures of the option are the hosts'. `vcpus`: of one
    machine."""

    kind: ClassVar[str] = "host limit"
    stage: HostStage
    vcpus: float | None
    items_per_s: float
    devices_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownHostRisk(Reason):
    """How many vCPUs the machine has is not stated: whether its host keeps up is not known. `needed_vcpus`: of one
    machine."""

    kind: ClassVar[str] = "unknown host"
    stage: HostStage
    needed_vcpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemoryRisk(Reason):
    """The weights are larger than the memory of the host that loads them."""

    kind: ClassVar[str] = "host memory"
    weights_gib: float
    memory_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownFinishRisk(Reason):
    """The throughput of a token API is not published."""

    kind: ClassVar[str] = "unknown finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownQuotaRisk(Reason):
    """How many tokens a minute the account may use is not stated. `needed`: what the service asks at its busy time."""

    kind: ClassVar[str] = "unknown quota"
    needed_tokens_per_minute: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyRateRisk(Reason):
    """Tokens are counted at the busy rate all month, as no mean load is stated."""

    kind: ClassVar[str] = "busy rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherModelRisk(Reason):
    """The workload names a model of the API that may be another than its own."""

    kind: ClassVar[str] = "other model"
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInRisk(Reason):
    """The API's model of the same name stands for the workload's model."""

    kind: ClassVar[str] = "stand-in"
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionsRisk(Reason):
    """The source of the price states conditions. `conditions`: the source's own words."""

    kind: ClassVar[str] = "conditions"
    of: Literal["price", "batch price"]
    conditions: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnitsRisk(Reason):
    """Throughput is bought by the model unit. `commitment_months` 0: without commitment."""

    kind: ClassVar[str] = "model units"
    commitment_months: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpricedStorageRisk(Reason):
    """No price says what keeping the customised model costs."""

    kind: ClassVar[str] = "unpriced storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmHostRisk(Reason):
    """The host's processors are Arm: what was built for x86-64 must be built again."""

    kind: ClassVar[str] = "arm64 host"


@dataclass(frozen=True, slots=True, kw_only=True)
class RocmRisk(Reason):
    """The devices run ROCm, not CUDA: what was built for CUDA must be built again."""

    kind: ClassVar[str] = "rocm"
    device: str


PriceRisk = (  # a price with one of these is not relied on
    OddPriceRisk | OddPremiumRisk | UndatedPriceRisk | OldPriceRisk | EstimatedFeeRisk | CommunityHostRisk
)
Doubt = PriceRisk | UnknownHostRisk  # an option with one of these wins only where none is without
DoubtLevel = Literal[0, 1, 2]  # 0: no doubt; 1: of a platform's fee alone; 2: of the machine's or the tokens' price too
Risk = (
    DeadlineRisk
    | LatencyRisk
    | MemoryRisk
    | UnmeasuredRisk
    | OddPriceRisk
    | OddPremiumRisk
    | EstimatedFeeRisk
    | SpotRisk
    | UndatedPriceRisk
    | OldPriceRisk
    | CommunityHostRisk
    | CommitmentRisk
    | DriverRisk
    | CapacityRisk
    | FewVcpusRisk
    | HostLimitRisk
    | UnknownHostRisk
    | HostMemoryRisk
    | UnknownFinishRisk
    | UnknownQuotaRisk
    | BusyRateRisk
    | OtherModelRisk
    | StandInRisk
    | ConditionsRisk
    | ModelUnitsRisk
    | UnpricedStorageRisk
    | ArmHostRisk
    | RocmRisk
)


def doubt_level(doubts: Iterable[Doubt]) -> DoubtLevel:
    """How far a price is in doubt: in its platform's fee alone, or in that of the machine itself.

    >>> doubt_level([]), doubt_level([OldPriceRisk(age_days=666, platform="databricks")])
    (0, 1)
    >>> doubt_level([OldPriceRisk(age_days=666, platform="databricks"), UndatedPriceRisk()])
    2
    """
    found = list(doubts)
    if not found:
        return 0
    return 1 if all(getattr(one, "platform", None) is not None for one in found) else 2
