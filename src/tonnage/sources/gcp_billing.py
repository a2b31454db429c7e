"""Compute Engine prices from the Cloud Billing Catalog API. Needs an API key.

The API prices parts, not machines: `services/6F81-5844-456A/skus` lists vCPU, memory, GPU and local SSD a region,
5,000 a page with `nextPageToken`. A machine of the catalog costs the sum of its parts (`gcp_parts.py`); one with a
part unpriced has no price. TPU hosts are left out: the list mixes on-demand and commitment prices of chips. The key
travels as the header `X-Goog-Api-Key`, so that no address holds it.
Documented at https://cloud.google.com/billing/v1/how-tos/catalog-api
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from typing import Any, Final, Literal
from urllib.parse import urlencode

from tonnage.catalog.market import InstanceType
from tonnage.errors import SourceError
from tonnage.sources.kinds import ListedPrices
from tonnage.sources.listed_prices import PriceBook, read_price, require_usd
from tonnage.sources.machines import RowRejectedError
from tonnage.sources.results import RowTally, SourceResult
from tonnage.sources.web import follow_pages
from tonnage.units import HOURS_PER_MONTH
from tonnage.values import dataclass

BASE_URL: Final = "https://cloudbilling.googleapis.com"
PATH: Final = "/v1/services/6F81-5844-456A/skus"
MODES: Final[Mapping[str, Mode]] = {"OnDemand": "on_demand", "Preemptible": "spot"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GcpBillingSource(ListedPrices):
    """The machines of the catalog in the regions named."""

    key: str = field(repr=False)
    base_url: str = BASE_URL

    @property
    def name(self) -> str:
        return "GCP billing catalog"

    def fetch(self) -> SourceResult:
        """Read every part, then put the machines together; raises SourceError."""
        tally = RowTally(self.name)
        parts = PartPrices()
        for skus in follow_pages("", self._ask, what=self.name):
            for sku in skus:
                take_sku(sku, parts, tally, set(self.regions))
        if tally.read == 0:
            raise SourceError(f"{self.name}: no SKU at all")
        book = PriceBook(tally)
        for machine in self.known.instance_types:
            if machine.provider == "gcp":
                for region in self.regions:
                    for purchase in MODES.values():
                        price = machine_price(machine, parts, region, purchase)
                        if price is not None:
                            book.add(machine, region, purchase, price, notes="sum of vCPU, memory, GPU, local SSD")
        return book.result(read_on=self.web.read_on(self.read_on))

    def _ask(self, token: str) -> tuple[list[Any], str | None]:
        params = {"currencyCode": "USD", "pageSize": "5000"} | ({"pageToken": token} if token else {})
        address = f"{self.base_url}{PATH}?{urlencode(params)}"
        page = self.web.json(address, headers={"X-Goog-Api-Key": self.key})
        if not isinstance(page, dict) or not isinstance(page.get("skus"), list):
            raise SourceError(f"{self.name}: a page without a list of skus")
        following = page.get("nextPageToken")
        return page["skus"], following if isinstance(following, str) and following else None


def take_sku(sku: Any, parts: PartPrices, tally: RowTally, regions: set[str]) -> None:
    """One SKU among the prices of parts, or out of it with a reason."""
    tally.read += 1
    category = sku.get("category") if isinstance(sku, dict) else None
    if not isinstance(category, dict):
        tally.quarantine("a row without a category", provider="gcp", figure=sku)
        return
    purchase = MODES.get(str(category.get("usageType")))
    description = str(sku.get("description", ""))
    part = part_of(description) if purchase else None
    if part is None or purchase is None:
        tally.drop("no part of an on-demand or spot machine")
        return
    places = [place for place in sku.get("serviceRegions") or () if place in regions]
    if not places:
        tally.drop("another region")
        return
    try:
        price = _unit_price(sku)
        clash = [place for place in places if not parts.add(part, place, purchase, price)]
    except RowRejectedError as rejection:
        tally.quarantine(
            str(rejection), provider="gcp", name=description, region=" ".join(places), purchase=purchase,
            figure=str(sku.get("pricingInfo", ""))[-120:],
        )  # fmt: skip
        return
    if clash:
        reason = "two prices for one part: machines with it have no price"
        tally.quarantine(
            reason, provider="gcp", name=description, region=" ".join(clash), purchase=purchase, figure=price
        )


def _unit_price(sku: Mapping[str, Any]) -> Decimal:
    """USD per vCPU-hour, GiB-hour or GPU-hour; raises RowRejectedError."""
    try:
        expression = sku["pricingInfo"][-1]["pricingExpression"]  # chronological: the last one holds
        rates = expression["tieredRates"]
        unit = rates[-1]["unitPrice"]
        usage = expression["usageUnit"]
    except (KeyError, IndexError, TypeError):
        raise RowRejectedError("pricingInfo is not as documented") from None
    if not isinstance(unit, dict):
        raise RowRejectedError("unitPrice is not an object")
    require_usd(unit.get("currencyCode"))
    units, nanos = unit.get("units", "0"), unit.get("nanos", 0)
    if isinstance(nanos, bool) or not isinstance(nanos, int) or not str(units).lstrip("-").isdigit():
        raise RowRejectedError("the price is not a number")
    price = read_price(Decimal(str(units)) + Decimal(nanos) / 10**9)
    if usage in ("h", "GiBy.h"):
        return price
    if usage == "GiBy.mo":
        return price / HOURS_PER_MONTH
    raise RowRejectedError("another unit than an hour or a month")


# price = vCPUs x core + GiB x ram + GPUs x gpu + GiB of bundled local SSD x ssd, each a region's hourly rate.
# Series and GPU names are those of the SKU descriptions («A2 Instance Core running in Americas», «Nvidia L4 GPU
# attached to Spot Preemptible VMs running in Americas»). Leaves out discounts for sustained use and commitments.
# Sources: https://cloud.google.com/compute/gpus-pricing, https://cloud.google.com/compute/vm-instance-pricing
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
    """The part a SKU prices; None where it prices no plain machine.

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
