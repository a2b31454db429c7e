"""AWS's spot prices: of the API over its zones, and of the advisor."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tonnage.catalog import Catalog
from tonnage.errors import SourceError
from tonnage.sources import (
    AwsSpotAdvisorSource,
    AwsSpotSource,
    Web,
)
from tonnage.sources.aws_spot import boto3_client, boto3_credentials

from .conftest import DAY, prices, quarantined


class Ec2:
    """A client with the two pages of an answer; the next one raises."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows, self.asked = rows, 0

    def describe_spot_price_history(self, **parameters: object) -> dict[str, object]:
        assert parameters["ProductDescriptions"] == ["Linux/UNIX"]
        self.asked += 1
        half = len(self.rows) // 2
        if "NextToken" in parameters:
            return {"SpotPriceHistory": self.rows[half:], "NextToken": ""}
        return {"SpotPriceHistory": self.rows[:half], "NextToken": "more"}


def spot_row(name: str, zone: str, price: object, moment: str = "2026-11-20T01:00:00+00:00") -> dict[str, object]:
    return {"InstanceType": name, "AvailabilityZone": zone, "SpotPrice": price, "Timestamp": moment}


def test_spot_is_the_median_of_the_zones_of_now(catalog: Catalog, web: Web) -> None:
    """The latest price of each zone, then their median; bad rows are quarantined; a failed region is named."""
    client = Ec2([
        spot_row("g4dn.xlarge", "us-east-1a", "0.20"), spot_row("g4dn.xlarge", "us-east-1b", "0.30"),
        spot_row("g4dn.xlarge", "us-east-1c", "0.28"),
        spot_row("g4dn.xlarge", "us-east-1c", "0.9", "2026-11-19T01:00:00+00:00"),
        spot_row("g4dn.2xlarge", "us-east-1a", "0"), spot_row("g4dn.2xlarge", "us-east-1a", "NaN"),
        spot_row("zz9.large", "us-east-1a", "0.1"), "row",
    ])  # fmt: skip

    def client_of(region: str) -> Ec2:
        if region == "eu-west-1":
            raise_later = Ec2([])
            raise_later.describe_spot_price_history = lambda **_: 1 / 0  # type: ignore[method-assign]
            return raise_later
        return client

    source = AwsSpotSource(
        known=catalog, regions=("eu-west-1", "us-east-1"), read_on=DAY, client=client_of, watch=web.watch
    )
    result = source.fetch()
    assert prices(result) == {("g4dn.xlarge", "us-east-1", "spot"): Decimal("0.28")}
    assert quarantined(result) == {
        "the price is not above zero": 1, "the price is not a number": 1, "a row that is no object": 1,
    }  # fmt: skip
    assert result.report.incomplete == ("eu-west-1: EC2 failed: ZeroDivisionError: division by zero",)
    assert client.asked == 2


def test_spot_over_boto3(server: Any, web: Web, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 itself, at our server: Linux prices from now on, page by page; refused credentials are named."""
    pytest.importorskip("boto3")
    for name, value in (
        ("ACCESS_KEY_ID", "AKIAEXAMPLE"),
        ("SECRET_ACCESS_KEY", "s3cret"),
        ("EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    client = boto3_client(web.limits, endpoint_url=server.url)
    source = AwsSpotSource(known=catalog, regions=("us-east-1",), read_on=DAY, client=client, watch=web.watch)
    result = source.fetch()
    assert prices(result) == {("g4dn.xlarge", "us-east-1", "spot"): Decimal("0.21")}
    assert boto3_credentials()
    server.spot_status = 401
    with pytest.raises(SourceError, match="us-east-1: EC2 failed: ClientError") as refused:
        source.fetch()
    assert "s3cret" not in refused.value.message


def test_the_advisor_gives_computed_prices(server: Any, web: Web, catalog: Catalog) -> None:
    """On-demand less the saving, marked as computed with the date of its base; a saving of 100 % is quarantined."""
    server.advisor["us-east-1"]["Linux"] |= {"g4dn.2xlarge": {"s": 100, "r": 0}, "zz9.large": {"s": 5, "r": 0}}
    source = AwsSpotAdvisorSource(
        known=catalog, web=web, regions=("us-east-1", "mars-1"), read_on=DAY, base_url=server.url
    )
    result = source.fetch()
    assert prices(result) == {("g4dn.xlarge", "us-east-1", "spot"): Decimal("0.2104")}
    assert "computed: on-demand 0.526" in result.offers[0].notes
    assert "5-10%" in result.offers[0].notes
    assert quarantined(result) == {"the saving is not between 0 and 100 %": 1}
    assert result.report.incomplete == ("mars-1: not in the file",)
    server.faults.queues["/spot-advisor-data.json"] = ["list"]
    with pytest.raises(SourceError, match="no spot_advisor"):
        source.fetch()
