"""A month of a service besides its machines: what comes once a month whatever the fleet, and committed spend."""

from __future__ import annotations

from tonnage.catalog.services import ServicePrices
from tonnage.pricing.extras import Extras
from tonnage.values import dataclass
from tonnage.workload.jobs import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthBill:
    """What a fleet at one place costs besides machines, USD a month; `usd` adds the machines as the ledger does."""

    disk_usd_per_machine_hour: float
    beside_usd: float  # on the provider's bill: storage, load balancer, data moved
    credit_usd: float  # spend committed with the provider
    outside_usd: float  # people; data that leaves another provider

    def usd(self, machines_usd: float) -> float:
        """max(machines + beside - credit, 0) + outside; `machines_usd` with their fees and disks."""
        return max(machines_usd + self.beside_usd - self.credit_usd, 0.0) + self.outside_usd


def month_bill(workload: Workload, services: ServicePrices, *, provider: str, region: str, platform: str) -> MonthBill:
    """The bill of a service at one place, after the workload's prices, people and commitments."""
    extras, data = Extras(workload=workload, services=services), workload.data
    credit = dict(workload.buy.committed_usd)
    moved = extras.egress_usd(provider, region)
    own = data is None or data.provider == provider
    abroad = 0.0 if data is None or own else max(moved - credit.get(data.provider, 0.0), 0.0)
    return MonthBill(
        disk_usd_per_machine_hour=extras.disk_usd_per_machine_hour(provider, region),
        beside_usd=extras.place_usd_per_hour(provider, region) * workload.service.hours_per_month
        + (moved if own else 0.0),
        credit_usd=credit.get(provider, 0.0),
        outside_usd=extras.people_usd(platform) + abroad,
    )
