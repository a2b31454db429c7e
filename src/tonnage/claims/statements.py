"""Claims a document makes, as values: about machines, GPUs, prices, sums and models."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Literal

from tonnage.catalog import Purchase
from tonnage.claims.figures import Amount
from tonnage.claims.names import GpuName, MachineName
from tonnage.values import dataclass

Purpose = Literal["inference", "training", "unstated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a claim, and the line as it is written."""

    line: int
    text: str
    headings: tuple[str, ...] = ()


Transport = Literal["EFA", "GPUDirect-TCPX", "GPUDirect-TCPXO", "InfiniBand", "RoCE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceClaim:
    """What a machine (or a series of machines) has; None: the document does not say."""

    place: Place
    machine: MachineName
    gpu: GpuName | None = None
    gpus: float | None = None
    vcpus: Amount | None = None
    memory: Amount | None = None  # GB or GiB as the document prints it
    gpu_memory: Amount | None = None
    gpu_memory_each: Amount | None = None  # of one device: `8x A100 40GB`
    network: Amount | None = None
    transport: Transport | None = None  # of the traffic between machines


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClaim:
    """A figure of a GPU's data sheet; several amounts where the document names versions (`16/32GB`)."""

    place: Place
    gpu: GpuName
    quantity: str  # a column of the table of published figures
    amounts: tuple[Amount, ...]
    claimed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceClaim:
    """What an hour (or a month) of a machine costs."""

    place: Place
    machine: MachineName
    amount: Amount
    purchase: Purchase
    is_monthly: bool
    claimed: str
    gpu: GpuName | None = None
    gpus: float | None = None
    is_per_gpu: bool = False
    count: float = 1.0  # machines that the text speaks of: the price may be of one, or of all


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPriceClaim:
    """What an hour of one GPU costs, or from what to what."""

    place: Place
    gpu: GpuName
    amount: Amount
    claimed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticClaim:
    """A sum printed with its result: `expression` says `value`, the document prints `result`."""

    place: Place
    expression: str
    value: Decimal
    result: Amount
    claimed: str
    right: str = ""  # the whole right result, where it is more than `value`: a range


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSizeClaim:
    """How many parameters a model has."""

    place: Place
    model: str
    parameters: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeedClaim:
    """How much memory a model needs in a number format, GB."""

    place: Place
    model: str
    precision: Literal["fp16", "bf16", "fp32", "int8", "int4"]
    purpose: Purpose
    memory: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class FitClaim:
    """That a model fits on GPUs, to serve it or to train all of it."""

    place: Place
    model: str
    parameters: float
    precision: str
    purpose: Purpose
    room_gb: float
    where: str
    claimed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformPriceClaim:
    """What one unit of a managed product costs: a Databricks unit, a million tokens of a model."""

    place: Place
    product: str
    unit: str
    clouds: tuple[str, ...]
    amount: Amount
    claimed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RateClaim:
    """How much of a model's work GPUs do a second. `amount` is of `gpus` of the `in_job` GPUs that work together."""

    place: Place
    model: str
    gpu: GpuName
    gpus: float
    in_job: float
    amount: Amount
    unit: Literal["tokens", "samples"]
    trains: bool
    adapters: bool
    length: int | None  # tokens of a sequence, where it is stated
    number_format: str | None
    claimed: str


Claim = (
    InstanceClaim | GpuClaim | PriceClaim | GpuPriceClaim | ArithmeticClaim | ModelSizeClaim | MemoryNeedClaim
    | FitClaim | PlatformPriceClaim | RateClaim
)  # fmt: skip


def purpose_of(text: str) -> Purpose:
    """What a memory figure is for, by the words around it; unstated where they name both or neither."""
    trains = re.search(r"\btrain|\bfine-?tun|\bpretrain", text, re.IGNORECASE)
    serves = re.search(r"\binference|\bserv(?:e|ing)\b|\bweights?\b|\bload(?:ed|ing)?\b", text, re.IGNORECASE)
    if bool(trains) == bool(serves):
        return "unstated"
    return "training" if trains else "inference"
