"""What comes besides machines: moving and keeping data, disks, a load balancer, people.

A price that the workload states goes before one of the catalog (`services.csv`); where neither has one, nothing is
charged and `Extras.unpriced` names it (for data that must move the option is refused).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Literal

from tonnage.catalog.services import Service, ServicePrices, split
from tonnage.pricing.deals import Deal
from tonnage.pricing.ledger import LedgerLine, Part, hours
from tonnage.pricing.usage import HOURS_PER_MONTH
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload

OWN = "the workload file"


def exact(value: float) -> Decimal:
    """A stated figure as it was written."""
    return Decimal(repr(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """An amount at one price, before it is a line: of a month, where the unit is one of storage."""

    quantity: float
    unit: str
    usd_per_unit: Decimal
    source: str
    read_on: date | None
    tier: str = ""  # which one, where there are several

    @property
    def usd(self) -> float:
        return self.quantity * float(self.usd_per_unit)

    def line(self, what: str, part: Part, billed_by: str, *, times: float = 1.0) -> LedgerLine | None:
        """`times` the charge; None where there is nothing to pay."""
        if not self.usd_per_unit or self.quantity * times <= 0:
            return None
        return LedgerLine(
            what=what + self.tier,
            part=part,
            quantity=hours(self.quantity * times),
            unit=self.unit,
            usd_per_unit=self.usd_per_unit,
            source=self.source,
            read_on=self.read_on,
            billed_by=billed_by,
        )


def total(charges: Sequence[Charge] | None) -> float:
    """USD of all charges; 0 where no price is known."""
    return sum(charge.usd for charge in charges or ())


def listed_charges(
    services: ServicePrices, service: Service, place: tuple[str, str], quantity_gb: float
) -> tuple[Charge, ...] | None:
    """What the catalog charges for so many GB of a service at a provider and region; None where it has no price."""
    tiers = services.tiers(*place, service)
    if not tiers:
        return None
    return tuple(
        Charge(
            quantity=quantity,
            unit=row.unit,
            usd_per_unit=row.usd_per_unit,
            source=row.source.text,
            read_on=row.source.read_on,
            tier=f", from {row.from_quantity:,.0f} {row.unit}" if row.from_quantity else "",
        )
        for quantity, row in split(tiers, quantity_gb)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """The lines besides machines of one workload, and the same as rates for whole columns."""

    workload: Workload
    services: ServicePrices

    @property
    def service(self) -> bool:
        return self.workload.is_service

    def moving(self, provider: str, region: str) -> tuple[Charge, ...] | None:
        """What bringing the data to a place costs: nothing where it is there (or none is stated), None if not known."""
        data, prices = self.workload.data, self.workload.buy.prices
        if data is None or (provider, region) == (data.provider, data.region):
            return ()
        inside = provider == data.provider
        stated = prices.egress_region_usd_per_gb if inside else prices.egress_usd_per_gb
        service: Service = "egress region" if inside else "egress internet"
        return self._charges(stated, service, (data.provider, data.region), data.size_gb, "GB")

    def egress_usd(self, provider: str, region: str) -> float:
        """USD once, billed by the provider that holds the data; callers have dropped places whose price is missing."""
        return total(self.moving(provider, region))

    def disk(self, provider: str, region: str) -> tuple[Charge, ...] | None:
        """One machine's disk for a month; None if not known."""
        buy = self.workload.buy
        stated = buy.prices.block_storage_usd_per_gb_month
        return self._charges(stated, "block storage", (provider, region), buy.disk_gb, "GB-month")

    def storage(self, provider: str, region: str) -> tuple[Charge, ...] | None:
        """The data in object storage for a month; None if not known."""
        data = self.workload.data
        if data is None:
            return ()
        stated = self.workload.buy.prices.object_storage_usd_per_gb_month
        return self._charges(stated, "object storage", (provider, region), data.size_gb, "GB-month")

    def _charges(
        self, stated: float | None, service: Service, place: tuple[str, str], quantity_gb: float, unit: str
    ) -> tuple[Charge, ...] | None:
        if quantity_gb <= 0:
            return ()
        if stated is not None:
            own = Charge(quantity=quantity_gb, unit=unit, usd_per_unit=exact(stated), source=OWN, read_on=None)
            return (own,)
        return listed_charges(self.services, service, place, quantity_gb)

    def disk_usd_per_machine_hour(self, provider: str, region: str) -> float:
        return total(self.disk(provider, region)) / HOURS_PER_MONTH

    def place_usd_per_hour(self, provider: str, region: str) -> float:
        """Object storage of the data and a service's load balancer, per hour of wall clock."""
        stored = total(self.storage(provider, region))
        balancer = (self.workload.buy.prices.load_balancer_usd_per_hour or 0.0) if self.service else 0.0
        return stored / HOURS_PER_MONTH + balancer

    def people_usd(self, platform: str) -> float:
        return sum(people_hours(platform, self.workload)) * (self.workload.team.hourly_usd or 0.0)

    def lines(self, deal: Deal, *, machine_hours: float, wall_hours: float) -> list[LedgerLine]:
        """Data, disks, load balancer and people of one option."""
        provider, data = deal.offer.provider, self.workload.data
        place = (provider, deal.offer.region)
        found: list[LedgerLine | None] = []
        if data is not None:
            months = wall_hours / HOURS_PER_MONTH
            found += [
                one.line(f"data out of {data.provider}", "data transfer", data.provider)
                for one in self.moving(*place) or ()
            ]
            found += [
                one.line("object storage", "storage", provider, times=months) for one in self.storage(*place) or ()
            ]
        disk_months = machine_hours / HOURS_PER_MONTH
        found += [one.line("disks", "storage", provider, times=disk_months) for one in self.disk(*place) or ()]
        if self.service:
            balancer = self.workload.buy.prices.load_balancer_usd_per_hour
            found.append(stated_line("load balancer", "load balancer", wall_hours, "hour", balancer, provider))
        return [*(line for line in found if line is not None), *people_lines(deal.platform, self.workload)]

    def unpriced(self) -> tuple[Literal["object storage", "block storage"], ...]:
        """Services that the workload uses and states no price for: the catalog's prices do not hold in every region."""
        prices, buy = self.workload.buy.prices, self.workload.buy
        found: list[Literal["object storage", "block storage"]] = []
        if self.workload.data is not None and prices.object_storage_usd_per_gb_month is None:
            found.append("object storage")
        if buy.disk_gb and prices.block_storage_usd_per_gb_month is None:
            found.append("block storage")
        return tuple(found)


def people_hours(platform: str, workload: Workload) -> tuple[float, float]:
    """Hours of set-up (a month's part of it for a service) and of operation."""
    team = workload.team
    if team.hourly_usd is None:
        return 0.0, 0.0
    setup = {str(name): value for name, value in team.setup_hours}.get(platform, 0.0)
    operation = {str(name): value for name, value in team.operation_hours}.get(platform, 0.0)
    return setup / team.setup_months if workload.is_service else setup, operation


def people_lines(platform: str, workload: Workload) -> list[LedgerLine]:
    setup, operation = people_hours(platform, workload)
    months = f", a month of {workload.team.setup_months:g}" if workload.is_service else ""
    rate = workload.team.hourly_usd
    found = (
        stated_line(f"people: set-up{months}", "people", setup, "person-hour", rate, ""),
        stated_line("people: operation", "people", operation, "person-hour", rate, ""),
    )
    return [line for line in found if line is not None]


def stated_line(
    what: str, part: Part, quantity: float, unit: str, price: float | None, billed_by: str
) -> LedgerLine | None:
    """A line at a price that the workload states; None where it states none, or there is nothing to pay."""
    if price is None:
        return None
    own = Charge(quantity=quantity, unit=unit, usd_per_unit=exact(price), source=OWN, read_on=None)
    return own.line(what, part, billed_by)
