"""Each price API as documented: rows that become offers, rows that are quarantined, pages, parts that fail."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tonnage.catalog import Catalog
from tonnage.errors import SourceError
from tonnage.sources import (
    AnswerCache,
    AwsPriceListSource,
    AwsSpotAdvisorSource,
    AwsSpotSource,
    AzureRetailSource,
    BedrockSource,
    DatabricksSource,
    DigitalOceanSource,
    GcpBillingSource,
    SourceResult,
    Web,
    parse_rates,
)
from tonnage.sources.aws_spot import boto3_client, boto3_credentials

DAY = date(2026, 11, 20)


@pytest.fixture
def shapes(request: pytest.FixtureRequest) -> ModuleType:
    """The row builders beside the server."""
    server: Any = request.getfixturevalue("server")
    return sys.modules[type(server).__module__]


def prices(result: SourceResult) -> dict[tuple[str, str, str], Decimal]:
    return {(o.instance_type, o.region, o.purchase): o.usd_per_instance_hour for o in result.offers}


def quarantined(result: SourceResult) -> dict[str, int]:
    return dict(result.report.quarantined)


# AWS price list


def aws(server: Any, web: Web, catalog: Catalog, *regions: str) -> AwsPriceListSource:
    return AwsPriceListSource(
        known=catalog, web=web, regions=regions or ("us-east-1",), read_on=DAY, base_url=server.url
    )


def test_aws_lines_become_on_demand_and_reserved_offers(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType
) -> None:
    """Shared Linux machines the catalog holds, on demand and reserved without upfront; the rest is not wanted."""
    row = shapes.ec2_row
    reserved = {"TermType": "Reserved", "PurchaseOption": "No Upfront", "OfferingClass": "standard"}
    server.ec2["us-east-1"] = [
        row("g4dn.xlarge", "0.5260000000", GPU="1", vCPU="4", Memory="16 GiB"),
        row("g4dn.xlarge", "0.3310000000", LeaseContractLength="1yr", **reserved),
        row("g4dn.xlarge", "0.2270000000", LeaseContractLength="3yr", **reserved),
        row("g4dn.xlarge", "0.2", LeaseContractLength="3yr", **reserved | {"OfferingClass": "convertible"}),
        row("g4dn.xlarge", "9", **{"Operating System": "Windows"}),
        row("g4dn.xlarge", "9", Tenancy="Dedicated"),
        row("g4dn.xlarge", "9", **{"Pre Installed S/W": "SQL Web"}),
        row("g4dn.xlarge", "0", CapacityStatus="UnusedCapacityReservation"),
        row("g4dn.xlarge", "9", **{"Location Type": "AWS Local Zone"}),
        row("zz9.large", "0.1"),
    ]
    result = aws(server, web, catalog).fetch()
    assert prices(result) == {
        ("g4dn.xlarge", "us-east-1", "on_demand"): Decimal("0.526"),
        ("g4dn.xlarge", "us-east-1", "reserved_1y"): Decimal("0.331"),
        ("g4dn.xlarge", "us-east-1", "reserved_3y"): Decimal("0.227"),
    }
    assert dict(result.report.dropped) == {"a machine without devices that the catalog does not hold": 1}
    assert {offer.read_on for offer in result.offers} == {DAY}
    assert "AWS price list" in {offer.source.text for offer in result.offers}


EC2_FAULTS: list[tuple[str, dict[str, str], str]] = [
    ("0.0000000000", {}, "the price is not above zero"),
    ("-1", {}, "the price is not above zero"),
    ("NaN", {}, "the price is not a number"),
    ("cheap", {}, "the price is not a number"),
    ("", {}, "the price is not a number"),
    ("700", {}, "the price is a sentinel or in another unit (above 500 USD)"),
    ("0.5", {"Currency": "CNY"}, "the currency is CNY, not USD"),
    ("0.5", {"Currency": ""}, "the currency is not stated, not USD"),
    ("0.5", {"GPU": "4"}, "g4dn.2xlarge: listed with 4 devices, known with 1"),
    ("0.5", {"vCPU": "96"}, "g4dn.2xlarge: listed with vcpus 96, known with 8"),
    ("0.5", {"Instance Type": "p99.48xlarge", "GPU": "8"}, "unknown instance facts: the list names no GPU model"),
]


@pytest.mark.parametrize(("price", "changes", "reason"), EC2_FAULTS)
def test_bad_lines_of_aws_are_quarantined(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType, price: str, changes: dict[str, str], reason: str
) -> None:
    """The bad line is kept aside as it stood, with the reason; the good one is used."""
    server.ec2["us-east-1"].append(shapes.ec2_row("g4dn.2xlarge", price, **changes))
    result = aws(server, web, catalog).fetch()
    assert quarantined(result) == {reason: 1}
    [row] = result.quarantined
    assert (row.reason, row.provider, row.region, row.source) == (reason, "aws", "us-east-1", "AWS price list")
    assert list(prices(result)) == [("g4dn.xlarge", "us-east-1", "on_demand")]


def test_rows_that_stand_twice(server: Any, web: Web, catalog: Catalog, shapes: ModuleType) -> None:
    """The same twice is used once; of two dates the later stands; of two prices of one date neither does."""
    row = shapes.ec2_row
    server.ec2["us-east-1"] = [
        row("g4dn.xlarge", "0.53"), row("g4dn.xlarge", "0.53"),
        row("g4dn.2xlarge", "0.76"), row("g4dn.2xlarge", "0.99", EffectiveDate="2025-01-01"),
        row("g4dn.4xlarge", "1.2"), row("g4dn.4xlarge", "1.4"),
    ]  # fmt: skip
    result = aws(server, web, catalog).fetch()
    assert {name: str(price) for (name, _, _), price in prices(result).items()} == {
        "g4dn.xlarge": "0.53",
        "g4dn.2xlarge": "0.76",
    }
    assert quarantined(result) == {
        "the same row twice": 1,
        "two dates for one row: the later one stands": 1,
        "two prices for one machine, region and mode": 2,
    }
    assert result.report.rows_read == result.report.rows_used + result.report.rows_dropped


CSV = "/offers/v1.0/aws/AmazonEC2/20261101"


@pytest.mark.parametrize("fault", ["500", "404", "reset", "cut", "hang", "text", "html"])
def test_a_region_that_fails_is_named_and_the_others_stand(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType, fault: str
) -> None:
    """One region's file fails in any way: its name and the reason are reported, the other region is used."""
    server.ec2["eu-west-1"] = [shapes.ec2_row("g4dn.xlarge", "0.6", **{"Region Code": "eu-west-1"})]
    server.faults.queues[f"{CSV}/eu-west-1"] = [fault]
    quick = replace(web, limits=replace(web.limits, timeout_s=0.3))
    result = aws(server, quick, catalog, "eu-west-1", "us-east-1").fetch()
    assert {region for _, region, _ in prices(result)} == {"us-east-1"}
    [missing] = result.report.incomplete
    assert missing.startswith("eu-west-1: ")


def test_a_stream_that_breaks_starts_over(server: Any, web: Web, catalog: Catalog) -> None:
    """A cut transfer, then the whole file: its rows count once."""
    server.faults.queues[CSV] = ["cut", "ok"]
    result = aws(server, web, catalog).fetch()
    assert result.report.rows_read == 1


def test_the_rows_of_an_unchanged_file_come_from_disk(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType, tmp_path: Path
) -> None:
    """With an ETag a region's file is sent once, and again when it changed; only the rows of use are kept."""
    server.etags = True
    kept = replace(web, cache=AnswerCache(tmp_path))
    first = aws(server, kept, catalog).fetch()
    sent = server.bytes_sent
    assert aws(server, kept, catalog).fetch().offers == first.offers
    assert server.bytes_sent == sent
    server.ec2["us-east-1"] = [shapes.ec2_row("g4dn.xlarge", "0.6")]
    assert [str(offer.usd_per_instance_hour) for offer in aws(server, kept, catalog).fetch().offers] == ["0.6"]


def test_a_file_cut_without_the_server_saying_so(server: Any, web: Web, catalog: Catalog, shapes: ModuleType) -> None:
    """A body that ends inside a row, with a matching length, is no file; one that only lacks the last line end is."""
    whole = shapes.ec2_csv(server.ec2["us-east-1"])
    path = f"{CSV}/us-east-1/index.csv"
    server.files[path] = whole[:-40]
    with pytest.raises(SourceError, match="ends in the middle of a row"):
        aws(server, web, catalog).fetch()
    server.files[path] = whole.rstrip(b"\n")
    assert len(aws(server, web, catalog).fetch().offers) == 1
    server.files[path] = b"one line\n"
    with pytest.raises(SourceError, match="ends before its column names"):
        aws(server, web, catalog).fetch()
    server.files[path] = whole.replace(b'"PricePerUnit"', b'"Price"')
    with pytest.raises(SourceError, match="column priceperunit is missing"):
        aws(server, web, catalog).fetch()


def test_a_large_file_is_not_held_in_memory(server: Any, web: Web, catalog: Catalog, shapes: ModuleType) -> None:
    """100 MB of lines that are not wanted pass through in less than a tenth of their size."""
    import tracemalloc

    unwanted = shapes.ec2_csv([shapes.ec2_row("m5.large", "9", **{"Operating System": "Windows"})]).split(b"\n")[6]
    head, row = shapes.ec2_csv(server.ec2["us-east-1"]).rstrip(b"\n").rsplit(b"\n", 1)
    count = 100 * 2**20 // (len(unwanted) + 1)
    server.files[f"{CSV}/us-east-1/index.csv"] = head + b"\n" + (unwanted + b"\n") * count + row + b"\n"
    source = aws(server, replace(web, limits=replace(web.limits, timeout_s=30)), catalog)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    result = source.fetch()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert len(result.offers) == 1
    assert peak < 10 * 2**20


@pytest.mark.parametrize("fault", ["list", "text", "404"])
def test_an_index_that_is_none_fails_the_source(server: Any, web: Web, catalog: Catalog, fault: str) -> None:
    """Without a region index there is nothing to ask for."""
    server.faults.queues["/offers/v1.0/aws/AmazonEC2/current"] = [fault]
    with pytest.raises(SourceError):
        aws(server, web, catalog).fetch()
    server.faults.queues.clear()
    with pytest.raises(SourceError, match="no such region"):
        aws(server, web, catalog, "mars-1").fetch()


# Azure


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


def test_azure_pages_without_end(server: Any, web: Web, catalog: Catalog) -> None:
    """A NextPageLink that leads on for ever fails the source instead of hanging it."""
    server.endless = True
    server.azure = []
    with pytest.raises(SourceError, match="never end"):
        azure(server, replace(web, limits=replace(web.limits, attempts=1)), catalog).fetch()


# Google Cloud


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


# DigitalOcean


def digitalocean(server: Any, web: Web, catalog: Catalog) -> DigitalOceanSource:
    return DigitalOceanSource(known=catalog, web=web, token="t0ken", read_on=DAY, base_url=server.url)


def test_digitalocean_sizes_become_offers(server: Any, web: Web, catalog: Catalog, shapes: ModuleType) -> None:
    """A price in every region a size is sold in, over two pages; new GPU sizes are described from the listing."""
    size = shapes.do_size
    server.sizes = [
        size("gpu-h100x1-80gb", 4.41),
        size("s-1vcpu-1gb", 0.009, gpu_info=None),
        size("gpu-mi300x1-192gb", 2.59, gpu_info={"count": 1, "vram": {"amount": 192}, "model": "amd_mi300x"}),
        size("gpu-l40sx1-48gb", 1.57, available=False),
    ]
    result = digitalocean(server, web, catalog).fetch()
    assert prices(result) == {
        (name, region, "on_demand"): Decimal(price)
        for name, price in (("gpu-h100x1-80gb", "4.41"), ("gpu-mi300x1-192gb", "2.59"))
        for region in ("tor1", "nyc1")
    }
    new = next(machine for machine in result.instances if machine.name == "gpu-mi300x1-192gb")
    assert (new.accelerator, new.accelerator_count, new.gpu_memory_gib, new.memory_gib) == ("MI300X", 1, 192, 240)
    assert dict(result.report.dropped) == {
        "a machine without devices that the catalog does not hold": 1,
        "not to be had now": 1,
    }
    assert "t0ken" not in "".join(server.asked)
    assert "t0ken" not in repr(digitalocean(server, web, catalog))


DO_FAULTS: list[tuple[object, dict[str, object], str]] = [
    (0, {}, "the price is not above zero"),
    ("free", {}, "the price is not a number"),
    (2.0, {"gpu_info": {"count": 1, "model": "nvidia_z99"}}, "accelerator not in our table: Z99"),
    (2.0, {"gpu_info": {"count": 0, "model": "nvidia_h100"}}, "count is not a figure above zero"),
    (2.0, {"gpu_info": [1]}, "gpu_info is not an object"),
    (2.0, {"gpu_info": {"count": 1, "vram": {"amount": 24}, "model": "nvidia_h100"}},
     "GPU memory 24 GiB is not 1 x H100-SXM"),
    (2.0, {"regions": "everywhere"}, "regions is not a list of texts"),
    (2.0, {"memory": "lots"}, "memory is not a figure above zero"),
]  # fmt: skip


@pytest.mark.parametrize(("price", "changes", "reason"), DO_FAULTS)
def test_bad_sizes_are_quarantined(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType, price: object, changes: dict[str, object], reason: str
) -> None:
    """The bad size is kept aside with the reason; the good one is used."""
    server.sizes.append(shapes.do_size("gpu-new", price, **changes))
    result = digitalocean(server, web, catalog).fetch()
    assert quarantined(result) == {reason: 1}
    assert {offer.instance_type for offer in result.offers} == {"gpu-h100x1-80gb"}


# AWS spot


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


# Bedrock and Databricks


def test_bedrock_prices_are_per_million_tokens(server: Any, web: Web, shapes: ModuleType) -> None:
    """Per 1K and per 1M come out the same; batch is said; images, other units and other currencies are not used."""
    price = shapes.token_price
    server.bedrock = [
        price("Nova Lite", "Input tokens", "0.00006"),
        price("Nova Lite", "Output tokens batch", "0.00012"),
        price("Nova Canvas", "T2I 1024 image input", "0.04", unit="image"),
        price("Titan", "Input tokens", "0"),
        price("Titan", "Output tokens", "x"),
    ]
    server.bedrock[3]["product"]["attributes"]["usagetype"] = "other"
    other = price("Llama", "Input tokens", "1")
    other["dimension"]["pricePerUnit"] = {"CNY": "1"}
    server.bedrock.append(other)
    claude = price("", "Input tokens", "3", unit="1M tokens", servicename="Claude 9 (Amazon Bedrock Edition)")
    server.marketplace = [claude]
    result = BedrockSource(web=web, regions=("us-east-1",), read_on=DAY, base_url=server.url).fetch()
    assert {(row.sku, row.unit, f"{row.price_usd:f}", row.conditions.split(";")[0]) for row in result.managed} == {
        ("Nova Lite input", "USD per 1M tokens", "0.06", "on-demand"),
        ("Nova Lite output", "USD per 1M tokens", "0.12", "batch"),
        ("Claude 9 input", "USD per 1M tokens", "3", "on-demand"),
    }
    assert {(row.platform, row.region_cloud, row.date) for row in result.managed} == {
        ("aws-bedrock", "us-east-1", "2026-11-20")
    }
    assert quarantined(result) == {
        "the price is not above zero": 1, "the price is not a number": 1, "the currency is CNY, not USD": 1,
    }  # fmt: skip


def test_one_bedrock_offer_may_fail(server: Any, web: Web) -> None:
    """Without the marketplace's list the other stands, and the report says so."""
    server.faults.queues["/offers/v1.0/aws/AmazonBedrockFoundationModels/"] = ["404"]
    result = BedrockSource(web=web, regions=("us-east-1",), read_on=DAY, base_url=server.url).fetch()
    assert len(result.managed) == 1
    assert "AmazonBedrockFoundationModels in us-east-1" in result.report.incomplete[0]


LIST_PRICES = """\
sku_name,cloud,currency_code,usage_unit,price,price_start_time,price_end_time
PREMIUM_JOBS_COMPUTE,AWS,USD,DBU,0.15,2024-01-01T00:00:00Z,
PREMIUM_JOBS_COMPUTE,AWS,USD,DBU,0.10,2022-01-01T00:00:00Z,2024-01-01T00:00:00Z
PREMIUM_JOBS_COMPUTE,AZURE,USD,DBU,0.30,2024-01-01T00:00:00Z,
PREMIUM_STORAGE,AWS,USD,DSU,0.023,2024-01-01T00:00:00Z,
BAD_PRICE,AWS,USD,DBU,0,2024-01-01T00:00:00Z,
BAD_CURRENCY,AWS,EUR,DBU,0.2,2024-01-01T00:00:00Z,
TWICE,AWS,USD,DBU,0.2,2024-01-01T00:00:00Z,
TWICE,AWS,USD,DBU,0.3,2024-01-01T00:00:00Z,
"""


def test_databricks_rates_from_an_export(tmp_path: Path) -> None:
    """The rates in effect, per cloud; those of another time or unit are left out, bad ones quarantined."""
    path = tmp_path / "rates.csv"
    path.write_text(LIST_PRICES)
    result = DatabricksSource(location=str(path), read_on=DAY).fetch()
    assert {(row.sku, row.region_cloud, str(row.price_usd), row.unit) for row in result.managed} == {
        ("PREMIUM_JOBS_COMPUTE", "aws", "0.15", "USD per DBU"),
        ("PREMIUM_JOBS_COMPUTE", "azure", "0.30", "USD per DBU"),
    }
    assert quarantined(result) == {
        "two prices for one row": 2, "the price is not above zero": 1, "the currency is EUR, not USD": 1,
    }  # fmt: skip
    assert result.report.rows_read == result.report.rows_used + result.report.rows_dropped


@pytest.mark.parametrize(
    "text",
    [
        '[{"sku_name": "JOBS", "cloud": "GCP", "currency_code": "USD", "usage_unit": "DBU", '
        '"pricing": {"default": "0.15"}}]',
        'sku_name,cloud,currency_code,usage_unit,pricing\nJOBS,GCP,USD,DBU,"{""default"": ""0.15""}"\n',
        "platform,sku,unit,price_usd,region_cloud,conditions,date,source\n"
        "databricks,JOBS,USD per DBU,0.15,gcp,,2026-04,x\n",
    ],
)
def test_databricks_tables_of_every_form(text: str) -> None:
    """JSON, CSV with the price inside `pricing`, and our own columns say the same."""
    [row] = parse_rates(text, read_on=DAY, name="table").managed
    assert (row.platform, row.sku, row.unit, row.price_usd) == ("databricks", "JOBS", "USD per DBU", Decimal("0.15"))
    assert row.region_cloud == "gcp"


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "[{", '{"a": 1}', LIST_PRICES[:-12] + "\nX,AWS\n"])
def test_other_tables_are_refused(text: str) -> None:
    """A table of another shape, or cut off, is refused as a whole."""
    with pytest.raises(SourceError):
        parse_rates(text, read_on=DAY, name="table")
