"""gpuhunt's catalog: offers of many clouds under one shape. Needs the extra `gpuhunt`, imported on use.

Fields of its `CatalogItem`: instance_name, location, price (USD/h), cpu, memory (GB), gpu_count, gpu_name,
gpu_memory (GB a device), spot, provider. Source: dstackai/gpuhunt src/gpuhunt/_internal/models.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from importlib.util import find_spec
from math import isfinite
from typing import Protocol

from tonnage.catalog.aliases import devices_called
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Accelerator, Source
from tonnage.catalog.loading import MAX_USD_PER_HOUR
from tonnage.catalog.market import InstanceType, Offer
from tonnage.errors import MissingExtra, SourceError
from tonnage.sources.machines import RowNotWantedError, RowRejectedError, check_memory, find_device, settle
from tonnage.sources.results import RowTally, SourceResult
from tonnage.values import dataclass

PROVIDERS = {"lambdalabs": "lambda", "digitalocean": "digitalocean"}
MARKETPLACES = ("vastai", "tensordock")  # each offer is one person's machine, gone tomorrow: no list price


class CatalogItem(Protocol):
    """What of gpuhunt's item is read here."""

    instance_name: str
    location: str
    price: float
    cpu: int
    memory: float
    gpu_count: int
    gpu_name: str | None
    gpu_memory: float | None
    spot: bool
    provider: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuhuntSource:
    """Everything gpuhunt lists for `providers` (its own names; empty: all)."""

    known: Catalog
    read_on: date | None
    providers: tuple[str, ...] = ()
    wanted: Callable[[InstanceType, str], None] | None = None  # raises RowNotWantedError; None: every item

    @property
    def name(self) -> str:
        return "gpuhunt"

    def fetch(self) -> SourceResult:
        """Ask gpuhunt; raises MissingExtra or SourceError."""
        try:
            import gpuhunt  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            raise MissingExtra("the gpuhunt price source", "gpuhunt") from None
        try:
            items: Sequence[CatalogItem] = gpuhunt.query(provider=[_their_name(p) for p in self.providers] or None)
        except Exception as error:  # its providers raise what their SDKs raise
            raise SourceError(f"gpuhunt failed: {type(error).__name__}: {error}") from error
        return parse_catalog_items(items, known=self.known, read_on=self.read_on, name=self.name, wanted=self.wanted)


def gpuhunt_is_installed() -> bool:
    """Whether the extra is there."""
    return find_spec("gpuhunt") is not None


def _their_name(provider: str) -> str:
    return next((theirs for theirs, ours in PROVIDERS.items() if ours == provider), provider)


def parse_catalog_items(
    items: Iterable[CatalogItem],
    *,
    known: Catalog,
    read_on: date | None,
    name: str = "gpuhunt",
    wanted: Callable[[InstanceType, str], None] | None = None,
) -> SourceResult:
    """gpuhunt's items as machines and offers; a second price for one machine, region and mode is dropped.

    Raises SourceError when no item can be used.
    """
    source, tally = Source(text=name, read_on=read_on), RowTally(name)
    machines: dict[tuple[str, str], InstanceType] = {}
    offers: dict[tuple[str, str, str, str], Offer] = {}
    for item in items:
        tally.read += 1
        try:
            machine, offer = _translate(item, known, source)
            if wanted is not None:
                wanted(machine, offer.region)
            key = (offer.provider, offer.instance_type, offer.region, offer.purchase)
            if key in offers:
                raise RowRejectedError("a second price for the same machine, region and mode")
        except RowNotWantedError as rejection:
            tally.drop(str(rejection))
            continue
        except RowRejectedError as rejection:
            tally.quarantine(
                str(rejection), provider=PROVIDERS.get(item.provider, item.provider), name=item.instance_name,
                region=item.location, purchase="spot" if item.spot else "on_demand", figure=item.price,
            )  # fmt: skip
            continue
        tally.used += 1
        machines.setdefault(machine.key, machine)
        offers[key] = offer
    if not offers:
        raise SourceError(f"{name}: no item of {tally.read} can be used")
    return SourceResult(
        instances=tuple(machines.values()),
        offers=tuple(offers.values()),
        report=tally.report(),
        quarantined=tuple(tally.quarantined),
    )


def _translate(item: CatalogItem, known: Catalog, source: Source) -> tuple[InstanceType, Offer]:
    if item.provider in MARKETPLACES:
        raise RowNotWantedError("a marketplace offer, not a list price")
    if not isfinite(item.price) or not 0 < item.price <= MAX_USD_PER_HOUR:
        raise RowRejectedError("the price is not above zero, or a sentinel")
    machine = settle(known, _machine(item, known, source))
    offer = Offer(
        provider=machine.provider,
        instance_type=machine.name,
        region=item.location,
        purchase="spot" if item.spot else "on_demand",
        usd_per_instance_hour=Decimal(str(item.price)),
        read_on=source.read_on,
        notes="",
        source=source,
    )
    return machine, offer


def _machine(item: CatalogItem, known: Catalog, source: Source) -> InstanceType:
    device = _device(item, known) if item.gpu_count else None
    arch = getattr(item, "cpu_arch", None)  # newer versions say it
    arch = str(getattr(arch, "value", arch) or "").casefold()
    return InstanceType(
        provider=PROVIDERS.get(item.provider, item.provider),
        name=item.instance_name,
        accelerator=device.name if device else None,
        accelerator_count=float(item.gpu_count),
        gpu_memory_gib=device.memory_gib * item.gpu_count if device and device.memory_gib else None,
        vcpus=float(item.cpu) or None,
        memory_gib=float(item.memory) or None,
        network_gbit_per_s=None,
        local_ssd_gb=None,
        cpu_arch="arm64" if arch in ("arm", "arm64", "aarch64") else "x86_64",
        notes="" if arch else "cpu_arch not stated by the listing, assumed",
        source=source,
    )


def _device(item: CatalogItem, known: Catalog) -> Accelerator:
    name = item.gpu_name or ""
    if not name:
        raise RowRejectedError("a device without a name")
    by_memory = devices_called(f"{name}:{item.gpu_memory:g}", vocabulary="gpuhunt") if item.gpu_memory else ()
    device = find_device(known, (*by_memory, *devices_called(name, vocabulary="gpuhunt"), name))
    check_memory(device, 1, item.gpu_memory)
    return device
