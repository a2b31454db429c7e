"""Lines besides machines: whose price counts, in which tier and unit, each against a sum done by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tonnage.catalog import load_catalog
from tonnage.catalog.hardware import Source
from tonnage.catalog.market import Offer
from tonnage.catalog.services import ServicePrices
from tonnage.pricing.deals import Deal
from tonnage.pricing.extras import OWN, Extras
from tonnage.pricing.ledger import LedgerLine
from tonnage.workload.jobs import BuyTerms, Constraints, DataPlace, OwnPrices, TabularJob, Team, Workload


@pytest.fixture(scope="module")
def services() -> ServicePrices:
    return load_catalog().services


def work(data: DataPlace | None = None, buy: BuyTerms | None = None) -> Workload:
    return Workload(
        name="extras", job=TabularJob(rows=1, features=1), constraints=Constraints(),
        buy=buy or BuyTerms(), team=Team(), as_of=datetime(2026, 11, 20, tzinfo=UTC), data=data,
    )  # fmt: skip


def deal(provider: str, region: str) -> Deal:
    offer = Offer(
        provider=provider, instance_type="any", region=region, purchase="on_demand", read_on=None, notes="",
        usd_per_instance_hour=Decimal(1), source=Source(text="a test", read_on=None),
    )  # fmt: skip
    return Deal(offer=offer)


def lines_at(place: Deal, workload: Workload, services: ServicePrices) -> dict[str, LedgerLine]:
    """The lines of 730 hours, a month, of one machine."""
    found = Extras(workload=workload, services=services).lines(place, machine_hours=730, wall_hours=730)
    return {line.what: line for line in found}


def test_data_leaves_by_tiers(services: ServicePrices) -> None:
    """12,240 GB out of AWS: 10,240 at 0.09 and 2,000 at 0.085 are 921.60 + 170."""
    data = DataPlace(provider="aws", region="us-east-1", size_gb=12_240)
    found = lines_at(deal("lambda", "us-west-1"), work(data), services)
    assert found["data out of aws"].usd == Decimal("921.6")
    assert found["data out of aws, from 10,240 GB"].usd == 170
    assert "object storage" not in found  # Lambda states no price here


def test_a_disk_is_billed_in_the_unit_of_its_price(services: ServicePrices) -> None:
    """100 GB are 93.132257 GiB: 9.3132 USD a month as pd-balanced at 0.10, 8 USD as gp3, which is priced by the GB."""
    workload = work(buy=BuyTerms(disk_gb=100.0))
    google = lines_at(deal("gcp", "us-central1"), workload, services)["disks"]
    assert (google.unit, google.usd, google.read_on) == ("GiB-month", Decimal("9.3132"), date(2023, 5, 18))
    assert lines_at(deal("aws", "us-east-1"), workload, services)["disks"].usd == 8


def test_a_region_without_a_price_is_charged_nothing_and_said(services: ServicePrices) -> None:
    """No other region's price is taken; the service is named, and its sellers."""
    workload = work(buy=BuyTerms(disk_gb=100.0))
    assert not lines_at(deal("aws", "eu-west-3"), workload, services)
    assert Extras(workload=workload, services=services).unpriced() == ("block storage",)
    assert list(services.sellers("block storage")) == ["aws", "gcp", "azure"]
    stated = BuyTerms(disk_gb=100.0, prices=OwnPrices(block_storage_usd_per_gb_month=0.1))
    assert Extras(workload=work(buy=stated), services=services).unpriced() == ()


def test_a_stated_price_goes_before_the_catalog(services: ServicePrices) -> None:
    """Own prices hold everywhere, 0 among them."""
    data = DataPlace(provider="aws", region="us-east-1", size_gb=1_000)
    prices = OwnPrices(egress_usd_per_gb=0.0, object_storage_usd_per_gb_month=0.01)
    found = lines_at(deal("gcp", "us-central1"), work(data, BuyTerms(prices=prices)), services)
    assert {what: (line.usd, line.source) for what, line in found.items()} == {"object storage": (Decimal(10), OWN)}


def test_data_stays_where_no_price_is_known(services: ServicePrices) -> None:
    """Between regions of Google nothing here states a price: not known, and not 0."""
    data = DataPlace(provider="gcp", region="us-central1", size_gb=10)
    extras = Extras(workload=work(data), services=services)
    assert extras.moving("gcp", "us-central1") == ()
    assert extras.moving("gcp", "europe-west1") is None
    assert extras.egress_usd("aws", "us-east-1") == pytest.approx(1.2)
