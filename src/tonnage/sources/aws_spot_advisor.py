"""Spot prices from AWS's public Spot Instance Advisor: what spot saved over on-demand. No account is needed.

`spot_advisor[region]["Linux"][type]` holds `s`, the saving in whole per cent over the past month, and `r`, the index of
an interruption class in `ranges`. The price is on-demand x (1 - s/100) with the on-demand price of the catalog: within
half a per cent of on-demand, an average, and marked as computed. `aws-spot` reads the price itself.
The file is linked from https://aws.amazon.com/ec2/spot/instance-advisor/
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.market import Offer
from tonnage.errors import SourceError, UnknownInstanceType
from tonnage.sources.kinds import ListedPrices
from tonnage.sources.listed_prices import PriceBook
from tonnage.sources.results import RowTally, SourceResult
from tonnage.values import dataclass

BASE_URL: Final = "https://spot-bid-advisor.s3.amazonaws.com"
PATH: Final = "/spot-advisor-data.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsSpotAdvisorSource(ListedPrices):
    """The machines and regions for which the catalog has an on-demand price."""

    base_url: str = BASE_URL

    @property
    def name(self) -> str:
        return "AWS Spot Instance Advisor"

    def fetch(self) -> SourceResult:
        """Read the file once; raises SourceError."""
        document = self.web.json(self.base_url + PATH)
        day = self.web.read_on(self.read_on)
        return parse_advisor(document, known=self.known, regions=self.regions, read_on=day, name=self.name)


def parse_advisor(document: Any, *, known: Catalog, regions: tuple[str, ...], read_on: date, name: str) -> SourceResult:
    """Computed spot offers of the catalog's machines; raises SourceError when the file is another."""
    advice = document.get("spot_advisor") if isinstance(document, dict) else None
    if not isinstance(advice, dict):
        raise SourceError(f"{name}: the file has no spot_advisor")
    ranges = document.get("ranges")
    classes = {
        entry["index"]: str(entry.get("label", ""))
        for entry in (ranges if isinstance(ranges, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("index"), int)
    }
    tally = RowTally(name)
    book = PriceBook(tally)
    for region in regions:
        rows = advice.get(region, {}).get("Linux") if isinstance(advice.get(region), dict) else None
        if not isinstance(rows, dict):
            tally.miss(region, "not in the file")
            continue
        for machine, row in rows.items():
            _take(machine, region, row, classes, known, book, tally)
    return book.result(read_on=read_on)


def _take(
    name: str, region: str, row: Any, classes: Mapping[int, str], known: Catalog, book: PriceBook, tally: RowTally
) -> None:
    tally.read += 1
    try:
        machine = known.instance_type(name, "aws")
    except UnknownInstanceType:
        tally.drop("a machine that the catalog does not hold")
        return
    plain = next((o for o in known.offers_of(machine) if o.region == region and o.purchase == "on_demand"), None)
    if plain is None:
        tally.drop("no on-demand price to compute from")
        return
    saving = row.get("s") if isinstance(row, dict) else None
    if isinstance(saving, bool) or not isinstance(saving, int | float) or not 0 < saving < 100:
        reason = "the saving is not between 0 and 100 %"
        tally.quarantine(reason, provider="aws", name=name, region=region, purchase="spot", figure=row)
        return
    price = (plain.usd_per_instance_hour * (100 - Decimal(str(saving))) / 100).quantize(Decimal("0.0001"))
    book.add(machine, region, "spot", price, notes=_note(plain, saving, classes.get(row.get("r"), "")))


def _note(plain: Offer, saving: float, interrupted: str) -> str:
    day = plain.read_on.isoformat() if plain.read_on else "no date"
    often = f"; interrupted {interrupted} a month" if interrupted else ""
    return f"computed: on-demand {plain.usd_per_instance_hour} ({day}) less {saving:g} %{often}"
