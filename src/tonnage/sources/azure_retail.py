"""Azure's retail prices: consumption, spot and reservations of virtual machines. No account is needed.

One question a region, answered in pages: `Items` and `NextPageLink`. The API states prices only, no sizes, so a GPU
machine the catalog does not know is quarantined. A reservation's price is for its whole term. Filter values are
case-sensitive from version 2023-01-01-preview on.
Documented at https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlencode

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.market import Purchase
from tonnage.errors import SourceError, UnknownInstanceType
from tonnage.sources.kinds import ListedPrices
from tonnage.sources.listed_prices import HOURS_PER_YEAR, PriceBook, read_price, read_text, require_usd
from tonnage.sources.machines import NOT_HELD, RowRejectedError
from tonnage.sources.results import RowTally, SourceResult
from tonnage.sources.web import follow_pages, same_place
from tonnage.values import dataclass

BASE_URL: Final = "https://prices.azure.com"
PATH: Final = "/api/retail/prices"
API_VERSION: Final = "2023-01-01-preview"
NOT_PLAIN: Final = ("windows", "dedicated", "cloud services", "low priority", "expired")
TERMS: Final[Mapping[str, tuple[Purchase, int]]] = {"1 Year": ("reserved_1y", 1), "3 Years": ("reserved_3y", 3)}
GPU_SERIES: Final = "Standard_N"
LARGEST_TERM_USD: Final = 20_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureRetailSource(ListedPrices):
    """The regions named, of the API at `base_url`."""

    base_url: str = BASE_URL

    @property
    def name(self) -> str:
        return "Azure retail prices"

    def fetch(self) -> SourceResult:
        """Every region; one that cannot be read is named, SourceError when none can."""
        tally = RowTally(self.name)
        book = PriceBook(tally)
        for region in self.regions:
            try:
                items = list(self._items(region))
            except SourceError as error:
                tally.miss(region, error.message)
                continue
            for item in items:
                take_item(item, self.known, book, tally, today=self.read_on)
        tally.require_some(len(self.regions))
        return book.result(read_on=self.web.read_on(self.read_on))

    def _items(self, region: str) -> list[Any]:
        address = self.base_url + PATH
        quoted = region.replace("'", "''")
        wanted = f"serviceName eq 'Virtual Machines' and armRegionName eq '{quoted}'"
        first = f"{address}?{urlencode({'api-version': API_VERSION, '$filter': wanted})}"

        def ask(link: str) -> tuple[list[Any], str | None]:
            page = self.web.json(link)
            if not isinstance(page, dict) or not isinstance(page.get("Items"), list):
                raise SourceError(f"{self.name}: a page without a list of Items")
            following = page.get("NextPageLink")
            return page["Items"], same_place(address, following) if isinstance(following, str) and following else None

        pages = follow_pages(first, ask, what=f"{self.name}, {region}")
        return [item for page in pages for item in page]


def take_item(item: Any, known: Catalog, book: PriceBook, tally: RowTally, *, today: date) -> None:
    """One meter into the book, or out of it with a reason."""
    tally.read += 1
    if not isinstance(item, dict):
        tally.quarantine("a row that is no object", provider="azure", figure=item)
        return
    name, region = str(item.get("armSkuName", "")), str(item.get("armRegionName", ""))
    left_out = _left_out(item, today)
    if left_out:
        tally.drop(left_out)
        return
    try:
        machine = known.instance_type(name, "azure") if name else None
    except UnknownInstanceType:
        machine = None
    if machine is None and name and not name.startswith(GPU_SERIES):
        tally.drop(NOT_HELD)
        return
    figure = item.get("retailPrice", "")
    try:
        read_text(item, "armSkuName")
        if machine is None:
            raise RowRejectedError("unknown instance facts: the API states no sizes")
        require_usd(item.get("currencyCode"))
        purchase, price = _price(item)
        since = str(item.get("effectiveStartDate") or "")[:10]
        book.add(machine, read_text(item, "armRegionName"), purchase, price, since=since)
    except RowRejectedError as rejection:
        kind = str(item.get("type", ""))
        tally.quarantine(str(rejection), provider="azure", name=name, region=region, purchase=kind, figure=figure)


def _left_out(item: Mapping[str, Any], today: date) -> str | None:
    """Why a meter is not a plain Linux machine's price of today; None where it is."""
    words = f"{item.get('productName')} {item.get('skuName')} {item.get('meterName')}".casefold()
    if any(word in words for word in NOT_PLAIN):
        return "Windows, dedicated, low priority or a cloud service"
    if item.get("type") == "DevTestConsumption" or item.get("isPrimaryMeterRegion") is False:
        return "a developer price or a secondary meter"
    if str(item.get("effectiveStartDate") or "")[:10] > today.isoformat():
        return "a price that does not hold yet"
    ends = str(item.get("effectiveEndDate") or "")[:10]
    return "a price that no longer holds" if ends and ends < today.isoformat() else None


def _price(item: Mapping[str, Any]) -> tuple[Purchase, Decimal]:
    """How it is bought, and USD an hour."""
    kind = item.get("type")
    if kind == "Reservation":
        term = TERMS.get(str(item.get("reservationTerm")))
        if term is None:
            raise RowRejectedError("a reservation of another term")
        whole = read_price(item.get("retailPrice"), most=LARGEST_TERM_USD)
        purchase, years = term
        hourly = (whole / (years * HOURS_PER_YEAR)).quantize(Decimal("0.000001"))
        return purchase, read_price(hourly)
    if kind != "Consumption":
        raise RowRejectedError("another type of price")
    if item.get("unitOfMeasure") != "1 Hour":
        raise RowRejectedError("the unit is not an hour")
    spot = "spot" in f"{item.get('skuName')} {item.get('meterName')}".casefold()
    return ("spot" if spot else "on_demand"), read_price(item.get("retailPrice"))
