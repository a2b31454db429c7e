"""DigitalOcean's droplet sizes, GPU droplets among them. Needs a token; one price everywhere a size is sold.

`GET /v2/sizes` answers `sizes` and, while there are more, `links.pages.next`.
Documented at https://docs.digitalocean.com/reference/api/reference/sizes/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import date
from typing import Any, Final

from tonnage.catalog.aliases import devices_called
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Accelerator, Source
from tonnage.catalog.market import InstanceType
from tonnage.errors import SourceError, UnknownInstanceType
from tonnage.sources.kinds import ListedPrices
from tonnage.sources.listed_prices import PriceBook, read_count, read_price, read_text
from tonnage.sources.machines import NOT_HELD, RowRejectedError, check_memory, find_device, settle
from tonnage.sources.results import RowTally, SourceResult
from tonnage.sources.web import follow_pages, same_place
from tonnage.values import dataclass

BASE_URL: Final = "https://api.digitalocean.com"
PATH: Final = "/v2/sizes"
PROVIDER: Final = "digitalocean"


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitalOceanSource(ListedPrices):
    """The sizes that the token's account may see; `regions` empty: all."""

    token: str = field(repr=False)
    regions: tuple[str, ...] = ()
    base_url: str = BASE_URL

    @property
    def name(self) -> str:
        return "DigitalOcean sizes"

    def fetch(self) -> SourceResult:
        """Read every page; raises SourceError."""
        tally = RowTally(self.name)
        book = PriceBook(tally)
        address = self.base_url + PATH
        for sizes in follow_pages(f"{address}?per_page=200", self._ask, what=self.name):
            for size in sizes:
                take_size(size, self.known, book, tally, regions=self.regions, read_on=self.read_on)
        return book.result(read_on=self.web.read_on(self.read_on))

    def _ask(self, link: str) -> tuple[list[Any], str | None]:
        page = self.web.json(link, headers={"Authorization": f"Bearer {self.token}"})
        if not isinstance(page, dict) or not isinstance(page.get("sizes"), list):
            raise SourceError(f"{self.name}: a page without a list of sizes")
        links = page.get("links")
        pages = links.get("pages") if isinstance(links, dict) else None
        following = pages.get("next") if isinstance(pages, dict) else None
        return page["sizes"], same_place(self.base_url + PATH, following) if isinstance(following, str) else None


def take_size(
    size: Any, known: Catalog, book: PriceBook, tally: RowTally, *, regions: tuple[str, ...], read_on: date
) -> None:
    """One size into the book, a price a region, or out of it with a reason."""
    tally.read += 1
    if not isinstance(size, dict):
        tally.quarantine("a row that is no object", provider=PROVIDER, figure=size)
        return
    name = str(size.get("slug", ""))
    gpu = size.get("gpu_info")
    try:
        if not gpu and _not_held(known, read_text(size, "slug")):
            tally.drop(NOT_HELD)
            return
        if size.get("available") is False:
            tally.drop("not to be had now")
            return
        price = read_price(size.get("price_hourly"))
        machine = settle(known, _machine(size, known, Source(text=tally.source, read_on=read_on)))
        places = size.get("regions")
        if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
            raise RowRejectedError("regions is not a list of texts")
    except RowRejectedError as rejection:
        tally.quarantine(str(rejection), provider=PROVIDER, name=name, figure=size.get("price_hourly", ""))
        return
    for place in dict.fromkeys(places):
        if not regions or place in regions:
            book.add(machine, place, "on_demand", price)


def _not_held(known: Catalog, name: str) -> bool:
    try:
        known.instance_type(name, PROVIDER)
    except UnknownInstanceType:
        return True
    return False


def _machine(size: Mapping[str, Any], known: Catalog, source: Source) -> InstanceType:
    gpu = size.get("gpu_info") or {}
    if not isinstance(gpu, dict):
        raise RowRejectedError("gpu_info is not an object")
    count = read_count(gpu, "count", 64) if gpu else 0.0
    device = _device(gpu, known, count) if gpu else None
    return InstanceType(
        provider=PROVIDER,
        name=read_text(size, "slug"),
        accelerator=device.name if device else None,
        accelerator_count=count,
        gpu_memory_gib=device.memory_gib * count if device and device.memory_gib else None,
        vcpus=read_count(size, "vcpus"),
        memory_gib=read_count(size, "memory", 1e8) / 1024,  # the API's megabytes are 2²⁰ bytes: 245760 is 240 GiB
        network_gbit_per_s=None,
        local_ssd_gb=None,
        cpu_arch="x86_64",
        notes="cpu_arch not stated by the listing, assumed",
        source=source,
    )


def _device(gpu: Mapping[str, Any], known: Catalog, count: float) -> Accelerator:
    """`nvidia_h100` with 640 GiB of VRAM over 8 is the H100 of that memory; some sizes state it per device."""
    model = read_text(gpu, "model").upper()
    plain = model.removeprefix("NVIDIA_").removeprefix("AMD_").replace("_", "-")
    vram = gpu.get("vram")
    amount = read_count(vram, "amount", 1e5) if isinstance(vram, dict) else None
    names = [*devices_called(plain, vocabulary="gpuhunt"), plain]
    for each in (amount, amount / count) if amount else ():
        names = [*devices_called(f"{plain}:{each:g}", vocabulary="gpuhunt"), *names]
    device = find_device(known, tuple(names))
    if amount is not None and amount != device.memory_gib:
        check_memory(device, count, amount)
    return device
