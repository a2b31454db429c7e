"""What comes besides machines, as providers list it: storage, data that moves, balancers, gateways, addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, Literal, get_args

from tonnage.catalog.hardware import Source
from tonnage.catalog.rows import Row, read_rows
from tonnage.units import gb_to_gib
from tonnage.values import dataclass

Service = Literal[
    "block storage", "object storage", "egress internet", "egress region", "egress zone", "load balancer",
    "load balancer data", "nat gateway", "nat gateway data", "kubernetes control plane", "public ipv4",
]  # fmt: skip
SERVICES: Final[tuple[Service, ...]] = get_args(Service)
SERVICE_COLUMNS: Final = (
    "provider", "regions", "service", "product", "unit", "usd_per_unit", "from_quantity", "read_on", "source", "notes",
)  # fmt: skip
_STORED: Final = ("GB-month", "GiB-month")
_MOVED: Final = ("GB", "GiB")
UNITS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("block storage", "object storage"), _STORED),
    **dict.fromkeys(("egress internet", "egress region", "egress zone", "nat gateway data"), _MOVED),
    "load balancer data": (*_MOVED, "LCU-hour"),
    "nat gateway": ("hour", "VM-hour"),
    **dict.fromkeys(("load balancer", "kubernetes control plane", "public ipv4"), ("hour",)),
}
MAX_USD_PER_UNIT: Final = 1.0  # none of these costs a dollar a GB or an hour: such a row has a wrong unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePrice:
    """One tier of one list price. No regions: it holds in all of the provider's."""

    provider: str
    regions: tuple[str, ...]
    service: Service
    product: str
    unit: str
    usd_per_unit: Decimal
    from_quantity: float  # of a month, in `unit`; the price holds from there to the next tier
    notes: str
    source: Source

    def counted(self, quantity_gb: float) -> float:
        """GB (10⁹) in the unit of this price."""
        return gb_to_gib(quantity_gb) if self.unit.startswith("GiB") else quantity_gb


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePrices:
    """The table, and look-ups in it: a price of the region goes before one of the whole provider."""

    rows: tuple[ServicePrice, ...] = ()

    def tiers(self, provider: str, region: str, service: Service) -> tuple[ServicePrice, ...]:
        """The tiers of a service at a place, from the first unit up; empty where no source states its price."""
        found = [row for row in self.rows if (row.provider, row.service) == (provider, service)]
        here = [row for row in found if region in row.regions]
        return tuple(here or [row for row in found if not row.regions])

    def sellers(self, service: Service) -> tuple[str, ...]:
        """Who states a price of that service, somewhere."""
        return tuple(dict.fromkeys(row.provider for row in self.rows if row.service == service))


def split(tiers: Sequence[ServicePrice], quantity_gb: float) -> Iterator[tuple[float, ServicePrice]]:
    """How much of `quantity_gb` each tier bills, in the tier's unit."""
    for row, after in zip(tiers, (*tiers[1:], None), strict=True):
        counted = row.counted(quantity_gb)
        end = counted if after is None else min(counted, after.from_quantity)
        if end > row.from_quantity:
            yield end - row.from_quantity, row


def read_services(path: Traversable | Path, providers: Sequence[str]) -> ServicePrices:
    """The rows of services.csv; raises CatalogError on a row that contradicts its unit, another row or the order."""
    rows: list[ServicePrice] = []
    last: dict[tuple[str, str, Service], float] = {}
    for cells in read_rows(path, SERVICE_COLUMNS):
        price = _read(cells, providers)
        for region in price.regions or ("",):
            key = (price.provider, region, price.service)
            _check_tier(cells, price, last.get(key))
            last[key] = price.from_quantity
        rows.append(price)
    return ServicePrices(rows=tuple(rows))


def _read(row: Row, providers: Sequence[str]) -> ServicePrice:
    service = row.one_of("service", SERVICES)
    return ServicePrice(
        provider=row.one_of("provider", providers),
        regions=tuple(row.cells["regions"].split()),
        service=service,  # type: ignore[arg-type]
        product=row.text("product"),
        unit=row.one_of("unit", UNITS[service]),
        usd_per_unit=row.price("usd_per_unit", MAX_USD_PER_UNIT, per="a unit"),
        from_quantity=row.required("from_quantity", 0, 1e9),
        notes=row.cells["notes"],
        source=row.source(),
    )


def _check_tier(row: Row, price: ServicePrice, before: float | None) -> None:
    if before is None and price.from_quantity != 0:
        row.fail("from_quantity", "is not 0, yet no lower tier precedes it")
    if before is not None and price.from_quantity <= before:
        row.fail("from_quantity", f"is {price.from_quantity:g}, not above the tier before it ({before:g})")
