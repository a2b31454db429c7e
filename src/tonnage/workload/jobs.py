"""What someone wants to run, as frozen values: the inside twin of the workload file."""

from __future__ import annotations

from dataclasses import field, replace
from datetime import datetime
from typing import ClassVar, Final, Literal, Self, cast

from tonnage.catalog.grammar import GpuFilter
from tonnage.catalog.market import Platform, Purchase
from tonnage.errors import InputError
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.engine_limits import NO_LIMITS, EngineLimits
from tonnage.workload.exclusions import Exclusion
from tonnage.workload.file.money_fields import OwnPrices as OwnPrices
from tonnage.workload.file.money_fields import Schedule as Schedule
from tonnage.workload.host import HostTerms
from tonnage.workload.programs import Attention as Attention
from tonnage.workload.programs import Optimizer as Optimizer
from tonnage.workload.programs import Program
from tonnage.workload.programs import Recompute as Recompute
from tonnage.workload.quotas import Quota
from tonnage.workload.shapes import ModelShape

TrainPrecision = Literal["auto", "fp32", "tf32", "fp16", "bf16", "bf16-true", "fp8"]
Objective = Literal["classification", "language-model"]
NO_LIMIT: Final = 10**9  # machines
Trust = Literal["dated", "any"]  # which prices may win
Kind = Literal["train", "serve", "batch", "tabular"]
Promise = Literal["latency", "ttft", "tpot"]  # which latency a service promised
Risk = Literal["memory", "deadline", "budget", "latency"]  # what may not hold at the far end of an interval
Method = Literal["full", "lora", "qlora"]
AdapterKind = Literal["lora", "dora", "llama-adapter", "llama-adapter-v2", "prefix", "prompt"]
Sharding = Literal["ddp", "zero1", "zero2", "zero3"]
WeightFormat = Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4", "mxfp4"]
CacheFormat = Literal["auto", "fp16", "fp8"]
EngineName = Literal[
    "vllm", "sglang", "tgi", "tensorrt-llm", "lmdeploy", "llama.cpp", "tensorrt", "onnxruntime",
    "onnxruntime-tensorrt", "ctranslate2", "torch-compile", "torchscript", "pytorch", "tensorflow",
]  # fmt: skip
GENERATING_ENGINES: Final = ("vllm", "sglang", "tgi", "tensorrt-llm", "lmdeploy", "llama.cpp")  # write tokens only
# Keep what requests begin with: vLLM's automatic prefix caching, SGLang's radix cache, TensorRT-LLM's block reuse,
# TGI 3, LMDeploy's enable_prefix_caching. llama.cpp keeps one request's prefix a slot, and shares none between slots.
PREFIX_ENGINES: Final = ("vllm", "sglang", "tensorrt-llm", "tgi", "lmdeploy")
# Take the share of memory for their cache as a setting.
SHARING_ENGINES: Final = ("vllm", "tensorrt-llm", "tgi", "lmdeploy")
# Run a draft model of its own beside the target; TGI has n-grams and Medusa heads, LMDeploy heads alone.
DRAFT_ENGINES: Final = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Sequence lengths in tokens. Time follows the mean of what is computed, memory the longest.

    `points`: (tokens, share of all) where the distribution is stated by percentiles or a histogram; shares sum to 1.
    """

    mean: float
    maximum: int
    points: tuple[tuple[float, float], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Adapters: rank and targets of LoRA and DoRA; virtual tokens of the kinds that learn a prefix."""

    rank: int = 16
    targets: Literal["attention", "all-linear"] = "all-linear"
    kind: AdapterKind = "lora"
    tokens: int = 10


class JobKind:
    """What a job of any kind answers, so that who asks need not know the kind. What is sized, what is tokens and what
    has a layout differs in its type, and is distinguished by the union `Job`."""

    __slots__ = ()
    kind: ClassVar[Kind]
    is_service: ClassVar[bool] = False  # has no end: billed by the month, and has latencies to keep for a deadline

    @property
    def promises(self) -> dict[Promise, float]:
        """The p95 latencies promised, in seconds; none but a service's."""
        return {}

    def in_fp16(self) -> Self:
        """The job in fp16: the arithmetic of a training run, the weights of a service or batch; a table's as it is."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob(JobKind):
    """Pre-training or fine-tuning over `samples` sequences (or images) for `epochs` passes.

    `None` in what says how it is spread (nodes to accumulation) means: the planner chooses. Precision `auto` is
    mixed 16 bit: bf16 where the device has it, else fp16. `objective` None: what the architecture is usually
    trained for. `program`: what the training program does, as far as it is stated or documented.
    """

    model: ModelShape
    samples: int
    lengths: Lengths
    epochs: float
    global_batch: int
    method: Method = "full"
    precision: TrainPrecision = "auto"
    objective: Objective | None = None
    optimizer: Optimizer = "adamw"
    attention: Attention = "sdpa"
    compile: bool = False
    lora: Lora = field(default_factory=Lora)
    nodes: int | None = None
    gpus: int | None = None
    data_parallel: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    context_parallel: int | None = None  # None: 1
    virtual_stages: int | None = None  # chunks of layers that a pipeline stage holds in turn; None: 1
    sharding: Sharding | None = None
    recompute: Recompute | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    program: Program = field(default_factory=Program)

    kind = "train"

    def in_fp16(self) -> Self:
        return replace(self, precision="fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What one request asks for, in tokens; an encoder has no output tokens."""

    input_tokens: Lengths
    output_tokens: Lengths | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Speculative decoding: a step verifies `tokens` guesses, of which each is right with a chance of `acceptance`.

    `draft`: the small model that guesses; None: guesses that cost nothing (n-grams of the prompt).
    """

    tokens: int
    acceptance: float
    draft: ModelShape | None = None

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a step is expected to give: (1 - a^(k+1)) / (1 - a).

        Source: Leviathan et al. 2023, arXiv:2211.17192, equation 1.

        >>> round(Speculation(tokens=4, acceptance=0.8).tokens_per_step, 4)
        3.3616
        """
        return float(sum(self.acceptance**count for count in range(self.tokens + 1)))

    @property
    def rows(self) -> float:
        """Tokens of one request that a step verifies."""
        return self.tokens + 1.0

    def describe(self) -> str:
        by = "" if self.draft is None else f" by {self.draft.name}"
        return f"{self.tokens} guesses{by}, {self.acceptance:g} of them right"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """How the rate of a service moves: shares of the busy rate, one a step of `step_s` seconds.

    A day of 24 hours repeats (`repeats`), its shares hold at the middle of each hour and are linear in between. A trace
    does not: a share is the mean of its step.
    """

    shares: tuple[float, ...]
    step_s: float
    repeats: bool
    source: str  # in words: "a day's course", or the file of a trace

    @property
    def mean(self) -> float:
        """The mean rate over the busy one."""
        return sum(self.shares) / len(self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeJob(JobKind):
    """A service answering `rate_per_s` requests with a promised p95 latency."""

    model: ModelShape
    requests: Requests
    rate_per_s: float
    p95_latency_s: float | None = None
    p95_ttft_s: float | None = None
    p95_tpot_s: float | None = None  # per output token after the first
    weights: WeightFormat = "fp16"
    kv_cache: CacheFormat = "auto"
    prefix_cache_fraction: float = 0.0  # of prompt tokens, found in the cache of the replica
    speculative: Speculation | None = None  # None: one token a step
    tensor_parallel: int | None = None
    expert_parallel: int | None = None  # devices of a replica that hold whole experts; 1: all cut every expert
    attention_data_parallel: int | None = None  # groups of a replica's devices with requests and a cache of their own
    replicas: int | None = None
    prefill_replicas: int | None = None  # that read prompts only, beside `decode_replicas` that write answers
    decode_replicas: int | None = None
    concurrency: int | None = None  # requests one replica answers at a time; None: the planner chooses
    batch: int | None = None  # requests in one pass; where tokens are generated, one batch run to its last token
    engine: EngineName | None = None  # None: vllm where tokens are generated, else fused kernels (TensorRT)
    engine_limits: EngineLimits = NO_LIMITS
    spare_replicas: int = 0
    hours_per_month: float = 730.0
    traffic: Traffic | None = None  # None: the busy rate all the time

    kind = "serve"
    is_service = True

    @property
    def promises(self) -> dict[Promise, float]:
        stated = {"latency": self.p95_latency_s, "ttft": self.p95_ttft_s, "tpot": self.p95_tpot_s}
        return {cast(Promise, name): limit_s for name, limit_s in stated.items() if limit_s is not None}

    @property
    def requests_per_bill(self) -> float:
        """Requests in a month at the busy rate."""
        return self.rate_per_s * self.hours_per_month * SECONDS_PER_HOUR

    def in_fp16(self) -> Self:
        return replace(self, weights="fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob(JobKind):
    """`items` requests to answer once, latency no matter; the deadline sits in the constraints."""

    model: ModelShape
    requests: Requests
    items: int
    weights: WeightFormat = "fp16"
    kv_cache: CacheFormat = "auto"
    prefix_cache_fraction: float = 0.0  # of prompt tokens, found in the cache of the replica
    speculative: Speculation | None = None  # None: one token a step
    tensor_parallel: int | None = None
    expert_parallel: int | None = None  # these four as in ServeJob
    attention_data_parallel: int | None = None
    replicas: int | None = None
    prefill_replicas: int | None = None
    decode_replicas: int | None = None
    concurrency: int | None = None  # requests one replica answers at a time; None: the planner chooses
    batch: int | None = None  # requests in one pass; where tokens are generated, one batch run to its last token
    engine: EngineName | None = None  # None: as in ServeJob
    engine_limits: EngineLimits = NO_LIMITS

    kind = "batch"

    @property
    def requests_per_bill(self) -> float:
        """Requests in all."""
        return float(self.items)

    def in_fp16(self) -> Self:
        return replace(self, weights="fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularJob(JobKind):
    """Boosted trees or a multi-layer perceptron over rows x features."""

    rows: int
    features: int
    method: Literal["boosted-trees", "mlp"] = "boosted-trees"
    trees: int = 500
    depth: int = 6
    bins: int = 256
    epochs: float = 10
    hidden_layers: tuple[int, ...] = (512, 256)
    global_batch: int = 4096
    engine: str | None = None  # what carries it out; None: XGBoost, or PyTorch for a network

    kind = "tabular"

    @property
    def passes(self) -> float:
        """How often all rows are gone through: trees, or epochs."""
        return float(self.trees) if self.method == "boosted-trees" else self.epochs


Job = TrainJob | ServeJob | BatchJob | TabularJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What a plan must hold. Empty tuples and None mean: no limit."""

    deadline_s: float | None = None
    budget_usd: float | None = None  # for a service: per month
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    residency: tuple[str, ...] = ()  # areas the data must not leave: "eu", "us", ...
    gpus: tuple[GpuFilter, ...] = ()
    interruptible: bool = True  # False: spot is out
    max_gpus: int | None = None
    max_nodes: int = 8
    platforms: tuple[Platform, ...] = ()  # vm, databricks, sagemaker, vertex, bedrock
    hold: bool = False  # True: deadline, budget and latency hold at the far end of the 80 % interval too
    accept_risk: tuple[Risk, ...] = ()  # what need not hold at the far end

    trust: Trust = "dated"  # which prices may win: those one can rely on, or any
    exclude: tuple[Exclusion, ...] = ()
    quotas: tuple[Quota, ...] = ()

    def held(self, what: Risk) -> bool:
        """Whether `what` must hold at the far end of the 80 % interval: memory by default, the others with `hold`."""
        return what not in self.accept_risk and (what == "memory" or self.hold)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """How a token API may be used in place of machines, and what is known of it."""

    models: tuple[str, ...] = ()  # as the price table names them; empty: the workload's own model, where it is priced
    per_minute: float | None = None  # what the account may use, input and output together; None: not known
    p95_latency_s: float | None = None  # as measured on the API
    p95_ttft_s: float | None = None
    cached_input_fraction: float = 0.0
    load: float = 1.0  # of a service: mean rate over the busy rate, which machines are sized for
    model_units: int | None = None  # of provisioned throughput
    model_storage_months: float = 1.0  # how long a customised model is kept
    prompt_tokens: float = 60.0  # around each text that a generative model classifies in an encoder's place
    answer_tokens: float = 3.0  # that it then writes

    def of_request(self, requests: Requests) -> tuple[float, float]:
        """Mean tokens that an API reads and writes for one request. A generative model in the place of an encoder
        reads its instructions, too, and writes an answer."""
        if requests.output_tokens is not None:
            return requests.input_tokens.mean, requests.output_tokens.mean
        return requests.input_tokens.mean + self.prompt_tokens, self.answer_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class BuyTerms:
    """How it may be bought, and what an interruption costs."""

    purchases: tuple[Purchase, ...] = ("on_demand", "spot")
    interruptions_per_hour: float | None = None  # per instance; None: the assumption of pricing
    checkpoint_interval_s: float | None = None  # None: chosen from the interruption rate
    startup_s: float | None = None  # None: the assumption of pricing
    discount_percent: tuple[tuple[str, float], ...] = ()  # provider, provider/family or provider/SKU -> percent off
    committed_usd: tuple[tuple[str, float], ...] = ()  # provider -> spend of this job or month that is paid anyway
    schedule: Schedule | None = None
    idle_s: float = 0.0  # machines stay on this long after the work
    reserved_utilization: float | None = None  # share of committed hours that some work uses; None: only this job
    reserved_owned: bool = False  # the reservation exists and is paid anyway
    dbu_sku: str = "Jobs Compute"
    disk_gb: float = 0.0  # block storage per machine
    prices: OwnPrices = field(default_factory=OwnPrices)
    tokens: Tokens = field(default_factory=Tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Who runs it; used where platforms are compared, and in the ledger where an hourly rate is stated."""

    size: int | None = None
    ml_expertise: Literal["none", "some", "strong"] | None = None
    compliance: tuple[str, ...] = ()
    hourly_usd: float | None = None
    setup_hours: tuple[tuple[Platform, float], ...] = ()  # once, by platform
    operation_hours: tuple[tuple[Platform, float], ...] = ()  # of one job; of one month of a service
    setup_months: float = 12.0  # a service's set-up is spread over so many months


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlace:
    """Where the data is before the work starts, and how much it is."""

    provider: str
    region: str
    size_gb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One workload file, read and checked."""

    name: str
    job: Job
    constraints: Constraints
    buy: BuyTerms
    team: Team
    as_of: datetime
    file: str | None = None
    data: DataPlace | None = None  # None: not stated
    host: HostTerms = field(default_factory=HostTerms)

    @property
    def kind(self) -> Kind:
        return self.job.kind

    @property
    def is_service(self) -> bool:
        return self.job.is_service

    @property
    def service(self) -> ServeJob:
        """The job of a service. InputError on another kind."""
        if not isinstance(self.job, ServeJob):
            raise InputError(f"{self.name} is of kind {self.kind}, not a service", hint="kind: serve")
        return self.job

    @property
    def batch(self) -> BatchJob:
        """The job of a batch. InputError on another kind."""
        if not isinstance(self.job, BatchJob):
            raise InputError(f"{self.name} is of kind {self.kind}, not a batch", hint="kind: batch")
        return self.job
