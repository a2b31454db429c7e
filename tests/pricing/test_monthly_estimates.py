"""Monthly estimates of a hand-written planning document: its arithmetic at its prices, and at those of today."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tonnage.catalog import Catalog, load_catalog
from tonnage.catalog.hardware import Source
from tonnage.catalog.market import Offer
from tonnage.catalog.services import ServicePrices
from tonnage.pricing.deals import Deal
from tonnage.pricing.lines import MachineHours, machine_ledger
from tonnage.workload.jobs import BuyTerms, Constraints, Schedule, TabularJob, Team, Workload

WORK = Workload(
    name="month", job=TabularJob(rows=1, features=1), constraints=Constraints(), buy=BuyTerms(),
    team=Team(), as_of=datetime(2026, 11, 20, tzinfo=UTC),
)  # fmt: skip
ESTIMATES = [  # what, machines, type, schedule, the document's price, exact amount, as printed there, at today's price
    ("development", 2, "g4dn.xlarge", (8, 22), "0.526", "185.152", 185, "185.152"),
    ("staging", 1, "p3.2xlarge", (4, 22), "3.060", "269.28", 269, "269.28"),
    # The document prints 1,623; 3 x 0.752 x 720 is 1,624.32.
    ("real-time", 3, "g4dn.2xlarge", (24, 30), "0.752", "1624.32", 1623, "1624.32"),
    # The document's price is that of before June 2025: today the same hours cost a third less.
    ("weekly training", 1, "p4d.24xlarge", (24, 4), "32.770", "3145.92", 3146, "2107.9336"),
]


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def month(offer: Offer, count: int, schedule: tuple[float, float]) -> Decimal:
    """What `count` machines on a schedule cost in a month."""
    hours = Schedule(hours_per_day=schedule[0], days_per_month=schedule[1]).hours_per_month
    used = MachineHours(spent=(("use", "machines", hours),), billed_h=hours, unused_h=0.0, wall_h=hours)
    return machine_ledger(Deal(offer=offer), count, used, WORK, ServicePrices()).total_usd


@pytest.mark.parametrize(("what", "count", "name", "schedule", "price", "exact", "printed", "today"), ESTIMATES)
def test_monthly_estimates(
    what: str, count: int, name: str, schedule: tuple[float, float], price: str, exact: str, printed: int, today: str,
    catalog: Catalog,
) -> None:  # fmt: skip
    """Machines x price x hours x days, to the hundredth of a cent; the document prints dollars, once one too few."""
    then = Offer(
        provider="aws", instance_type=name, region="us-east-1", purchase="on_demand", read_on=None, notes="",
        usd_per_instance_hour=Decimal(price), source=Source(text="planning document", read_on=None),
    )  # fmt: skip
    assert month(then, count, schedule) == Decimal(exact)
    assert round(Decimal(exact)) - printed == (1 if what == "real-time" else 0)
    [now] = [
        offer
        for offer in catalog.offers_named("aws", name)
        if (offer.region, offer.purchase) == ("us-east-1", "on_demand")
    ]
    assert month(now, count, schedule) == Decimal(today)
