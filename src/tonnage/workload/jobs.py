"""What someone wants to run, as frozen values: the inside twin of the workload file."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from tonnage.catalog.grammar import GpuFilter
from tonnage.catalog.market import Purchase
from tonnage.workload.shapes import ModelShape

TrainPrecision = Literal["auto", "fp32", "tf32", "fp16", "bf16", "bf16-true", "fp8"]
Objective = Literal["classification", "language-model"]
Method = Literal["full", "lora", "qlora"]
Optimizer = Literal["adamw", "adamw-8bit", "sgd", "adafactor"]
Recompute = Literal["none", "selective", "full"]
Attention = Literal["eager", "sdpa", "flash"]
Sharding = Literal["ddp", "zero1", "zero2", "zero3"]
WeightFormat = Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4"]
EngineName = Literal[
    "vllm", "sglang", "tgi", "tensorrt-llm", "lmdeploy", "llama.cpp", "tensorrt", "onnxruntime",
    "onnxruntime-tensorrt", "ctranslate2", "torch-compile", "torchscript", "pytorch", "tensorflow",
]  # fmt: skip
GENERATING_ENGINES: Final = ("vllm", "sglang", "tgi", "tensorrt-llm", "lmdeploy", "llama.cpp")  # write tokens only


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Sequence lengths in tokens. Time follows the mean of what is computed, memory the longest."""

    mean: float
    maximum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters: rank, and which projections carry them."""

    rank: int = 16
    targets: Literal["attention", "all-linear"] = "all-linear"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """Pre-training or fine-tuning over `samples` sequences (or images) for `epochs` passes.

    `None` in sharding, parallelism, micro-batch or recompute means: the planner chooses. Precision `auto` is
    mixed 16 bit: bf16 where the device has it, else fp16. `objective` None: what the architecture is usually
    trained for.
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
    micro_batch: int | None = None
    recompute: Recompute | None = None
    sharding: Sharding | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What one request asks for, in tokens; an encoder has no output tokens."""

    input_tokens: Lengths
    output_tokens: Lengths | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeJob:
    """A service answering `rate_per_s` requests with a promised p95 latency."""

    model: ModelShape
    requests: Requests
    rate_per_s: float
    p95_latency_s: float | None = None
    p95_ttft_s: float | None = None
    weights: WeightFormat = "fp16"
    tensor_parallel: int | None = None
    engine: EngineName | None = None  # None: vllm where tokens are generated, else fused kernels (TensorRT)
    spare_replicas: int = 0
    hours_per_month: float = 730.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """`items` requests to answer once, latency no matter; the deadline sits in the constraints."""

    model: ModelShape
    requests: Requests
    items: int
    weights: WeightFormat = "fp16"
    tensor_parallel: int | None = None
    engine: EngineName | None = None  # None: as in ServeJob


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularJob:
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
    hold: bool = False  # True: limits hold at the far end of the 80 % interval, not only at the expected figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Buy:
    """How it may be bought, and what an interruption costs."""

    purchases: tuple[Purchase, ...] = ("on_demand", "spot")
    interruptions_per_hour: float | None = None  # per instance; None: the assumption of pricing
    checkpoint_interval_s: float | None = None  # None: chosen from the interruption rate
    startup_s: float | None = None  # None: the assumption of pricing
    discount_percent: tuple[tuple[str, float], ...] = ()  # provider -> percent off list


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Who runs it; used where platforms are compared."""

    size: int | None = None
    ml_expertise: Literal["none", "some", "strong"] | None = None
    compliance: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One workload file, read and checked."""

    name: str
    kind: Literal["train", "serve", "batch", "tabular"]
    job: Job
    constraints: Constraints
    buy: Buy
    team: Team
    as_of: datetime
    file: str | None = None
