"""AWS's price list: lines that become offers, lines that are quarantined, files that break, and memory."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tonnage.catalog import Catalog
from tonnage.errors import SourceError
from tonnage.sources import (
    AwsPriceListSource,
    ResponseCache,
    Web,
)

from .conftest import DAY, prices, quarantined


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
        "two dates for one row: the later one is kept": 1,
        "two prices for one machine, region and mode": 2,
    }
    assert result.report.rows_read == result.report.rows_used + sum(dict(result.report.dropped).values())


CSV = "/offers/v1.0/aws/AmazonEC2/20261101"


@pytest.mark.parametrize("fault", ["500", "404", "reset", "cut", "hang", "text", "html"])
def test_a_region_that_fails_is_named_and_the_others_stand(
    server: Any, web: Web, catalog: Catalog, shapes: ModuleType, fault: str
) -> None:
    """One region's file fails in any way: its name and the reason are reported, the other region is used."""
    server.ec2["eu-west-1"] = [shapes.ec2_row("g4dn.xlarge", "0.6", **{"Region Code": "eu-west-1"})]
    server.faults.queues[f"{CSV}/eu-west-1"] = [fault]
    quick = replace(web, limits=replace(web.limits, timeout_s=2.0, attempts=1)) if fault == "hang" else web
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
    kept = replace(web, cache=ResponseCache(tmp_path))
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
    """40 MB of lines that are not wanted pass through in less than a tenth of their size."""
    import tracemalloc

    unwanted = shapes.ec2_csv([shapes.ec2_row("m5.large", "9", **{"Operating System": "Windows"})]).split(b"\n")[6]
    head, row = shapes.ec2_csv(server.ec2["us-east-1"]).rstrip(b"\n").rsplit(b"\n", 1)
    count = 40 * 2**20 // (len(unwanted) + 1)
    server.files[f"{CSV}/us-east-1/index.csv"] = head + b"\n" + (unwanted + b"\n") * count + row + b"\n"
    source = aws(server, replace(web, limits=replace(web.limits, timeout_s=30)), catalog)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    result = source.fetch()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert len(result.offers) == 1
    assert peak < 4 * 2**20


@pytest.mark.parametrize("fault", ["list", "text", "404"])
def test_an_index_that_is_none_fails_the_source(server: Any, web: Web, catalog: Catalog, fault: str) -> None:
    """Without a region index there is nothing to ask for."""
    server.faults.queues["/offers/v1.0/aws/AmazonEC2/current"] = [fault]
    with pytest.raises(SourceError):
        aws(server, web, catalog).fetch()
    server.faults.queues.clear()
    with pytest.raises(SourceError, match="no such region"):
        aws(server, web, catalog, "mars-1").fetch()
