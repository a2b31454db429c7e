"""Azure's retail prices: meters that become offers, meters that are quarantined, pages."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest

from tonnage.catalog import Catalog
from tonnage.errors import SourceError
from tonnage.sources import (
    AzureRetailSource,
    Web,
)

from .conftest import DAY, prices, quarantined


def azure(server: Any, web: Web, catalog: Catalog, *regions: str) -> AzureRetailSource:
    return AzureRetailSource(known=catalog, web=web, regions=regions or ("eastus",), read_on=DAY, base_url=server.url)


def test_azure_meters_become_offers_over_several_pages(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType
) -> None:
    """Consumption, spot and reservations (a term's price over its hours) of three pages; other meters are left out."""
    item, name = shapes.azure_item, "Standard_NC4as_T4_v3"
    server.azure = [
        item(name, 0.526),
        item(name, 0.21, skuName="NC4as T4 v3 Spot", meterName="NC4as T4 v3 Spot"),
        item(name, 2935.0, type="Reservation", reservationTerm="1 Year"),
        item(name, 5890.0, type="Reservation", reservationTerm="3 Years"),
        item(name, 0.71, productName="Virtual Machines NCasT4 v3 Series Windows"),
        item(name, 0.1, skuName="NC4as T4 v3 Low Priority"),
        item(name, 0.4, type="DevTestConsumption"),
        item(name, 0.9, isPrimaryMeterRegion=False),
        item(name, 0.9, effectiveStartDate="2027-01-01T00:00:00Z"),
        item(name, 0.9, effectiveEndDate="2026-01-01T00:00:00Z"),
        item("Standard_D2s_v3", 0.096),
    ]
    result = azure(server, web, catalog).fetch()
    assert prices(result) == {
        (name, "eastus", "on_demand"): Decimal("0.526"),
        (name, "eastus", "spot"): Decimal("0.21"),
        (name, "eastus", "reserved_1y"): Decimal("0.335046"),
        (name, "eastus", "reserved_3y"): Decimal("0.224125"),
    }
    assert quarantined(result) == {}
    assert len(server.asked) == 6


AZURE_FAULTS: list[tuple[object, dict[str, object], str]] = [
    (0.0, {}, "the price is not above zero"),
    (-0.5, {}, "the price is not above zero"),
    (float("nan"), {}, "the price is not a number"),
    ("dear", {}, "the price is not a number"),
    (None, {}, "the price is not a number"),
    (True, {}, "the price is not a number"),
    ([0.5], {}, "the price is not a number"),
    (0.5, {"currencyCode": "EUR"}, "the currency is EUR, not USD"),
    (0.5, {"currencyCode": None}, "the currency is not stated, not USD"),
    (0.5, {"unitOfMeasure": "1 GB"}, "the unit is not an hour"),
    (0.5, {"armSkuName": "Standard_NC999_v9"}, "unknown instance facts: the API states no sizes"),
    (0.5, {"armSkuName": ""}, "armSkuName is missing or not a text"),
    (0.5, {"type": "Reservation", "reservationTerm": "7 Years"}, "a reservation of another term"),
]


@pytest.mark.parametrize(("price", "changes", "reason"), AZURE_FAULTS)
def test_bad_meters_of_azure_are_quarantined(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType, price: object, changes: dict[str, object], reason: str
) -> None:
    """The bad meter is kept aside with the reason; the good one is used."""
    server.azure.append(shapes.azure_item("Standard_NC8as_T4_v3", price) | changes)
    result = azure(server, web, catalog).fetch()
    assert quarantined(result) == {reason: 1}
    assert [offer.instance_type for offer in result.offers] == ["Standard_NC4as_T4_v3"]


def test_wrong_types_in_azure(server: Any, web: Web, catalog: Catalog) -> None:
    """A row that is no object is quarantined; a page without its list fails the region."""
    server.azure.append(7)
    assert quarantined(azure(server, web, catalog).fetch()) == {"a row that is no object": 1}
    server.faults.queues["/api/retail/prices"] = ["list"]
    with pytest.raises(SourceError, match=r"eastus: .*a page without a list of Items"):
        azure(server, web, catalog).fetch()


def test_azure_pages_without_end(server: Any, web: Web, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NextPageLink that leads on forever fails the source instead of hanging it (here after 50 pages)."""
    monkeypatch.setattr("tonnage.sources.web.MOST_PAGES", 50)
    server.endless = True
    server.azure = []
    with pytest.raises(SourceError, match="never end"):
        azure(server, replace(web, limits=replace(web.limits, attempts=1)), catalog).fetch()
