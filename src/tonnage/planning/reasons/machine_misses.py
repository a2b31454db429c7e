"""Misses of machines: memory, latency, layouts, unpublished figures."""

from __future__ import annotations

from typing import ClassVar, Literal

from tonnage.planning.reasons.miss import AnyMiss, Unknown
from tonnage.planning.reasons.risks import Promise
from tonnage.values import dataclass

UnpublishedFigure = Literal[
    "vendor", "rate", "memory size", "memory bandwidth", "link bandwidth", "vcpus", "host memory"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoGpuMiss(AnyMiss):
    """The work takes an accelerator, and the machine has none."""

    kind: ClassVar[str] = "no gpu"
    binding: Literal["hardware"] = "hardware"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGpuMiss(AnyMiss):
    """The machine has a part of a device, whose rate is not published."""

    kind: ClassVar[str] = "shared gpu"
    binding: Literal["shared gpu"] = "shared gpu"
    gpu_count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpublishedMiss(AnyMiss):
    """A figure that sizing needs is not published. `vendor`: no row of the vendor's compiler was measured."""

    kind: ClassVar[str] = "unpublished"
    binding: Literal["rate", "network", "hardware", "host memory"]
    what: UnpublishedFigure
    device: str = ""
    vendor: str = ""
    precision: str = ""
    needed_gib: float | None = None  # of host memory, whose size is not known

    @property
    def unknown(self) -> Unknown | None:
        return "host memory" if self.what == "host memory" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMiss(AnyMiss):
    """The work needs more memory than there is, in the leanest layout.

    `of`: what holds it, each GPU, the machine's host, or one process here. `expected_gib`: the expected figure, where
    that fits and `needed_gib` is the upper end of its 80 % interval. `kept_free_fraction`: of the device, already off
    `available_gib`. `engine_keeps`: the serving engine keeps some of it free.
    """

    kind: ClassVar[str] = "memory"
    binding: Literal["memory", "host memory"] = "memory"
    of: Literal["GPU", "host", "process"] = "GPU"
    needed_gib: float
    available_gib: float
    expected_gib: float | None = None
    layout: str = ""
    tensor_parallel: int | None = None
    kept_free_fraction: float | None = None
    engine_keeps: bool = False

    @property
    def shortfall(self) -> float:
        return self.needed_gib / self.available_gib

    @property
    def risky(self) -> bool:
        return self.expected_gib is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyMiss(AnyMiss):
    """With one request at a time, a 95th percentile is already above the promise."""

    kind: ClassVar[str] = "latency"
    binding: Literal["latency"] = "latency"
    promise: Promise
    best_s: float
    promised_s: float

    @property
    def shortfall(self) -> float:
        return self.best_s / self.promised_s


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLimitMiss(AnyMiss):
    """The work takes more GPUs than are allowed. `rate_per_s` None: the machine is sold with as many."""

    kind: ClassVar[str] = "gpu limit"
    binding: Literal["max_gpus"] = "max_gpus"
    needed_gpus: int
    allowed_gpus: int
    rate_per_s: float | None = None

    @property
    def shortfall(self) -> float:
        return self.needed_gpus / max(self.allowed_gpus, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesMiss(AnyMiss):
    """The fleet takes more machines than are allowed."""

    kind: ClassVar[str] = "nodes"
    binding: Literal["max_nodes"] = "max_nodes"
    needed_nodes: int
    allowed_nodes: int
    rate_per_s: float

    @property
    def shortfall(self) -> float:
        return self.needed_nodes / self.allowed_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeMachinesMiss(AnyMiss):
    """The layout's GPUs do not fill machines of this kind, or several of them are not linked by a known network."""

    kind: ClassVar[str] = "whole machines"
    binding: Literal["layout"] = "layout"
    gpus: int
    gpus_per_machine: int
    network_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreesMiss(AnyMiss):
    """The layout's degrees multiply to GPUs that the machine does not have: `degrees` are those above one."""

    kind: ClassVar[str] = "degrees"
    binding: Literal["layout"] = "layout"
    degrees: tuple[str, ...]
    needed_gpus: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDivisionMiss(AnyMiss):
    """The global batch does not divide over the machine's GPUs."""

    kind: ClassVar[str] = "batch division"
    binding: Literal["layout"] = "layout"
    global_batch: int
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasMiss(AnyMiss):
    """The layout's replicas do not carry the rate."""

    kind: ClassVar[str] = "replicas"
    binding: Literal["layout"] = "layout"
    needed_replicas: int
    given_replicas: int
    rate_per_s: float

    @property
    def shortfall(self) -> float:
        return self.needed_replicas / self.given_replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyMiss(AnyMiss):
    """The cache holds fewer requests than the layout keeps in flight. `held_requests` may be a part of one."""

    kind: ClassVar[str] = "concurrency"
    binding: Literal["layout"] = "layout"
    asked_requests: int
    held_requests: float
    cache_gib: float
    tensor_parallel: int

    @property
    def shortfall(self) -> float:
        return self.asked_requests / max(self.held_requests, 1e-9)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLinkMiss(AnyMiss):
    """Keys and values of two pools cross a network between machines, whose rate is not published."""

    kind: ClassVar[str] = "pool link"
    binding: Literal["layout"] = "layout"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSizesMiss(AnyMiss):
    """Pools of the stated sizes do not carry the rate."""

    kind: ClassVar[str] = "pool sizes"
    binding: Literal["layout"] = "layout"
    needed_prefill_replicas: int
    needed_decode_replicas: int
    given_prefill_replicas: int | None
    given_decode_replicas: int | None
    rate_per_s: float

    @property
    def shortfall(self) -> float:
        given = (self.given_prefill_replicas or 0) + (self.given_decode_replicas or 0)
        return (self.needed_prefill_replicas + self.needed_decode_replicas) / max(given, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPromiseMiss(AnyMiss):
    """In two pools, one request at a time already misses a promise."""

    kind: ClassVar[str] = "pool promise"
    binding: Literal["latency"] = "latency"
    given_prefill_replicas: int | None
    given_decode_replicas: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaOnlyMiss(AnyMiss):
    """The engine runs on NVIDIA devices only."""

    kind: ClassVar[str] = "nvidia only"
    binding: Literal["hardware"] = "hardware"
    engine: str
    vendor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFp8Miss(AnyMiss):
    """The engine multiplies fp8 weights in fp8, which the device lacks."""

    kind: ClassVar[str] = "no fp8"
    binding: Literal["hardware"] = "hardware"
    engine: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMxfp4Miss(AnyMiss):
    """The engine multiplies no mxfp4 experts on devices as old as this one."""

    kind: ClassVar[str] = "no mxfp4"
    binding: Literal["hardware"] = "hardware"
    engine: str
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmeasuredTreesMiss(AnyMiss):
    """No boosted trees were measured on ROCm."""

    kind: ClassVar[str] = "unmeasured trees"
    binding: Literal["rate"] = "rate"
