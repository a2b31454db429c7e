"""Price sources: parsing, faults over the network, and snapshots written whole or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tonnage.catalog import Catalog, load_catalog
from tonnage.errors import CatalogError, MissingExtra, SourceError
from tonnage.sources import (
    FetchLimits,
    GpuhuntSource,
    SkyPilotSource,
    SourceResult,
    dated_meta,
    fetch_text,
    gather,
    parse_catalog_items,
    parse_skypilot_csv,
    write_snapshot,
)
from tonnage.sources.machines import wanted_machines

DAY = date(2026, 11, 1)
HEADER = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"
)
INFO = "\"{'Gpus': [{'Name': 'T4', 'Count': 1.0}], 'TotalGpuMemoryInMiB': 16384}\""
T4 = f"g4dn.xlarge,T4,1.0,4.0,16.0,{INFO},0.526,"
GOOD = HEADER + f"{T4}0.20,us-east-1,us-east-1a\n{T4}0.30,us-east-1,us-east-1b\n{T4}0.28,us-east-1,us-east-1c\n"
QUICK = FetchLimits(timeout_s=5, max_bytes=100_000, attempts=3, wait_s=0.01)


def parse(text: str, known: Catalog, provider: str = "aws") -> SourceResult:
    return parse_skypilot_csv(text, provider=provider, known=known, read_on=DAY, name="listing")


def dropped(result: SourceResult) -> dict[str, int]:
    return dict(result.report.dropped)


def test_zones_become_one_offer_with_the_median_spot_price(catalog: Catalog) -> None:
    """Three zones of one region give one on-demand offer and the median of the spot prices."""
    result = parse(GOOD, catalog)
    prices = {offer.purchase: offer.usd_per_instance_hour for offer in result.offers}
    assert prices == {"on_demand": Decimal("0.526"), "spot": Decimal("0.28")}
    assert {offer.read_on for offer in result.offers} == {DAY}
    assert (result.report.rows_read, result.report.rows_used, result.report.dropped) == (3, 3, ())


def test_a_known_machine_keeps_what_is_known_of_it(catalog: Catalog) -> None:
    """The listing says nothing of the network; the machine of the catalog does, and stays."""
    [machine] = parse(GOOD, catalog).instances
    assert machine == catalog.instance_type("g4dn.xlarge")


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_later_headers_carry_the_architecture(catalog: Catalog, arch: str) -> None:
    """A file with Arch and without zones or GpuInfo is read as well; its columns may stand in any order."""
    text = f"Region,Price,SpotPrice,InstanceType,vCPUs,MemoryGiB,Arch\nus-east-1,0.2,,x9.large,2,4,{arch}\n"
    [machine] = parse(text, catalog).instances
    assert (machine.cpu_arch, machine.accelerator, machine.accelerator_count) == (arch, None, 0)


SPOT_ABOVE = "spot above on-demand: one of them is another kind of price"
ROWS = [  # provider, row, reason
    ("aws", f"{T4}0.2,us-east-1,us-east-1-bos-1a", "an AWS local or wavelength zone"),
    ("aws", "x9.large,,,2,4,,700.0,,us-east-1,us-east-1a", "Price is a sentinel (above 500 USD an hour)"),
    ("aws", "x9.large,,,2,4,,0,,us-east-1,us-east-1a", "no price"),
    ("aws", "x9.large,,,2,4,,,,us-east-1,us-east-1a", "no price"),
    ("aws", "x9.large,,,2,4,,-1,,us-east-1,us-east-1a", "Price is not above zero"),
    ("aws", "x9.large,,,2,4,,cheap,,us-east-1,us-east-1a", "Price is not a number"),
    ("aws", "x9.large,,,two,4,,0.1,,us-east-1,us-east-1a", "vCPUs is not a number"),
    ("aws", "x9.large,,,2,4,,0.1,0.2,us-east-1,us-east-1a", SPOT_ABOVE),
    ("aws", "x9.large,Z99,1,2,4,,0.1,,us-east-1,us-east-1a", "accelerator not in our table: Z99"),
    ("aws", "x9.large,T4,,2,4,,0.1,,us-east-1,us-east-1a",
     "an accelerator without a count, or a count without an accelerator"),
    ("aws", f"x9.large,A10G,1,2,4,{INFO},0.1,,us-east-1,us-east-1a", "GPU memory 16 GiB is not 1 x A10G"),
    ("aws", "x9.large,,,2,4,,0.1", "wrong number of cells"),
    ("azure", "Standard_ND96isr_H100_v5,H100,12,96,1900,,98.32,,eastus,",
     "Standard_ND96isr_H100_v5: listed with 12 devices, known with 8"),
    ("gcp", "a2-highgpu-1g,,,12,85,,0.73948,0.44,us-central1,us-central1-a",
     "a GCP machine priced without its GPU"),
    ("gcp", ",A100-80GB,1,,,,1.8462,1.964,us-central1,us-central1-a", "a GPU priced apart from its machine"),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "row", "reason"), ROWS)
def test_known_traps_are_dropped_with_a_reason(catalog: Catalog, provider: str, row: str, reason: str) -> None:
    """A row that listings are known to get wrong is left out and counted; the good rows stay."""
    good = "x9.huge,,,64,128,,2.5,,us-east-1,us-east-1a\n"
    result = parse(HEADER + row + "\n" + good, catalog, provider)
    assert dropped(result) == {reason: 1}
    assert [offer.instance_type for offer in result.offers] == ["x9.huge"]
    assert result.report.rows_read == result.report.rows_used + sum(dict(result.report.dropped).values()) == 2


def test_a_refresh_takes_what_matters(catalog: Catalog) -> None:
    """With `wanted_machines` a machine without devices needs to be held already; other regions are left out."""
    rows = f"x9.large,,,2,4,,0.1,,us-east-1,us-east-1a\n{T4}0.2,us-east-1,us-east-1a\n{T4}0.2,eu-west-1,eu-west-1a\n"
    held = "c7g.large,,,2,4,,0.07,,us-east-1,us-east-1a\n"
    result = parse_skypilot_csv(
        HEADER + rows + held, provider="aws", known=catalog, read_on=DAY, name="listing",
        wanted=wanted_machines(catalog, ["us-east-1"]),
    )  # fmt: skip
    assert {offer.instance_type for offer in result.offers} == {"g4dn.xlarge", "c7g.large"}
    assert dropped(result) == {"a machine without devices that the catalog does not hold": 1, "another region": 1}


def test_names_go_through_the_alias_table(catalog: Catalog) -> None:
    """SkyPilot's A100 is the 40 GB part and its V100 the 16 GB one; form factors known already are kept."""
    rows = "x9.a,A100,8,96,1152,,30,,us-east-1,us-east-1a\nx9.b,V100,1,8,61,,3,,us-east-1,us-east-1a\n"
    azure = "Standard_NC24ads_A100_v4,A100-80GB,1,24,220,,3.673,,eastus,\n"
    found = {machine.name: machine.accelerator for machine in parse(HEADER + rows, catalog).instances}
    assert found == {"x9.a": "A100-40GB-SXM", "x9.b": "V100-16GB"}
    [machine] = parse(HEADER + azure, catalog, "azure").instances
    assert machine.accelerator == "A100-80GB-PCIe"


SPOILED = [
    ("", "column InstanceType, Price, Region is missing"),
    ("InstanceType,vCPUs,Region\na,1,r\n", "column Price is missing"),
    (GOOD[:-12], "ends in the middle of a row"),
    (HEADER, "no row of 0 can be used"),
    (HEADER + "x9.large,,,2,4,,0,,us-east-1,us-east-1a\n", "no row of 1 can be used"),
    (HEADER + 'x9.large,,,2,4,"{,0.1,,us-east-1,us-east-1a\n', "not CSV"),
]


@pytest.mark.parametrize(("text", "why"), SPOILED)
def test_a_file_that_is_no_such_listing_is_refused(catalog: Catalog, text: str, why: str) -> None:
    """Without its columns, cut off, or without a usable row, the whole source is refused."""
    with pytest.raises(SourceError, match=why):
        parse(text, catalog)


@dataclass
class Web:
    """A web server on this machine that answers what it is told to, one answer a request."""

    answers: list[tuple[int, str, bytes, int]] = field(default_factory=list)
    requests: int = 0
    url: str = ""

    def will_answer(self, *answers: tuple[int, bytes]) -> None:
        self.answers = [(status, "text/csv", body, len(body)) for status, body in answers]


@pytest.fixture
def web() -> Iterator[Web]:
    state = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests += 1
            status, kind, body, length = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/vms.csv"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_url_and_a_file_give_the_same(web: Web, catalog: Catalog, tmp_path: Path) -> None:
    """The same bytes over HTTP and from disk become the same offers."""
    web.will_answer((200, GOOD.encode()))
    path = tmp_path / "vms.csv"
    path.write_text(GOOD, encoding="utf-8")
    sources = [
        SkyPilotSource(provider="aws", location=where, known=catalog, read_on=DAY, limits=QUICK)
        for where in (web.url, str(path))
    ]
    assert sources[0].fetch().offers == sources[1].fetch().offers


def test_a_passing_server_error_is_tried_again(web: Web) -> None:
    """500, then 429, then the file: the file is returned after three requests."""
    web.will_answer((500, b"oops"), (429, b"slower"), (200, GOOD.encode()))
    assert fetch_text(web.url, QUICK) == GOOD
    assert web.requests == 3


def test_a_lasting_server_error_is_named(web: Web) -> None:
    """Three server errors in a row are an error that names address and status."""
    web.will_answer((503, b""))
    with pytest.raises(SourceError, match=r"vms.csv failed 3 times, last with status 503"):
        fetch_text(web.url, QUICK)
    assert web.requests == 3


def test_a_missing_page_is_not_tried_again(web: Web) -> None:
    """404 will not pass: one request."""
    web.will_answer((404, b""))
    with pytest.raises(SourceError, match="status 404"):
        fetch_text(web.url, QUICK)
    assert web.requests == 1


def test_a_broken_transfer_is_no_data(web: Web) -> None:
    """A body shorter than announced is retried, then refused; half a file is never used."""
    body = GOOD.encode()
    web.answers = [(200, "text/csv", body[:50], len(body))]
    with pytest.raises(SourceError, match="failed 3 times"):
        fetch_text(web.url, QUICK)


def test_a_web_page_is_no_data(web: Web) -> None:
    """HTML with status 200 is refused with a hint at the raw file."""
    web.will_answer((200, b"<!DOCTYPE html><html></html>"))
    with pytest.raises(SourceError, match="a web page") as refused:
        fetch_text(web.url, QUICK)
    assert "raw" in (refused.value.hint or "")


def test_too_large_and_not_text_are_refused(web: Web, tmp_path: Path) -> None:
    """The size limit and the encoding hold for URL and file."""
    web.will_answer((200, b"a" * 200_000))
    with pytest.raises(SourceError, match="larger than 100000 bytes"):
        fetch_text(web.url, QUICK)
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(SourceError, match="not UTF-8"):
        fetch_text(str(path), QUICK)
    path.write_bytes(b"a" * 200_000)
    with pytest.raises(SourceError, match="larger than"):
        fetch_text(str(path), QUICK)
    with pytest.raises(SourceError, match="cannot be read"):
        fetch_text(str(tmp_path / "none.csv"), QUICK)


def test_nobody_listening_is_a_source_error() -> None:
    """A refused connection is a SourceError that names the address."""
    with pytest.raises(SourceError, match=r"127.0.0.1:9"):
        fetch_text("http://127.0.0.1:9/vms.csv", QUICK)


@dataclass
class Item:
    """A stand-in with the documented fields of gpuhunt's CatalogItem."""

    instance_name: str = "p5.48xlarge"
    location: str = "us-east-1"
    price: float = 55.04
    cpu: int = 192
    memory: float = 2048.0
    gpu_count: int = 8
    gpu_name: str | None = "H100"
    gpu_memory: float | None = 80.0
    spot: bool = False
    provider: str = "aws"


def test_gpuhunt_items_become_offers(catalog: Catalog) -> None:
    """Fields map to ours, providers and devices through our names, spot to the purchase mode."""
    items = [
        Item(),
        Item(price=20.5, spot=True),
        Item(instance_name="gpu_1x_a10", provider="lambdalabs", gpu_count=1, gpu_name="A10", gpu_memory=24,
             cpu=30, memory=200, price=1.29),
        Item(instance_name="new", gpu_count=1, gpu_name="A100", gpu_memory=80, cpu=12, memory=100, price=2.0),
        Item(instance_name="cpu-only", gpu_count=0, gpu_name=None, gpu_memory=None, cpu=4, memory=8,
             price=0.1),
    ]  # fmt: skip
    result = parse_catalog_items(items, known=catalog, read_on=DAY)
    found = [(o.provider, o.instance_type, o.purchase, str(o.usd_per_instance_hour)) for o in result.offers]
    assert found == [
        ("aws", "p5.48xlarge", "on_demand", "55.04"),
        ("aws", "p5.48xlarge", "spot", "20.5"),
        ("lambda", "gpu_1x_a10", "on_demand", "1.29"),
        ("aws", "new", "on_demand", "2.0"),
        ("aws", "cpu-only", "on_demand", "0.1"),
    ]
    devices = {machine.name: machine.accelerator for machine in result.instances}
    assert devices["new"] == "A100-80GB-SXM"
    assert devices["cpu-only"] is None


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (Item(price=0.0), "the price is not above zero, or a sentinel"),
        (Item(price=float("nan")), "the price is not above zero, or a sentinel"),
        (Item(price=700.0), "the price is not above zero, or a sentinel"),
        (Item(provider="vastai"), "a marketplace offer, not a list price"),
        (Item(gpu_name="Z99", instance_name="n"), "accelerator not in our table: Z99"),
        (Item(gpu_name=None), "a device without a name"),
        (Item(gpu_memory=24.0), "GPU memory 24 GiB is not 1 x H100-SXM"),
        (Item(gpu_count=4), "p5.48xlarge: listed with 4 devices, known with 8"),
        (Item(location="us-west-2"), "a second price for the same machine, region and mode"),
    ],
)
def test_gpuhunt_items_that_cannot_be_used_are_counted(catalog: Catalog, item: Item, reason: str) -> None:
    """Each unusable item is dropped with its reason."""
    good = Item(location="us-west-2")
    result = parse_catalog_items([good, item], known=catalog, read_on=DAY)
    assert dropped(result) == {reason: 1}


def test_gpuhunt_without_its_extra_says_what_to_install(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where gpuhunt is not installed the error names the extra."""
    monkeypatch.setitem(__import__("sys").modules, "gpuhunt", None)
    with pytest.raises(MissingExtra) as refused:
        GpuhuntSource(known=catalog, read_on=DAY).fetch()
    assert refused.value.hint == "pip install 'tonnage[gpuhunt]'"


def test_the_packaged_snapshot_survives_a_round_trip(catalog: Catalog, tmp_path: Path) -> None:
    """Written and loaded back, every machine and offer is what it was; prices keep their digits."""
    meta = dated_meta(catalog.built_on, catalog.sources, notes='two\nlines, "quoted" and \\ slashed')
    folder = write_snapshot(tmp_path / "copy", catalog.instance_types, catalog.offers, meta)
    again = load_catalog(folder)
    assert set(again.instance_types) == set(catalog.instance_types)
    assert {(o, str(o.usd_per_instance_hour)) for o in again.offers} == {
        (o, str(o.usd_per_instance_hour)) for o in catalog.offers
    }
    assert (again.name, again.sources, again.notes) == (meta.name, meta.sources, meta.notes)


def test_a_snapshot_is_never_overwritten(catalog: Catalog, tmp_path: Path) -> None:
    """An existing folder is refused and stays as it was."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(SourceError, match="exists already"):
        write_snapshot(tmp_path / "taken", catalog.instance_types, catalog.offers, dated_meta(DAY, ["x"]))
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["mine.txt"]


def test_a_bad_row_leaves_nothing_behind(catalog: Catalog, tmp_path: Path) -> None:
    """A snapshot that would not load is not written: no folder, no draft."""
    bad = replace(catalog.offers[0], usd_per_instance_hour=Decimal(0))
    with pytest.raises(CatalogError, match="not above zero"):
        write_snapshot(tmp_path / "new", catalog.instance_types, [bad], dated_meta(catalog.built_on, ["x"]))
    assert list(tmp_path.iterdir()) == []


@dataclass
class Fixed:
    """A source that answers one result, or fails."""

    name: str
    result: SourceResult | None

    def fetch(self) -> SourceResult:
        if self.result is None:
            raise SourceError(f"{self.name} is down")
        return self.result


def test_a_failed_source_is_named_beside_those_that_answered(catalog: Catalog, tmp_path: Path) -> None:
    """One source down, two up: the offers of the two, the first price where both have one, all reported."""
    first = parse(GOOD, catalog)
    dearer = replace(first, offers=tuple(replace(o, usd_per_instance_hour=Decimal(9)) for o in first.offers))
    result, reports = gather([Fixed("down", None), Fixed("a", first), Fixed("b", dearer)])
    assert result.offers == first.offers
    assert [report.error for report in reports] == ["down is down", None, None]
    folder = write_snapshot(tmp_path / "new", result.instances, result.offers, dated_meta(DAY, ["listing"]))
    assert load_catalog(folder).oldest_price == DAY


def test_when_every_source_fails_there_is_no_snapshot() -> None:
    """Nothing answered is an error that names each failure."""
    with pytest.raises(SourceError, match=r"x is down; y is down"):
        gather([Fixed("x", None), Fixed("y", None)])
