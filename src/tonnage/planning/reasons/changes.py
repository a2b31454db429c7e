"""Changes that would let a candidate in or make it win: of the workload, of the machine, of what is known."""

from __future__ import annotations

from typing import ClassVar, Literal

from tonnage.catalog.market import Platform, Purchase
from tonnage.planning.reasons.risks import Promise
from tonnage.reason import Reason
from tonnage.values import dataclass
from tonnage.workload.jobs import Risk as Limit
from tonnage.workload.quotas import QuotaUnit

ListKey = Literal["providers", "regions", "residency", "platforms", "gpus"]
FreeKey = Literal[
    "gpus", "providers", "regions", "residency", "platforms", "deadline", "budget_usd", "max_gpus", "exclude", "quotas"
]
JobField = Literal[
    "spare_replicas", "replicas", "concurrency", "batch", "weights", "engine", "method", "optimizer", "attention",
    "recompute", "micro_batch", "precision",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Include(Reason):
    """A constraint that lists what is allowed gets one more entry."""

    kind: ClassVar[str] = "include"
    key: ListKey
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOut(Reason):
    """A constraint is left out."""

    kind: ClassVar[str] = "leave out"
    key: FreeKey


@dataclass(frozen=True, slots=True, kw_only=True)
class DropExclusion(Reason):
    """One entry of `constraints.exclude` is taken out. `exclusion`: as it is written."""

    kind: ClassVar[str] = "drop exclusion"
    exclusion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowSpot(Reason):
    """Machines may be interrupted, and spot may be bought."""

    kind: ClassVar[str] = "allow spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Buy(Reason):
    """One more way to buy."""

    kind: ClassVar[str] = "buy"
    purchase: Purchase


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowInterruptions(Reason):
    """Machines may be interrupted."""

    kind: ClassVar[str] = "allow interruptions"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptRisk(Reason):
    """A limit need hold on the expected figure only."""

    kind: ClassVar[str] = "accept risk"
    limit: Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustAny(Reason):
    """Any price is relied on: undated, old, odd, or of a community host."""

    kind: ClassVar[str] = "trust any"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlyPlatform(Reason):
    """One platform alone is allowed."""

    kind: ClassVar[str] = "only platform"
    platform: Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveDeadline(Reason):
    """The deadline is this far away."""

    kind: ClassVar[str] = "deadline"
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveBudget(Reason):
    """The budget is this high."""

    kind: ClassVar[str] = "budget"
    budget_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePromise(Reason):
    """A promised 95th percentile is this long."""

    kind: ClassVar[str] = "promise"
    promise: Promise
    promised_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRate(Reason):
    """So many requests arrive."""

    kind: ClassVar[str] = "rate"
    rate_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveQuota(Reason):
    """The account may use so many tokens a minute."""

    kind: ClassVar[str] = "quota"
    tokens_per_minute: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseQuota(Reason):
    """The account's quota of machines is this high."""

    kind: ClassVar[str] = "raise quota"
    provider: str
    name: str
    unit: QuotaUnit
    before: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveMaxGpus(Reason):
    """So many GPUs may be taken."""

    kind: ClassVar[str] = "max gpus"
    max_gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreNodes(Reason):
    """The job may take so many machines."""

    kind: ClassVar[str] = "nodes"
    max_nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetField(Reason):
    """A key of the job has another value. `alike`: values that would do as well."""

    kind: ClassVar[str] = "set"
    key: JobField
    value: str | int
    alike: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UseFp16(Reason):
    """The job is in fp16. `stated`: the number format that it replaces."""

    kind: ClassVar[str] = "fp16"
    stated: str = "bf16"


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSequences(Reason):
    """Sequences are cut at so many tokens."""

    kind: ClassVar[str] = "cut sequences"
    maximum_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FewerOutputTokens(Reason):
    """A request answers with about so many tokens."""

    kind: ClassVar[str] = "fewer output tokens"
    mean_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallerTable(Reason):
    """Rows times features fall by a share."""

    kind: ClassVar[str] = "smaller table"
    fall_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DivideBatch(Reason):
    """The global batch is a multiple of the GPUs, and as many GPUs are allowed."""

    kind: ClassVar[str] = "divide batch"
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DivideGpus(Reason):
    """The layout's degrees multiply to a divisor of the machine's GPUs."""

    kind: ClassVar[str] = "divide gpus"
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeMachines(Reason):
    """The layout's GPUs fill machines. `one_machine`: exactly one."""

    kind: ClassVar[str] = "whole machines"
    gpus_per_machine: int
    one_machine: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPools(Reason):
    """The layout has so many replicas that read prompts, and so many that write answers."""

    kind: ClassVar[str] = "set pools"
    prefill_replicas: int
    decode_replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FewerPoolReplicas(Reason):
    """Both pools together have at most so many replicas, which one machine holds."""

    kind: ClassVar[str] = "fewer pool replicas"
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LongerPromises(Reason):
    """The promises are longer."""

    kind: ClassVar[str] = "longer promises"


@dataclass(frozen=True, slots=True, kw_only=True)
class RarerInterruptions(Reason):
    """Machines are interrupted less often, or checkpoints are saved more often."""

    kind: ClassVar[str] = "rarer interruptions"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankByCost(Reason):
    """The plan ranks by cost, which needs no finish time."""

    kind: ClassVar[str] = "rank by cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class FasterWork(Reason):
    """The work runs so many times as fast."""

    kind: ClassVar[str] = "faster work"
    times: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerPrice(Reason):
    """The price falls by a share."""

    kind: ClassVar[str] = "lower price"
    fall_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePrice(Reason):
    """The machine costs this much. `of`: the machine with what a platform adds, or the machine without that fee."""

    kind: ClassVar[str] = "price"
    usd_per_instance_hour: float
    fall_fraction: float
    of: Literal["machine", "machine without fee"] = "machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount(Reason):
    """A platform takes a share off its price of one product."""

    kind: ClassVar[str] = "discount"
    platform: Platform
    sku: str
    off_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FasterGpus(Reason):
    """The GPUs' rates, memory, links and power are so many times as high."""

    kind: ClassVar[str] = "faster gpus"
    times: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreMemory(Reason):
    """Each GPU (or machine) has this much memory."""

    kind: ClassVar[str] = "more memory"
    holder: Literal["GPU", "machine"]
    memory_gib: float
    before_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LargerGpus(Reason):
    """The machine has more or larger GPUs, so that they hold the weights."""

    kind: ClassVar[str] = "larger gpus"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeGpu(Reason):
    """Another machine, with a GPU: nothing makes this one do the work."""

    kind: ClassVar[str] = "take gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainMlp(Reason):
    """An MLP in place of trees, or a GPU that runs CUDA."""

    kind: ClassVar[str] = "train mlp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Reason):
    """Somebody publishes what is not known."""

    kind: ClassVar[str] = "publish"
    what: Literal[
        "price", "price of today", "newer price", "regions", "figure", "link bandwidth", "rate of a slice", "compiler"
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Reason):
    """The workload states under `key` what its owner alone knows."""

    kind: ClassVar[str] = "state"
    key: str
    of: Literal["price", "quota", "measured", "units", "carried"]


TermChange = (  # what may be bought, and from whom
    Include | LeaveOut | DropExclusion | AllowSpot | Buy | AllowInterruptions | AcceptRisk | TrustAny | OnlyPlatform
)
LimitChange = (  # a limit of the workload or the account
    MoveDeadline | MoveBudget | MovePromise | MoveRate | MoveQuota | RaiseQuota | MoveMaxGpus | MoreNodes
)
JobChange = (  # the work itself, and how it is laid out
    SetField
    | UseFp16
    | CutSequences
    | FewerOutputTokens
    | SmallerTable
    | DivideBatch
    | DivideGpus
    | WholeMachines
    | SetPools
    | FewerPoolReplicas
    | LongerPromises
    | RarerInterruptions
    | RankByCost
    | TrainMlp
)
MarketChange = (  # prices and machines
    FasterWork | LowerPrice | MovePrice | Discount | FasterGpus | MoreMemory | LargerGpus | TakeGpu
)
OneChange = TermChange | LimitChange | JobChange | MarketChange | Publish | State


@dataclass(frozen=True, slots=True, kw_only=True)
class Both(Reason):
    """Two changes together."""

    kind: ClassVar[str] = "both"
    first: OneChange
    second: OneChange


AnyChange = OneChange | Both
RelaxingChange = LeaveOut | DropExclusion | AcceptRisk | AllowSpot  # one constraint less
