"""Amazon Bedrock's token prices from AWS's price list files. No account is needed.

Two offers, a JSON file a region: `AmazonBedrock` (Amazon's and open models; attributes name model and kind, prices per
1K tokens) and `AmazonBedrockFoundationModels` (models sold through the marketplace; named by `servicename`, per 1M).
Only prices of text tokens are taken; images, audio, customisation and provisioned units are counted as left out.
Documented at https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final

from tonnage.catalog.managed import TOKEN_WAYS
from tonnage.catalog.managed_rows import TOKEN_UNIT
from tonnage.errors import SourceError
from tonnage.sources.aws_price_list import BASE_URL, region_files
from tonnage.sources.listed_prices import read_price, require_usd
from tonnage.sources.machines import RowRejectedError
from tonnage.sources.managed_prices import ManagedBook
from tonnage.sources.results import ManagedPriceRow, RowTally, SourceResult
from tonnage.sources.web import Web
from tonnage.values import dataclass

OFFERS: Final = ("AmazonBedrock", "AmazonBedrockFoundationModels")
PLATFORM: Final = "aws-bedrock"
TOKENS_PER_UNIT: Final = ((re.compile(r"1\s*k\s*tokens", re.I), 1_000), (re.compile(r"1\s*m\s*tokens", re.I), 10**6))
LARGEST_USD_PER_MILLION: Final = 10_000.0
_MILLION: Final = re.compile(r"million\s+(?:[a-z-]+\s+)*tokens", re.IGNORECASE)
_NO_TEXT: Final = re.compile(r"image|video|audio|speech|embed|custom|provisioned|train|storage|search", re.IGNORECASE)
_KINDS: Final = (
    (re.compile(r"cache.?write", re.I), "cache write"),
    (re.compile(r"cache", re.I), "cache read"),
    (re.compile(r"input", re.I), "input"),
    (re.compile(r"output|response", re.I), "output"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BedrockSource:
    """The regions named, of the price list at `base_url`."""

    web: Web
    regions: tuple[str, ...]
    read_on: date
    base_url: str = BASE_URL

    @property
    def name(self) -> str:
        return "Bedrock price list"

    def fetch(self) -> SourceResult:
        """Both offers in every region; a part that cannot be read is named, SourceError when none can."""
        tally = RowTally(self.name)
        book = ManagedBook(tally)
        parts = [(offer, region) for offer in OFFERS for region in self.regions]
        files: dict[str, Mapping[str, str] | SourceError] = {offer: self._files(offer) for offer in OFFERS}
        for offer, region in parts:
            try:
                document = self._document(files[offer], region)
            except SourceError as error:
                tally.miss(f"{offer} in {region}", error.message)
                continue
            for product, dimension in _priced(document):
                take_product(product, dimension, region, book, tally, read_on=self.web.read_on(self.read_on))
        tally.require_some(len(parts))
        return book.result()

    def _files(self, offer: str) -> Mapping[str, str] | SourceError:
        try:
            return region_files(self.web, self.base_url, offer)
        except SourceError as error:
            return error

    def _document(self, files: Mapping[str, str] | SourceError, region: str) -> Mapping[str, Any]:
        if isinstance(files, SourceError):
            raise files
        if region not in files:
            raise SourceError("the price list has no such region")
        document = self.web.json(self.base_url + files[region])
        if not isinstance(document, dict) or not isinstance(document.get("products"), dict):
            raise SourceError("a price list without products")
        return document


def _priced(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """(product, price dimension) of everything sold on demand."""
    terms = document.get("terms")
    on_demand = terms.get("OnDemand") if isinstance(terms, dict) else None
    for sku, product in document["products"].items():
        sold = on_demand.get(sku) if isinstance(on_demand, dict) else None
        for term in sold.values() if isinstance(sold, dict) else ():
            dimensions = term.get("priceDimensions") if isinstance(term, dict) else None
            for dimension in dimensions.values() if isinstance(dimensions, dict) else ():
                if isinstance(product, dict) and isinstance(dimension, dict):
                    yield product, dimension


def take_product(
    product: Mapping[str, Any],
    dimension: Mapping[str, Any],
    region: str,
    book: ManagedBook,
    tally: RowTally,
    *,
    read_on: date,
) -> None:
    """One price into the book, or out of it with a reason."""
    tally.read += 1
    stated = product.get("attributes")
    attributes: Mapping[str, Any] = stated if isinstance(stated, dict) else {}
    usage = str(attributes.get("usagetype", ""))
    words = f"{attributes.get('inferenceType', '')} {attributes.get('feature', '')} {usage}"
    model = str(attributes.get("model") or attributes.get("titanModel") or "")
    model = model or re.sub(r"\s*\(Amazon Bedrock Edition\)", "", str(attributes.get("servicename") or ""))
    kind = next((name for pattern, name in _KINDS if pattern.search(words)), None)
    tokens = _tokens_per_unit(dimension)
    if tokens is None or kind is None or not model or _NO_TEXT.search(words):
        tally.drop("no price of text tokens")
        return
    ways = [way for way in TOKEN_WAYS if way in words.casefold()]
    prices = dimension.get("pricePerUnit")
    currency = next(iter(prices), None) if isinstance(prices, dict) else None
    try:
        require_usd("USD" if isinstance(prices, dict) and "USD" in prices else currency)
        stated_price = prices["USD"] if isinstance(prices, dict) else None
        price = read_price(stated_price, most=LARGEST_USD_PER_MILLION) * (Decimal(10**6) / tokens)
        price = read_price(price, most=LARGEST_USD_PER_MILLION)
    except RowRejectedError as rejection:
        tally.quarantine(
            str(rejection), provider=PLATFORM, name=f"{model} {kind}", region=region, purchase=usage, figure=prices
        )
        return
    book.add(
        ManagedPriceRow(
            platform=PLATFORM, sku=f"{model} {kind}", unit=TOKEN_UNIT, price_usd=price.normalize(), region_cloud=region,
            conditions="; ".join([*(ways or ["on-demand"]), usage]), date=read_on.isoformat(), source=tally.source,
        )
    )  # fmt: skip


def _tokens_per_unit(dimension: Mapping[str, Any]) -> int | None:
    """How many tokens the price buys, from its unit or, where that says nothing («Units»), its description."""
    unit = str(dimension.get("unit", ""))
    for pattern, tokens in TOKENS_PER_UNIT:
        if pattern.search(unit):
            return tokens
    return 10**6 if unit.casefold() == "units" and _MILLION.search(str(dimension.get("description", ""))) else None
