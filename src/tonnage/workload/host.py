"""What a workload says of its input: the work of the host before a device sees an item."""

from __future__ import annotations

from typing import Literal

from tonnage.workload.file.fields import Positive, StrictModel, key

HostInput = Literal["raw", "prepared", "gpu"]


class HostTerms(StrictModel):
    """What the host does for each item before a device sees it. It can hold up devices: a plan says where it does."""

    input: HostInput | None = key(
        "`raw`: the host tokenises texts and decodes JPEG pictures as they come; `prepared`: that was done before; "
        "`gpu`: pictures are decoded on the GPU (nvJPEG, DALI), whose time for that is not counted.",
        default=None,
        shown="prepared for a training on text, else raw",
        example="prepared",
    )
    items_per_s_per_vcpu: Positive | None = key(
        "Items that one vCPU gets ready in a second, as you measured it with all vCPUs busy.",
        default=None,
        shown="as measured (`tonnage explain`)",
        unit="items/s",
        example="150",
    )
    megapixels: Positive | None = key(
        "Size of one picture as it is stored.",
        default=None,
        shown="0.19 (500 x 375)",
        unit="megapixels",
        example="2.07",
    )
    item_kb: Positive | None = key(
        "What is read for one item, over the network.",
        default=None,
        shown="0.6 bytes a pixel; nothing for a text",
        unit="kB",
        example="110",
    )
