"""SkyPilot's catalog: one CSV per cloud with machines, zones, on-demand and spot prices. Versions v5 to v8.

The files carry no date, so the day they are read is the caller's to state. Known traps are dropped with a
reason: sentinel prices, AWS local zones, GCP hosts without their GPU, commitment prices listed as on-demand.
Layout: https://github.com/skypilot-org/skypilot-catalog
"""

from __future__ import annotations

import ast
import csv
import re
from collections import defaultdict
from collections.abc import Callable
from datetime import date
from decimal import Decimal, InvalidOperation
from statistics import median, median_low
from typing import Any

from tonnage.catalog.aliases import devices_called
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Source
from tonnage.catalog.loading import MAX_USD_PER_HOUR
from tonnage.catalog.market import InstanceType, Offer, Purchase
from tonnage.errors import SourceError
from tonnage.sources.fetching import FetchLimits, Watch, fetch_text
from tonnage.sources.machines import RowNotWantedError, RowRejectedError, check_memory, find_device, settle
from tonnage.sources.results import RowTally, SourceResult
from tonnage.values import dataclass

REQUIRED = ("InstanceType", "Price", "Region")
GCP_HOSTS_WITHOUT_GPU = re.compile(r"(a2|a3|a4|a4x|g2|g4|ct\w*)-")
AWS_ZONE = re.compile(r"[a-z]{2}(-gov)?-[a-z]+-\d[a-z]")
PROVIDERS = {"do": "digitalocean"}  # SkyPilot's folder names where they differ from ours


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyPilotSource:
    """One cloud's file, at a path or URL. `read_on` is the day the prices held, None when not known."""

    provider: str
    location: str
    known: Catalog
    read_on: date | None = None
    limits: FetchLimits = FetchLimits()  # a frozen value
    watch: Watch | None = None
    wanted: Callable[[InstanceType, str], None] | None = None  # raises RowNotWantedError; None: every row

    @property
    def name(self) -> str:
        return f"SkyPilot catalog {self.provider}"

    def fetch(self) -> SourceResult:
        """Read and parse the file; raises SourceError."""
        text = fetch_text(self.location, self.limits, self.watch)
        return parse_skypilot_csv(
            text, provider=self.provider, known=self.known, read_on=self.read_on, name=self.name, wanted=self.wanted
        )


@dataclass(frozen=True, slots=True)
class _Listing:
    machine: InstanceType
    region: str
    price: Decimal | None
    spot: Decimal | None


def parse_skypilot_csv(
    text: str,
    *,
    provider: str,
    known: Catalog,
    read_on: date | None,
    name: str,
    wanted: Callable[[InstanceType, str], None] | None = None,
) -> SourceResult:
    """Machines and offers of one cloud's CSV; spot is the median over a region's zones (USD a machine-hour).

    Raises SourceError when the text is not such a file, is cut off, or has no row that can be used.
    """
    provider = PROVIDERS.get(provider, provider)
    source = Source(text=name, read_on=read_on)
    tally = RowTally(name)
    groups: dict[tuple[str, str], list[_Listing]] = defaultdict(list)
    for row in _rows(text, name, tally):
        try:
            listing = _listing(row, provider, known, source)
            if wanted is not None:
                wanted(listing.machine, listing.region)
        except RowNotWantedError as rejection:
            tally.drop(str(rejection))
            continue
        except RowRejectedError as rejection:
            tally.quarantine(
                str(rejection), provider=provider, name=row["InstanceType"], region=row["Region"],
                figure=f"{row['Price']} {row.get('SpotPrice', '')}".strip(),
            )  # fmt: skip
            continue
        tally.used += 1
        groups[listing.machine.name, listing.region].append(listing)
    if not groups:
        reasons = "; ".join(reason for reason, _ in tally.report().dropped[:3])
        raise SourceError(f"{name}: no row of {tally.read} can be used ({reasons or 'it is empty'})")
    machines = {group[0].machine.key: group[0].machine for group in groups.values()}
    offers = [offer for group in groups.values() for offer in _offers(group, source)]
    return SourceResult(
        instances=tuple(machines.values()),
        offers=tuple(offers),
        report=tally.report(),
        quarantined=tuple(tally.quarantined),
    )


def _rows(text: str, name: str, tally: RowTally) -> list[dict[str, str]]:
    lines = text.splitlines()
    reader = csv.reader(lines, strict=True)
    found: list[dict[str, str]] = []
    try:
        header = [column.strip() for column in next(reader, [])]
        missing = [column for column in REQUIRED if column not in header]
        if missing:
            raise SourceError(
                f"{name}: column {', '.join(missing)} is missing",
                hint=f"the file has {', '.join(header)[:200]}",
            )
        for cells in reader:
            if not cells:
                continue
            tally.read += 1
            if len(cells) == len(header):
                found.append(dict(zip(header, (cell.strip() for cell in cells), strict=True)))
            elif reader.line_num >= len(lines):
                raise SourceError(f"{name} ends in the middle of a row", hint="fetch it again")
            else:
                tally.drop("wrong number of cells")
    except csv.Error as error:
        raise SourceError(f"{name}, line {reader.line_num}: not CSV ({error})") from error
    return found


def _listing(row: dict[str, str], provider: str, known: Catalog, source: Source) -> _Listing:
    name = row["InstanceType"]
    if not name:
        raise RowNotWantedError("a GPU priced apart from its machine")
    if provider == "gcp" and GCP_HOSTS_WITHOUT_GPU.match(name):
        raise RowNotWantedError("a GCP machine priced without its GPU")
    zone = row.get("AvailabilityZone", "")
    if provider == "aws" and zone and not AWS_ZONE.fullmatch(zone):
        raise RowNotWantedError("an AWS local or wavelength zone")
    price, spot = _price(row, "Price"), _price(row, "SpotPrice")
    if price is None and spot is None:
        raise RowNotWantedError("no price")
    if price is not None and spot is not None and spot > price:
        raise RowRejectedError("spot above on-demand: one of them is another kind of price")
    return _Listing(settle(known, _machine(row, provider, known, source)), row["Region"], price, spot)


def _machine(row: dict[str, str], provider: str, known: Catalog, source: Source) -> InstanceType:
    label = row.get("AcceleratorName", "")
    count = _figure(row, "AcceleratorCount") or 0.0
    if bool(label) != bool(count):
        raise RowRejectedError("an accelerator without a count, or a count without an accelerator")
    device = find_device(known, (*devices_called(label, vocabulary="skypilot"), label)) if label else None
    memory = None if device is None or device.memory_gib is None else device.memory_gib * count
    if device is not None:
        check_memory(device, count, _listed_memory_gib(row.get("GpuInfo", "")))
    arch = row.get("Arch", "").casefold()
    return InstanceType(
        provider=provider,
        name=row["InstanceType"],
        accelerator=device.name if device else None,
        accelerator_count=count,
        gpu_memory_gib=memory,
        vcpus=_figure(row, "vCPUs"),
        memory_gib=_figure(row, "MemoryGiB"),
        network_gbit_per_s=None,
        local_ssd_gb=None,
        cpu_arch="arm64" if arch in ("arm64", "aarch64") else "x86_64",
        notes="" if arch else "cpu_arch not stated by the listing, assumed",
        source=source,
    )


def _offers(group: list[_Listing], source: Source) -> list[Offer]:
    """One on-demand and one spot offer of a machine in a region, over its zones."""
    prices = [listing.price for listing in group if listing.price is not None]
    spots = [listing.spot for listing in group if listing.spot is not None]
    found: list[tuple[Purchase, Decimal, str]] = []
    if prices:
        note = "" if len(set(prices)) == 1 else f"zones differ, {min(prices)} to {max(prices)}: the middle one"
        found.append(("on_demand", median_low(prices), note))
    if spots:
        note = "" if len(spots) == 1 else f"median of {len(spots)} zones"
        found.append(("spot", median(spots), note))
    machine = group[0].machine
    return [
        Offer(
            provider=machine.provider,
            instance_type=machine.name,
            region=group[0].region,
            purchase=purchase,
            usd_per_instance_hour=price,
            read_on=source.read_on,
            notes=note,
            source=source,
        )
        for purchase, price, note in found
    ]


def _price(row: dict[str, str], column: str) -> Decimal | None:
    """A price above zero; None when blank, zero or NaN (all three mean «not sold so»)."""
    text = row.get(column, "")
    if not text:
        return None
    try:
        price = Decimal(text)
    except InvalidOperation:
        raise RowRejectedError(f"{column} is not a number") from None
    if price.is_nan() or price == 0:
        return None
    if not price.is_finite() or price < 0:
        raise RowRejectedError(f"{column} is not above zero")
    if price > Decimal(MAX_USD_PER_HOUR):
        raise RowRejectedError(f"{column} is a sentinel (above {MAX_USD_PER_HOUR:g} USD an hour)")
    return price


def _figure(row: dict[str, str], column: str) -> float | None:
    text = row.get(column, "")
    if not text or text.casefold() == "nan":
        return None
    try:
        figure = float(text)
    except ValueError:
        raise RowRejectedError(f"{column} is not a number") from None
    if not 0 <= figure < 1e6:
        raise RowRejectedError(f"{column} is out of range")
    return figure or None


def _listed_memory_gib(info: str) -> float | None:
    """Total GPU memory (GiB) from `GpuInfo`, a Python or JSON literal; None when it is not there."""
    try:
        value: Any = ast.literal_eval(info) if info else None
    except (ValueError, SyntaxError):
        return None
    total = value.get("TotalGpuMemoryInMiB") if isinstance(value, dict) else None
    return total / 1024 if isinstance(total, int | float) and total > 0 else None
