"""Google's billing catalog: machines as the sum of their parts, SKUs that are quarantined, pages."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest

from tonnage.catalog import Catalog
from tonnage.errors import SourceError
from tonnage.sources import (
    GcpBillingSource,
    Web,
)

from .conftest import DAY, prices, quarantined


def gcp(server: Any, web: Web, catalog: Catalog) -> GcpBillingSource:
    return GcpBillingSource(
        known=catalog, web=web, key="k3y", regions=("us-central1",), read_on=DAY, base_url=server.url
    )


def gcp_parts(sku: Callable[..., dict[str, object]]) -> list[dict[str, object]]:
    """Rates of us-central1 of which the catalog's own prices of 2026-08-03 are the sums."""
    spot = "Preemptible"
    return [
        sku("A2 Instance Core running in Americas", 0.031611),
        sku("A2 Instance Ram running in Americas", 0.004237),
        sku("Nvidia Tesla A100 GPU running in Americas", 2.933908),
        sku("Spot Preemptible A2 Instance Core running in Americas", 0.01, spot),
        sku("Spot Preemptible A2 Instance Ram running in Americas", 0.001, spot),
        sku("Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Americas", 1.5, spot),
        sku("G2 Instance Core running in Americas", 0.024988),
        sku("G2 Instance Ram running in Americas", 0.002927),
        sku("Nvidia L4 GPU running in Americas", 0.560040),
        sku("Commitment v1: A2 Cpu in Americas for 1 Year", 0.02, "Commit1Yr"),
        sku("G2 Custom Instance Core running in Americas", 0.9),
        sku("DWS Defined Duration A2 Instance Core running in Americas", 0.9),
    ]


@pytest.mark.parametrize(
    "name", ["a2-highgpu-1g", "a2-highgpu-8g", "a2-megagpu-16g", "g2-standard-4", "g2-standard-48"]
)
def test_gcp_machines_cost_the_sum_of_their_parts(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType, name: str
) -> None:
    """vCPU, memory and GPU rates add up to the published price of the machine, within a thousandth of a dollar."""
    server.gcp = gcp_parts(shapes.gcp_sku)
    result = gcp(server, web, catalog).fetch()
    published = next(
        offer.usd_per_instance_hour
        for offer in catalog.offers_of(catalog.instance_type(name))
        if (offer.region, offer.purchase) == ("us-central1", "on_demand")
    )
    assert prices(result)[name, "us-central1", "on_demand"] == pytest.approx(published, abs=Decimal("0.002"))


def test_gcp_spot_ssd_and_missing_parts(server: Any, web: Web, catalog: Catalog, shapes: ModuleType) -> None:
    """Spot adds spot rates; bundled local SSD is added by the month's hours; without a part there is no price."""
    server.gcp = gcp_parts(shapes.gcp_sku)
    result = prices(gcp(server, web, catalog).fetch())
    assert result["a2-highgpu-1g", "us-central1", "spot"] == Decimal("12") * Decimal("0.01") + Decimal("1.585")
    assert not any(name.startswith(("a3-", "a2-ultragpu", "n1-", "ct")) for name, _, _ in result)
    server.gcp += [
        shapes.gcp_sku("Nvidia Tesla A100 80GB GPU running in Americas", 3.9),
        shapes.gcp_sku("SSD backed Local Storage", 0.08, usageUnit="GiBy.mo"),
    ]
    again = prices(gcp(server, web, catalog).fetch())
    ultra = again["a2-ultragpu-1g", "us-central1", "on_demand"]
    parts = Decimal("12") * Decimal("0.031611") + Decimal("170") * Decimal("0.004237") + Decimal("3.9")
    assert ultra == (parts + Decimal(375) * Decimal("0.08") / 730).quantize(Decimal("0.000001"))
    assert "k3y" not in "".join(server.asked)
    assert server.headers[0]["x-goog-api-key"] == "k3y"


GCP_FAULTS: list[tuple[dict[str, object], str]] = [
    ({"currencyCode": "EUR"}, "the currency is EUR, not USD"),
    ({"units": "0", "nanos": 0}, "the price is not above zero"),
    ({"units": "-1"}, "the price is not above zero"),
    ({"nanos": "many"}, "the price is not a number"),
    ({"units": "x"}, "the price is not a number"),
]


@pytest.mark.parametrize(("unit", "reason"), GCP_FAULTS)
def test_bad_skus_are_quarantined_and_their_machines_have_no_price(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType, unit: dict[str, object], reason: str
) -> None:
    """A part with a bad rate has none: no machine is priced without it, the others are."""
    good = gcp_parts(shapes.gcp_sku)
    server.gcp = [
        *good[:2],
        shapes.gcp_sku("Nvidia Tesla A100 GPU running in Americas", 2.9, unitPrice=unit),
        *good[6:],
    ]
    result = gcp(server, web, catalog).fetch()
    assert quarantined(result) == {reason: 1}
    assert {name.split("-")[0] for name, _, _ in prices(result)} == {"g2"}


def test_a_part_with_two_rates_has_none(server: Any, web: Web, catalog: Catalog, shapes: ModuleType) -> None:
    """Two different rates for one part and region: its machines have no price, and the row is quarantined."""
    server.gcp = [*gcp_parts(shapes.gcp_sku), shapes.gcp_sku("G2 Instance Core running in Americas", 0.5)]
    result = gcp(server, web, catalog).fetch()
    assert quarantined(result) == {"two prices for one part: machines with it have no price": 1}
    assert {name.split("-")[0] for name, _, _ in prices(result)} == {"a2"}


@pytest.mark.parametrize(
    "sku", [7, {}, {"category": {"usageType": "OnDemand"}, "description": "L4"}, {"category": "Compute"}]
)
def test_skus_of_another_shape_do_no_harm(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType, sku: object
) -> None:
    """Whatever stands in the list, the other SKUs are used."""
    server.gcp = [sku, *gcp_parts(shapes.gcp_sku)]
    assert ("g2-standard-4", "us-central1", "on_demand") in prices(gcp(server, web, catalog).fetch())


def test_gcp_pages_without_end(server: Any, web: Web, catalog: Catalog, shapes: ModuleType) -> None:
    """A page token that leads back to the first page fails the source."""
    server.gcp, server.endless = gcp_parts(shapes.gcp_sku), True
    with pytest.raises(SourceError, match="never end"):
        gcp(server, web, catalog).fetch()
