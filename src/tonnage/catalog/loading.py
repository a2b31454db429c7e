"""Load the packaged hardware tables and one snapshot of what is sold, every row validated."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from tonnage.catalog.aliases import load_aliases
from tonnage.catalog.capacity import read_capacity
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Accelerator, Source
from tonnage.catalog.hardware_rows import (
    ACCELERATOR_COLUMNS,
    CPU_COLUMNS,
    LINK_COLUMNS,
    MISTAKEN_COLUMNS,
    PROVIDER_COLUMNS,
    REGION_COLUMNS,
    read_accelerator,
    read_cpu,
    read_link,
    read_mistaken,
    read_provider,
    read_region,
)
from tonnage.catalog.managed_rows import read_billing, read_managed
from tonnage.catalog.market import InstanceType, Offer
from tonnage.catalog.offer_rows import read_offers
from tonnage.catalog.reserved import reserved_offers
from tonnage.catalog.rows import Row, read_rows
from tonnage.catalog.services import read_services
from tonnage.errors import CatalogError
from tonnage.values import dataclass

INSTANCE_COLUMNS = (
    "provider", "name", "accelerator", "accelerator_count", "gpu_memory_gib", "vcpus", "memory_gib",
    "network_gbit_per_s", "network_source", "local_ssd_gb", "cpu_arch", "scale_up", "scale_out", "notes",
    "source", "read_on",
)  # fmt: skip

PURCHASES = ("on_demand", "spot", "reserved_1y", "reserved_3y")
MEMORY_TOLERANCE = 0.03  # GPU memory as a provider rounds it against device x count
MAX_USD_PER_HOUR = 500.0  # per machine; SkyPilot's sentinel is 700


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotMeta:
    """What a snapshot says of itself."""

    name: str
    built_on: date
    sources: tuple[str, ...]
    notes: str
    built_at: datetime | None = None  # the moment, which orders the snapshots of one day; None: not stated


def snapshot_folders() -> tuple[Traversable, ...]:
    """The packaged snapshots, oldest first."""
    folder = files("tonnage.catalog") / "data" / "snapshots"
    return tuple(sorted((entry for entry in folder.iterdir() if entry.is_dir()), key=lambda entry: entry.name))


def load_catalog(folder: Path | None = None, *, strict: bool = True) -> Catalog:
    """The newest packaged snapshot, or the one in `folder`, over the packaged hardware tables.

    Managed prices are the packaged ones, or those of a managed_prices.csv in the folder; committed prices become
    offers of the machines they are for (of a folder without that file no offers are added). Raises CatalogError
    naming file, line and column; but a row of offers.csv that cannot be used is left out, named in `left_out`, and
    the rest counts. With `strict=False` rows that only contradict each other
    (GPU memory against the device, a date after the snapshot, an offer twice) load, for `check_catalog`.
    """
    return _packaged_catalog(strict) if folder is None else _read_catalog(folder, strict)


@cache
def _packaged_catalog(strict: bool) -> Catalog:
    """The newest packaged snapshot, read once: packaged data do not change, and a catalog is a frozen value."""
    return _read_catalog(None, strict)


def _read_catalog(folder: Path | None, strict: bool) -> Catalog:
    place: Traversable | Path = snapshot_folders()[-1] if folder is None else folder
    data = files("tonnage.catalog") / "data"
    accelerators = tuple(read_accelerator(row) for row in read_rows(data / "accelerators.csv", ACCELERATOR_COLUMNS))
    links = tuple(read_link(row) for row in read_rows(data / "links.csv", LINK_COLUMNS))
    providers = tuple(read_provider(row) for row in read_rows(data / "providers.csv", PROVIDER_COLUMNS))
    _require_unique("accelerators.csv", (device.name for device in accelerators))
    _require_unique("links.csv", (link.name for link in links))
    devices = {device.name: device for device in accelerators}
    _check_aliases(devices)
    meta = read_meta(place / "snapshot.toml")
    reader = _SnapshotReader(meta.built_on, devices, {link.name for link in links}, strict)
    instances = reader.instances(place / "instances.csv")
    rows = read_offers(place / "offers.csv", (one.key for one in instances), reader.offer, unique=strict)
    offers = rows.offers
    own = place / "managed_prices.csv"
    if not rows.offers and not own.is_file():
        raise CatalogError(
            f"the snapshot '{meta.name}' is empty: offers.csv holds no price",
            hint="rebuild it: `tonnage catalog refresh`, or leave --catalog out",
        )
    managed = read_managed(own if own.is_file() else data / "managed_prices.csv")
    belongs = folder is None or own.is_file()  # a folder's offers are its own
    committed, quarantined = reserved_offers(managed.reserved if belongs else (), instances, offers)
    return Catalog(
        name=meta.name,
        built_on=meta.built_on,
        sources=meta.sources,
        notes=meta.notes,
        accelerators=accelerators,
        instance_types=instances,
        offers=sold_offers((*offers, *committed)),
        links=links,
        cpus=tuple(read_cpu(row) for row in read_rows(data / "cpus.csv", CPU_COLUMNS)),
        providers=providers,
        regions=tuple(read_region(row) for row in read_rows(data / "regions.csv", REGION_COLUMNS)),
        mistaken_names=tuple(read_mistaken(row) for row in read_rows(data / "mistaken_names.csv", MISTAKEN_COLUMNS)),
        managed=managed,
        quarantined=quarantined,
        left_out=rows.left_out,
        billing=read_billing(data / "billing.csv"),
        services=read_services(data / "services.csv", [provider.name for provider in providers]),
        capacity=read_capacity(data / "capacity.csv", [provider.name for provider in providers]),
    )


def read_meta(path: Traversable | Path) -> SnapshotMeta:
    """snapshot.toml; raises CatalogError when it is missing or not as expected."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CatalogError(f"{path} does not exist", hint="is this a snapshot folder?") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogError(f"{path} cannot be read: {error}") from error
    name, built_on, sources = table.get("name"), table.get("built_on"), table.get("sources")
    if not isinstance(name, str) or not name:
        raise CatalogError(f"{path.name}: 'name' must be a text")
    if type(built_on) is not date:
        raise CatalogError(f"{path.name}: 'built_on' must be a date such as 2026-11-20, without quotes")
    if not isinstance(sources, list) or not sources or not all(isinstance(text, str) for text in sources):
        raise CatalogError(f"{path.name}: 'sources' must be a list of texts")
    notes, built_at = str(table.get("notes", "")).strip(), table.get("built_at")
    if built_at is not None and not isinstance(built_at, datetime):
        raise CatalogError(f"{path.name}: 'built_at' must be an instant such as 2026-11-20T08:00:00Z, without quotes")
    if built_at is not None and built_at.tzinfo is None:
        built_at = built_at.replace(tzinfo=UTC)
    return SnapshotMeta(name=name, built_on=built_on, sources=tuple(sources), notes=notes, built_at=built_at)


class _SnapshotReader:
    """Reads a snapshot's two tables against the hardware they may name."""

    def __init__(self, built_on: date, devices: dict[str, Accelerator], links: set[str], strict: bool) -> None:
        self.built_on, self.devices, self.links, self.strict = built_on, devices, links, strict
        self._sources: dict[tuple[str, date | None], Source] = {}

    def instances(self, path: Traversable | Path) -> tuple[InstanceType, ...]:
        found: dict[tuple[str, str], InstanceType] = {}
        for row in read_rows(path, INSTANCE_COLUMNS):
            instance = self._instance(row)
            if instance.key in found:
                row.fail("name", f"'{instance.name}' of {instance.provider} occurs twice")
            found[instance.key] = instance
        return tuple(found.values())

    def _instance(self, row: Row) -> InstanceType:
        name = row.cells["accelerator"] or None
        count = row.required("accelerator_count", 0, 64)
        gpu_memory = row.number("gpu_memory_gib", 0.5, 20_000)
        self._check_device(row, name, count, gpu_memory)
        return InstanceType(
            provider=row.text("provider"),
            name=row.text("name"),
            accelerator=name,
            accelerator_count=count,
            gpu_memory_gib=gpu_memory,
            vcpus=row.number("vcpus", 0.25, 2048),
            memory_gib=row.number("memory_gib", 0.25, 32_768),
            network_gbit_per_s=row.number("network_gbit_per_s", 0.05, 20_000),
            network_source=row.cells["network_source"],
            local_ssd_gb=row.number("local_ssd_gb", 0, 500_000),
            cpu_arch=row.one_of("cpu_arch", ("x86_64", "arm64")),  # type: ignore[arg-type]
            scale_up=self._link_name(row, "scale_up"),
            scale_out=self._link_name(row, "scale_out"),
            notes=row.cells["notes"],
            source=self._source(row),
        )

    def _check_device(self, row: Row, name: str | None, count: float, gpu_memory: float | None) -> None:
        if name is None:
            if count:
                row.fail("accelerator", f"is blank, yet the count is {count:g}")
            return
        if count == 0:
            row.fail("accelerator_count", f"is 0, yet the accelerator is {name}")
        device = self.devices.get(name)
        if device is None:
            row.fail("accelerator", f"'{name}' is not in accelerators.csv")
        if self.strict and gpu_memory is not None and device.memory_gib is not None:
            expected = device.memory_gib * count
            if abs(gpu_memory - expected) > MEMORY_TOLERANCE * expected:
                row.fail("gpu_memory_gib", f"is {gpu_memory:g}, but {count:g} x {name} have {expected:g} GiB")

    def _link_name(self, row: Row, column: str) -> str:
        name = row.cells[column]
        if name and name not in self.links:
            row.fail(column, f"'{name}' is not in links.csv")
        return name

    def offer(self, row: Row) -> Offer:
        """The offer of one row; raises CatalogError on a cell that it cannot use."""
        source = self._source(row)
        return Offer(
            provider=row.text("provider"),
            instance_type=row.text("instance_type"),
            region=row.cells["region"],
            purchase=row.one_of("purchase", PURCHASES),  # type: ignore[arg-type]
            usd_per_instance_hour=row.price("usd_per_instance_hour", MAX_USD_PER_HOUR),
            read_on=source.read_on,
            notes=row.cells["notes"],
            source=source,
        )

    def _source(self, row: Row) -> Source:
        """One shared value per distinct source: a snapshot names a few dozen, thousands of times."""
        key = (row.text("source"), row.day("read_on"))
        if self.strict and key[1] is not None and key[1] > self.built_on:
            row.fail("read_on", f"{key[1]} lies after the snapshot ({self.built_on})")
        return self._sources.setdefault(key, Source(text=key[0], read_on=key[1]))


def _require_unique(file: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise CatalogError(f"{file}: '{name}' occurs twice")
        seen.add(name)


def _check_aliases(devices: dict[str, Accelerator]) -> None:
    for alias in load_aliases():
        if alias.accelerator not in devices:
            raise CatalogError(
                f"accelerator_aliases.csv: '{alias.alias}' means '{alias.accelerator}', which is not listed"
            )


SOLD_COLUMNS: Final = ("provider", "instance_type", "purchase", "source", "read_on")


def sold_offers(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """The offers that one can buy: a figure summed from prices of parts is no offer where the whole is not sold so."""
    only: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in read_rows(files("tonnage.catalog") / "data" / "sold_only_as.csv", SOLD_COLUMNS):
        only[row.text("provider"), row.text("instance_type")].add(row.text("purchase"))
    return tuple(one for one in offers if one.purchase in only.get((one.provider, one.instance_type), {one.purchase}))
