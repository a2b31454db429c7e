"""What else differs on the cheaper machine, and what lowers or raises the confidence: closed sets of kinds."""

from __future__ import annotations

from typing import ClassVar, Literal

from tonnage.catalog.hardware import Precision
from tonnage.reason import Reason
from tonnage.values import dataclass

Measure = Literal["GPU memory", "GPU utilisation", "vCPU use", "memory use"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherProvider(Reason):
    """The cheaper machine is sold by another provider."""

    kind: ClassVar[str] = "other provider"
    provider: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRegion(Reason):
    """The cheaper machine is sold in another region. `region` None: its price names none."""

    kind: ClassVar[str] = "other region"
    region: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGpus(Reason):
    """The cheaper machine has other GPUs, or another number of them. None: no GPU."""

    kind: ClassVar[str] = "other GPUs"
    gpu: str | None
    gpu_count: float
    gpu_now: str | None
    gpu_count_now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NoGpuLink(Reason):
    """The fast link between the GPUs of today's machine is missing."""

    kind: ClassVar[str] = "no GPU link"
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Smaller(Reason):
    """The cheaper machine has less of what was not measured. `available` None: not published."""

    kind: ClassVar[str] = "smaller"
    of: Literal["network", "local disk"]
    available: float | None
    now: float
    unit: Literal["Gbit/s", "GB"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRate(Reason):
    """No rate of a precision is published for the GPU of the cheaper machine, where today's has one."""

    kind: ClassVar[str] = "no rate"
    precision: Precision
    gpu: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMeasured(Reason):
    """Use was not measured: the cheaper machine has at least what today's has."""

    kind: ClassVar[str] = "not measured"
    of: Measure


@dataclass(frozen=True, slots=True, kw_only=True)
class FewHours(Reason):
    """So few hours were measured that peaks may be missed."""

    kind: ClassVar[str] = "few hours"
    hours_per_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGpuKind(Reason):
    """Software, precision and kernels may behave otherwise on another GPU."""

    kind: ClassVar[str] = "other GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedAndFits(Reason):
    """The workload was sized on the cheaper machine and fits."""

    kind: ClassVar[str] = "sized and fits"
    workload: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom(Reason):
    """What is kept free over every measured peak."""

    kind: ClassVar[str] = "headroom"
    headroom_fraction: float


Difference = OtherProvider | OtherRegion | OtherGpus | NoGpuLink | Smaller | NoRate
Doubt = NotMeasured | FewHours | OtherGpuKind | SizedAndFits | Headroom
