"""List prices of what comes besides machines: the packaged table, and rows that it must not have."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from tonnage.catalog import Catalog
from tonnage.catalog.services import SERVICE_COLUMNS, SERVICES, read_services
from tonnage.errors import CatalogError

ROW = "aws,us-east-1,egress internet,data out,GB,0.09,0,,a page,"


def table(folder: Path, *rows: str) -> Path:
    path = folder / "services.csv"
    path.write_text("\n".join([",".join(SERVICE_COLUMNS), *rows]) + "\n", encoding="utf-8")
    return path


def test_every_service_has_a_price_somewhere(catalog: Catalog) -> None:
    """No kind is empty, every region is one we know, and a row without a date says where the figure is from."""
    for service in SERVICES:
        assert catalog.services.sellers(service)
    for row in catalog.services.rows:
        assert all(catalog.region(row.provider, region) for region in row.regions), row
        assert row.source.text.startswith("https://")
        assert row.source.read_on is not None or row.notes


def test_control_planes_cost_ten_cents(catalog: Catalog) -> None:
    """EKS, GKE and the standard tier of AKS, in any region."""
    for provider in ("aws", "gcp", "azure"):
        [price] = catalog.services.tiers(provider, "anywhere", "kubernetes control plane")
        assert price.usd_per_unit == Decimal("0.10")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (["aws,,egress internet,out,hour,0.09,0,,a page,"], "'hour' is not one of GB, GiB"),
        (["nobody,,egress internet,out,GB,0.09,0,,a page,"], "'nobody' is not one of aws"),
        (["aws,,teleport,out,GB,0.09,0,,a page,"], "'teleport' is not one of block storage"),
        (["aws,,egress internet,out,GB,90,0,,a page,"], "above 1 USD a unit"),
        (["aws,,egress internet,out,GB,0.09,100,,a page,"], "is not 0, yet no lower tier"),
        ([ROW, ROW], "not above the tier before it"),
        (["aws,,egress internet,out,GB,0.09,0,,,"], "is blank"),
    ],
)
def test_a_wrong_row_is_named(rows: list[str], why: str, tmp_path: Path) -> None:
    """File, line and what is wrong with the cell."""
    with pytest.raises(CatalogError, match=why) as caught:
        read_services(table(tmp_path, *rows), ["aws"])
    assert f"services.csv, line {len(rows) + 1}" in str(caught.value)
