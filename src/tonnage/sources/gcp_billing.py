"""Compute Engine prices from the Cloud Billing Catalog API. Needs an API key.

The API prices parts, not machines: `services/6F81-5844-456A/skus` lists vCPU, memory, GPU and local SSD a region,
5,000 a page with `nextPageToken`. A machine of the catalog costs the sum of its parts (`gcp_parts.py`); one with a
part unpriced has no price. TPU hosts are left out: the list mixes on-demand and commitment prices of chips. The key
travels as the header `X-Goog-Api-Key`, so that no address holds it.
Documented at https://cloud.google.com/billing/v1/how-tos/catalog-api
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from tonnage.errors import SourceError
from tonnage.sources.gcp_parts import Mode, PartPrices, machine_price, part_of
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
