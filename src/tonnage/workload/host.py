"""What a workload says of its input, as a frozen value: the work of the host before a device sees an item."""

from __future__ import annotations

from typing import Literal

from tonnage.values import dataclass

HostInput = Literal["raw", "prepared", "gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTerms:
    """`raw`: texts are tokenised and pictures decoded by the host as they come; `prepared`: they were before;
    `gpu`: pictures are decoded on the device. None: not stated."""

    input: HostInput | None = None
    items_per_s_per_vcpu: float | None = None  # as measured with all vCPUs busy
    megapixels: float | None = None  # of one picture
    item_kb: float | None = None  # read for one item
