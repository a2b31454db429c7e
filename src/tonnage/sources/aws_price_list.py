"""EC2 prices from AWS's price list files: on-demand, and reserved without upfront payment. No account is needed.

`/offers/v1.0/aws/AmazonEC2/current/region_index.json` names one file a region; its CSV twin has five lines about
itself, a line of column names, then a price a line. A region's file has hundreds of megabytes, so it is read as a
stream and only the lines of machines the catalog holds are kept; the JSON twin cannot be read so, which is why the
CSV is. The list names the number of GPUs, never their model: a GPU machine the catalog does not know is quarantined.
Documented at https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-service-price-list-file-for-services.html
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.market import InstanceType, Purchase
from tonnage.errors import SourceError, UnknownInstanceType
from tonnage.http.retries import TemporaryError
from tonnage.sources.kinds import ListedPrices
from tonnage.sources.listed_prices import PriceBook, read_price, require_usd
from tonnage.sources.machines import NOT_HELD, RowRejectedError, settle
from tonnage.sources.results import RowTally, SourceResult
from tonnage.sources.web import Web
from tonnage.values import dataclass

BASE_URL: Final = "https://pricing.us-east-1.amazonaws.com"
REGION_INDEX: Final = "/offers/v1.0/aws/{offer}/current/region_index.json"
LINES_BEFORE_HEADER: Final = 5
NEEDED: Final = (
    "termtype", "unit", "priceperunit", "currency", "instancetype", "operatingsystem", "tenancy", "regioncode",
)  # fmt: skip
PLAIN_LINUX: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("operatingsystem", ("Linux",)),
    ("tenancy", ("Shared",)),
    ("preinstalleds/w", ("", "NA")),
    ("capacitystatus", ("", "Used")),
    ("marketoption", ("", "OnDemand")),
    ("locationtype", ("", "AWS Region")),
    ("unit", ("Hrs",)),
)
RESERVED: Final[Mapping[str, Purchase]] = {"1yr": "reserved_1y", "3yr": "reserved_3y"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsPriceListSource(ListedPrices):
    """The regions named, of the price list at `base_url`."""

    base_url: str = BASE_URL

    @property
    def name(self) -> str:
        return "AWS price list"

    def fetch(self) -> SourceResult:
        """Every region; one that cannot be read is named, SourceError when none can."""
        files = region_files(self.web, self.base_url, "AmazonEC2")
        tally = RowTally(self.name)
        book = PriceBook(tally)
        for region in self.regions:
            try:
                rows = self._rows(files, region)
            except SourceError as error:
                tally.miss(region, error.message)
                continue
            for row in rows:
                take_row(row, self.known, book, tally)
        tally.require_some(len(self.regions))
        return book.result(read_on=self.web.read_on(self.read_on))

    def _rows(self, files: Mapping[str, str], region: str) -> list[dict[str, str]]:
        if region not in files:
            raise SourceError("the price list has no such region")
        url = self.base_url + re.sub(r"\.json$", ".csv", files[region])
        return self.web.collect(url, lambda: Ec2Lines(url))


def region_files(web: Web, base_url: str, offer: str) -> dict[str, str]:
    """Path of each region's file of one offer; raises SourceError when the index is not as documented."""
    index = web.json(base_url + REGION_INDEX.format(offer=offer))
    regions = index.get("regions") if isinstance(index, dict) else None
    if not isinstance(regions, dict) or not regions:
        raise SourceError(f"the region index of {offer} names no regions")
    found = {
        code: entry["currentVersionUrl"]
        for code, entry in regions.items()
        if isinstance(entry, dict) and str(entry.get("currentVersionUrl", "")).startswith("/")
    }
    if not found:
        raise SourceError(f"the region index of {offer} has no currentVersionUrl")
    return found


class Ec2Lines:
    """Keeps the rows of shared Linux machines while a region's CSV streams past."""

    def __init__(self, url: str) -> None:
        self._url, self._number = url, 0
        self._header: list[str] = []
        self._rows: list[dict[str, str]] = []

    def take(self, line: bytes) -> None:
        """One line; raises SourceError where the sixth does not name the columns."""
        self._number += 1
        if self._number <= LINES_BEFORE_HEADER:
            return
        if self._number == LINES_BEFORE_HEADER + 1:
            self._read_header(line)
        elif _may_be_wanted(line):
            cells = _cells(line)
            if len(cells) != len(self._header):
                raise SourceError(f"{self._url}, line {self._number}: {len(cells)} cells, not {len(self._header)}")
            row = dict(zip(self._header, cells, strict=True))
            if all(row.get(column, "") in allowed for column, allowed in PLAIN_LINUX):
                self._rows.append(row)

    def finish(self, tail: bytes) -> list[dict[str, str]]:
        """The kept rows; raises TemporaryError when the file ends inside a line or before its columns."""
        if not self._header:
            raise TemporaryError("the file ends before its column names")
        if tail.strip():
            if len(_cells(tail)) != len(self._header):
                raise TemporaryError("the file ends in the middle of a row")
            self.take(tail)
        return self._rows

    def _read_header(self, line: bytes) -> None:
        self._header = [re.sub(r"\s", "", cell).casefold() for cell in _cells(line)]
        missing = [column for column in NEEDED if column not in self._header]
        if missing:
            raise SourceError(f"{self._url}: column {', '.join(missing)} is missing")


def _may_be_wanted(line: bytes) -> bool:
    """A cheap look at a line, before it is taken apart: nine in ten are other systems or payment plans."""
    if b"Linux" not in line or b"Shared" not in line or b"Hrs" not in line:
        return False
    return b"Reserved" not in line or b"No Upfront" in line


def _cells(line: bytes) -> list[str]:
    try:
        text = line.decode("utf-8").rstrip("\r")
        return [cell.strip() for cell in next(csv.reader([text], strict=True), [])]
    except (UnicodeDecodeError, csv.Error):
        return []


def take_row(row: Mapping[str, str], known: Catalog, book: PriceBook, tally: RowTally) -> None:
    """One row into the book, or out of it with a reason."""
    purchase = _purchase(row)
    if purchase is None:
        return
    tally.read += 1
    name, region = row["instancetype"], row["regioncode"]
    gpus = _figure(row.get("gpu", ""))
    try:
        machine = known.instance_type(name, "aws")
    except UnknownInstanceType:
        if gpus:
            reason = "unknown instance facts: the list names no GPU model"
            tally.quarantine(
                reason, provider="aws", name=name, region=region, purchase=purchase, figure=f"{gpus:g} GPUs"
            )
        else:
            tally.drop(NOT_HELD)
        return
    try:
        require_usd(row["currency"])
        price = read_price(row["priceperunit"])
        book.add(
            settle(known, _as_listed(machine, row, gpus)), region, purchase, _rounded(price),
            since=row.get("effectivedate", "")[:10],
            notes="standard, no upfront payment" if purchase != "on_demand" else "",
        )  # fmt: skip
    except RowRejectedError as rejection:
        tally.quarantine(
            str(rejection), provider="aws", name=name, region=region, purchase=purchase, figure=row["priceperunit"]
        )


def _purchase(row: Mapping[str, str]) -> Purchase | None:
    if row["termtype"] == "OnDemand":
        return "on_demand"
    plain = row.get("offeringclass") == "standard" and row.get("purchaseoption") == "No Upfront"
    return RESERVED.get(row.get("leasecontractlength", "")) if plain else None


def _as_listed(machine: InstanceType, row: Mapping[str, str], gpus: float | None) -> InstanceType:
    """The machine with the figures the list states, for comparison."""
    return replace(
        machine,
        vcpus=_figure(row.get("vcpu", "")),
        memory_gib=_figure(row.get("memory", "").removesuffix(" GiB").replace(",", "")),
        accelerator_count=gpus if gpus and machine.accelerator_count >= 1 else machine.accelerator_count,
    )


def _figure(text: str) -> float | None:
    """A number above zero; None for "NA", blanks and the like."""
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) and float(text) > 0 else None


def _rounded(price: Decimal) -> Decimal:
    """Without the zeros a price list pads with."""
    return price.normalize() if price != price.to_integral() else price.quantize(Decimal(1))
