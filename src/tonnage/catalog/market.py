"""What is sold: an instance type is what a machine is, an offer where it is sold, how, and for how much."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Literal

from tonnage.catalog.hardware import Source
from tonnage.values import dataclass

Purchase = Literal["on_demand", "spot", "reserved_1y", "reserved_3y"]
Platform = Literal["vm", "databricks", "sagemaker", "vertex", "bedrock"]  # through what a machine or model is used


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """A machine one can rent. `accelerator_count` is a fraction where a slice of a shared card is sold."""

    provider: str
    name: str
    accelerator: str | None  # a name in the accelerator table
    accelerator_count: float
    gpu_memory_gib: float | None  # all devices together, as the provider states it
    vcpus: float | None
    memory_gib: float | None
    network_gbit_per_s: float | None  # per node, baseline
    local_ssd_gb: float | None
    cpu_arch: Literal["x86_64", "arm64"]
    notes: str
    source: Source
    network_source: str = ""  # where `network_gbit_per_s` was read
    scale_up: str = ""  # a link's name: how devices inside the node talk; "" for one device, or unknown
    scale_out: str = ""  # a link's name: the kind of network between nodes; "" unknown

    @property
    def key(self) -> tuple[str, str]:
        return (self.provider, self.name)


def is_community(instance_type: str) -> bool:
    """Whether a machine belongs to a private person, not to a data centre: RunPod's two tiers, in the name.

    >>> is_community("1x_A30_COMMUNITY"), is_community("1x_A40_SECURE")
    (True, False)
    """
    return instance_type.endswith("_COMMUNITY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One price: a machine in a region under a purchase mode, and when it was read (None: not stated)."""

    provider: str
    instance_type: str
    region: str  # "" where the provider sells one price everywhere
    purchase: Purchase
    usd_per_instance_hour: Decimal
    read_on: date | None
    notes: str
    source: Source
    supposed: bool = False  # the price of a «what if»: it is not judged
