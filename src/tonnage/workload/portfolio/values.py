"""A portfolio as frozen values: workloads with their runs a month, and what must hold for all of them together."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from tonnage.catalog.grammar import GpuFilter
from tonnage.catalog.market import Purchase
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class PortfolioEntry:
    """One workload and how often it runs; a service runs once, all month.

    `split`: its runs may go to several providers or machines; otherwise all take one way.
    """

    name: str
    workload: Workload
    runs_per_month: int = 1
    split: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityLimit:
    """GPUs of a kind that may be held at a time. `provider` or `region` None: in all of them together.

    `purchases` empty: however bought; else only GPUs bought so count.
    """

    gpu: GpuFilter
    at_once: int
    provider: str | None = None
    region: str | None = None
    purchases: tuple[Purchase, ...] = ()

    @property
    def label(self) -> str:
        where = " ".join(part for part in (self.provider, self.region) if part)
        how = f" {'/'.join(self.purchases)}" if self.purchases else ""
        return f"{self.gpu.text} at once{f' at {where}' if where else ''}{how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """GPU-hours paid for all month, used or not, shared by every workload that runs on such GPUs on demand.

    `gpus` are committed already; up to `up_to_gpus` in all may be, in steps of `step_gpus`. Of the hours paid,
    workloads can use `usable_fraction`: runs do not fill every hour.
    """

    provider: str
    gpu: GpuFilter
    usd_per_gpu_hour: float
    gpus: int = 0
    up_to_gpus: int = 0
    step_gpus: int = 1
    region: str | None = None
    instance_type: str | None = None
    usable_fraction: float = 0.85
    source: str = ""

    @property
    def label(self) -> str:
        what = self.instance_type or self.gpu.text
        how = "held" if self.gpus else "new"
        return f"committed {what} at {self.provider}{f' {self.region}' if self.region else ''} ({how})"

    def apart(self) -> tuple[Commitment, ...]:
        """What is held already and what may be added, as two commitments."""
        if self.gpus in (0, self.up_to_gpus):
            return (self,)
        return replace(self, up_to_gpus=self.gpus), replace(self, gpus=0, up_to_gpus=self.up_to_gpus - self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part of the month's spend that goes to one provider, 0 to 1."""

    provider: str
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Portfolio:
    """One portfolio file, read and checked. Empty tuples and None mean: no limit."""

    name: str
    entries: tuple[PortfolioEntry, ...]
    as_of: datetime
    shares: tuple[Share, ...] = ()
    share_tolerance: float = 0.05  # of the spend, either way
    capacity: tuple[CapacityLimit, ...] = ()
    commitments: tuple[Commitment, ...] = ()
    budget_usd: float | None = None  # a month
    file: str | None = None
