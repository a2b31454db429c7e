"""What comes besides machines: moving and keeping data, disks, a load balancer, people. Only stated prices are used."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from tonnage.pricing.deals import Deal
from tonnage.pricing.ledger import LedgerLine, hours
from tonnage.pricing.usage import HOURS_PER_MONTH
from tonnage.workload.jobs import ServeJob, Workload

OWN = "the workload file"


def exact(value: float) -> Decimal:
    """A stated figure as it was written."""
    return Decimal(repr(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """The lines besides machines of one workload, and the same as rates for whole columns."""

    workload: Workload

    @property
    def service(self) -> bool:
        return isinstance(self.workload.job, ServeJob)

    def egress_usd_per_gb(self, deal: Deal) -> float | None:
        """Price of bringing the data to a deal: 0 where it is there already (or none is stated), None if not known."""
        return self.egress_to_usd_per_gb(deal.offer.provider, deal.offer.region)

    def egress_to_usd_per_gb(self, provider: str, region: str) -> float | None:
        """The same for a place."""
        data, prices = self.workload.data, self.workload.buy.prices
        if data is None or (provider, region) == (data.provider, data.region):
            return 0.0
        return prices.egress_region_usd_per_gb if provider == data.provider else prices.egress_usd_per_gb

    def egress_usd(self, deal: Deal) -> float:
        """USD once, billed by the provider that holds the data; callers have dropped deals whose price is missing."""
        data = self.workload.data
        return 0.0 if data is None else data.size_gb * (self.egress_usd_per_gb(deal) or 0.0)

    @property
    def disk_usd_per_machine_hour(self) -> float:
        buy = self.workload.buy
        return buy.disk_gb * (buy.prices.block_storage_usd_per_gb_month or 0.0) / HOURS_PER_MONTH

    @property
    def place_usd_per_hour(self) -> float:
        """Object storage of the data and a service's load balancer, per hour of wall clock."""
        prices, data = self.workload.buy.prices, self.workload.data
        storage = 0.0 if data is None else data.size_gb * (prices.object_storage_usd_per_gb_month or 0.0)
        balancer = (prices.load_balancer_usd_per_hour or 0.0) if self.service else 0.0
        return storage / HOURS_PER_MONTH + balancer

    def people_hours(self, platform: str) -> tuple[float, float]:
        """Hours of set-up (a month's part of it for a service) and of operation."""
        team = self.workload.team
        if team.hourly_usd is None:
            return 0.0, 0.0
        setup = {str(name): value for name, value in team.setup_hours}.get(platform, 0.0)
        operation = {str(name): value for name, value in team.operation_hours}.get(platform, 0.0)
        return setup / team.setup_months if self.service else setup, operation

    def people_usd(self, platform: str) -> float:
        return sum(self.people_hours(platform)) * (self.workload.team.hourly_usd or 0.0)

    def lines(self, deal: Deal, *, machine_hours: float, wall_hours: float) -> list[LedgerLine]:
        """Data, disks, load balancer and people of one option."""
        prices, provider = self.workload.buy.prices, deal.offer.provider
        data = self.workload.data
        found: list[LedgerLine | None] = []
        if data is not None:
            moved = self.egress_usd_per_gb(deal)
            months = wall_hours / HOURS_PER_MONTH
            found.append(stated_line(f"data out of {data.provider}", data.size_gb, "GB", moved, data.provider))
            keep = prices.object_storage_usd_per_gb_month
            found.append(stated_line("object storage", data.size_gb * months, "GB-month", keep, provider))
        disk = self.workload.buy.disk_gb * machine_hours / HOURS_PER_MONTH
        found.append(stated_line("disks", disk, "GB-month", prices.block_storage_usd_per_gb_month, provider))
        if self.service:
            found.append(stated_line("load balancer", wall_hours, "hour", prices.load_balancer_usd_per_hour, provider))
        return [*(line for line in found if line is not None), *self.people_lines(deal.platform)]

    def people_lines(self, platform: str) -> list[LedgerLine]:
        setup, operation = self.people_hours(platform)
        months = f", a month of {self.workload.team.setup_months:g}" if self.service else ""
        rate = self.workload.team.hourly_usd
        found = (
            stated_line(f"people: set-up{months}", setup, "person-hour", rate, ""),
            stated_line("people: operation", operation, "person-hour", rate, ""),
        )
        return [line for line in found if line is not None]

    def gaps(self) -> tuple[str, ...]:
        """Costs that the workload raises and nobody prices: said in the plan, and missing from every total alike."""
        prices, buy = self.workload.buy.prices, self.workload.buy
        out = []
        if self.workload.data is not None and prices.object_storage_usd_per_gb_month is None:
            out.append("object storage of the data is not in the totals: buy.prices states no price for it")
        if buy.disk_gb and prices.block_storage_usd_per_gb_month is None:
            out.append("disks of the machines are not in the totals: buy.prices states no price for them")
        return tuple(out)


def stated_line(what: str, quantity: float, unit: str, price: float | None, billed_by: str) -> LedgerLine | None:
    """A line at a stated price; None where there is nothing to pay, or no price (see `Extras.gaps`)."""
    if not price or quantity <= 0:
        return None
    return LedgerLine(
        what=what,
        quantity=hours(quantity),
        unit=unit,
        usd_per_unit=exact(price),
        source=OWN,
        read_on=None,
        billed_by=billed_by,
    )
