"""What a Compute Engine machine is billed as: vCPU and memory of its series, GPUs, local SSD.

price = vCPUs x core + GiB x ram + GPUs x gpu + GiB of bundled local SSD x ssd, each a region's hourly rate.
Series and GPU names are those of the SKU descriptions («A2 Instance Core running in Americas», «Nvidia L4 GPU
attached to Spot Preemptible VMs running in Americas»). Leaves out discounts for sustained use and commitments.
Sources: https://cloud.google.com/compute/gpus-pricing, https://cloud.google.com/compute/vm-instance-pricing
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final, Literal

from tonnage.catalog.market import InstanceType

Mode = Literal["on_demand", "spot"]
Part = tuple[str, str]  # ("core" | "ram" | "gpu" | "ssd", the series or GPU)

_NOT_PLAIN: Final = re.compile(
    r"custom|sole tenancy|reserved|premium|commitment|suspended|upgrade|calendar|dws|flex|workstation", re.IGNORECASE
)
_SERIES: Final = re.compile(
    r"^(?:Spot Preemptible )?([A-Z]\d[A-Za-z]*)(?: AMD| Arm| Predefined)? Instance (Core|Ram) running in",
    re.IGNORECASE,
)
_GPU: Final = re.compile(
    r"^Nvidia (.+?) GPU (?:attached to Spot Preemptible VMs )?running in|^Nvidia (.+?) GPU attached to spot",
    re.IGNORECASE,
)
_SSD: Final = re.compile(r"^SSD backed Local Storage(?: attached to Spot Preemptible VMs)?(?: in .+)?$", re.IGNORECASE)

# machine name -> series of its vCPU and memory, names its GPU may have among the SKUs ("" for none)
_MACHINES: Final[tuple[tuple[re.Pattern[str], str, tuple[str, ...]], ...]] = (
    (re.compile(r"a2-(high|mega)gpu-\d+g"), "a2", ("tesla a100",)),
    (re.compile(r"a2-ultragpu-\d+g"), "a2", ("tesla a100 80gb",)),
    (re.compile(r"a3-highgpu-\d+g"), "a3", ("h100 80gb",)),
    (re.compile(r"a3-megagpu-\d+g"), "a3plus", ("h100 80gb plus", "h100 80gb mega")),
    (re.compile(r"a3-ultragpu-\d+g"), "a3ultra", ("h200 141gb",)),
    (re.compile(r"g2-standard-\d+"), "g2", ("l4",)),
    (re.compile(r"n1-\w+-\d+\+\d+xT4"), "n1", ("tesla t4",)),
    (re.compile(r"n1-\w+-\d+\+\d+xV100"), "n1", ("tesla v100",)),
    (re.compile(r"n1-\w+-\d+\+\d+xP100"), "n1", ("tesla p100",)),
    (re.compile(r"(?P<series>c2d|c3|c3d|c4|c4a|e2|n1|n2|n2d|n4|t2a|t2d)-\w+-\d+"), "", ()),
)


def part_of(description: str) -> Part | None:
    """The part a SKU prices; None where it is none of a plain machine.

    >>> part_of("Spot Preemptible A2 Instance Ram running in Americas")
    ('ram', 'a2')
    >>> part_of("Nvidia Tesla A100 80GB GPU running in Americas")
    ('gpu', 'tesla a100 80gb')
    >>> part_of("N1 Predefined Instance Core running in Americas")
    ('core', 'n1')
    >>> part_of("N2 Custom Instance Core running in Americas") is None
    True
    """
    if _NOT_PLAIN.search(description):
        return None
    if found := _SERIES.match(description):
        return found.group(2).casefold(), found.group(1).casefold()
    if found := _GPU.match(description):
        return "gpu", (found.group(1) or found.group(2)).casefold()
    return ("ssd", "") if _SSD.match(description) else None


class PartPrices:
    """Hourly rates (USD) by part, region and mode; a part listed with two rates has none."""

    def __init__(self) -> None:
        self._rates: dict[tuple[Part, str, str], Decimal | None] = {}

    def add(self, part: Part, region: str, mode: str, usd_per_hour: Decimal) -> bool:
        """Whether the rate agrees with what was there."""
        before = self._rates.setdefault((part, region, mode), usd_per_hour)
        if before == usd_per_hour:
            return True
        self._rates[part, region, mode] = None
        return False

    def rate(self, part: Part, region: str, mode: str) -> Decimal | None:
        """USD an hour for one unit of the part; None: not listed, or twice."""
        return self._rates.get((part, region, mode))


def machine_price(machine: InstanceType, parts: PartPrices, region: str, mode: str) -> Decimal | None:
    """USD a machine-hour; None where a part is not priced, or what the machine is made of is not known."""
    needs = _bill(machine)
    if needs is None:
        return None
    total = Decimal(0)
    for alternatives, amount in needs:
        rates = [rate for part in alternatives if (rate := parts.rate(part, region, mode)) is not None]
        if not rates:
            return None
        total += rates[0] * amount
    return total.quantize(Decimal("0.000001"))


def _bill(machine: InstanceType) -> list[tuple[list[Part], Decimal]] | None:
    """What is billed, as (the names the part may have, amount); None where that is not known."""
    found = next(((p.fullmatch(machine.name), s, g) for p, s, g in _MACHINES if p.fullmatch(machine.name)), None)
    if found is None or machine.vcpus is None or machine.memory_gib is None:
        return None
    match, series, gpus = found
    if not series and match is not None:
        series = match.group("series")
    if bool(gpus) != bool(machine.accelerator_count):
        return None
    bill: list[tuple[list[Part], Decimal]] = [
        ([("core", series)], Decimal(str(machine.vcpus))),
        ([("ram", series)], Decimal(str(machine.memory_gib))),
    ]
    if gpus:
        bill.append(([("gpu", name) for name in gpus], Decimal(str(machine.accelerator_count))))
    if machine.local_ssd_gb and not machine.name.startswith("n1-"):
        bill.append(([("ssd", "")], Decimal(str(machine.local_ssd_gb))))
    return bill
