"""Shared by the source tests: the packaged catalog, and a server that speaks every price API, faults included."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tonnage.catalog import Catalog, load_catalog
from tonnage.sources import FetchLimits, SourceResult, Watch, Web

Answer = tuple[int, dict[str, str], bytes]
EC2_COLUMNS = (
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "StartingRange",
    "EndingRange", "Unit", "PricePerUnit", "Currency", "LeaseContractLength", "PurchaseOption", "OfferingClass",
    "Product Family", "Location Type", "Instance Type", "vCPU", "Memory", "Tenancy", "Operating System",
    "CapacityStatus", "GPU", "MarketOption", "Pre Installed S/W", "Region Code",
)  # fmt: skip

DAY = date(2026, 11, 20)


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


def ec2_row(name: str, price: object, **changes: str) -> dict[str, str]:
    """A line of EC2's price list: shared Linux on demand in us-east-1, unless told otherwise."""
    row = dict.fromkeys(EC2_COLUMNS, "") | {
        "SKU": "S", "TermType": "OnDemand", "EffectiveDate": "2026-11-01", "Unit": "Hrs", "PricePerUnit": str(price),
        "Currency": "USD", "Product Family": "Compute Instance", "Location Type": "AWS Region", "Instance Type": name,
        "Tenancy": "Shared", "Operating System": "Linux", "CapacityStatus": "Used", "MarketOption": "OnDemand",
        "Pre Installed S/W": "NA", "Region Code": "us-east-1",
    }  # fmt: skip
    return row | changes


def azure_item(name: str, price: object, **changes: object) -> dict[str, object]:
    """A meter of Azure's retail prices: Linux consumption in eastus, unless told otherwise."""
    return {
        "currencyCode": "USD", "tierMinimumUnits": 0.0, "retailPrice": price, "unitPrice": price,
        "armRegionName": "eastus", "location": "US East", "effectiveStartDate": "2026-06-01T00:00:00Z",
        "meterName": name.removeprefix("Standard_"), "productName": "Virtual Machines Series",
        "skuName": name.removeprefix("Standard_"), "serviceName": "Virtual Machines", "unitOfMeasure": "1 Hour",
        "type": "Consumption", "isPrimaryMeterRegion": True, "armSkuName": name,
    } | changes  # fmt: skip


def gcp_sku(description: str, price: float, usage: str = "OnDemand", **changes: object) -> dict[str, object]:
    """A SKU of Compute Engine in us-central1."""
    unit = {"currencyCode": "USD", "units": str(int(price)), "nanos": round((price - int(price)) * 1e9)}
    return {
        "name": f"services/6F81-5844-456A/skus/{description}", "skuId": "X", "description": description,
        "category": {"resourceFamily": "Compute", "resourceGroup": "CPU", "usageType": usage},
        "serviceRegions": ["us-central1"],
        "pricingInfo": [{"pricingExpression": {
            "usageUnit": changes.pop("usageUnit", "h"),
            "tieredRates": [{"startUsageAmount": 0, "unitPrice": unit | changes.pop("unitPrice", {})}],  # type: ignore[dict-item]
        }}],
    } | changes  # fmt: skip


def do_size(slug: str, price: object, **changes: object) -> dict[str, object]:
    """A GPU droplet of one H100, unless told otherwise."""
    return {
        "slug": slug, "memory": 245760, "vcpus": 20, "disk": 720, "transfer": 15.0, "price_monthly": 2521.0,
        "price_hourly": price, "regions": ["tor1", "nyc1"], "available": True, "description": "GPU",
        "gpu_info": {"count": 1, "vram": {"amount": 80, "unit": "gib"}, "model": "nvidia_h100"},
    } | changes  # fmt: skip


def token_price(model: str, kind: str, price: object, unit: str = "1K tokens", **attributes: str) -> dict[str, Any]:
    """A product of the Bedrock price list, with its on-demand term."""
    stated = {"model": model, "inferenceType": kind, "feature": "On-demand Inference", "usagetype": f"USE1-{kind}"}
    return {
        "product": {"productFamily": "Amazon Bedrock", "attributes": stated | attributes},
        "dimension": {"unit": unit, "description": "", "pricePerUnit": {"USD": price}},
    }


@dataclass
class Faults:
    """What goes wrong: a queue by path, an entry a request; the last entry stays."""

    queues: dict[str, list[str]] = field(default_factory=dict)

    def next(self, path: str) -> str:
        for prefix, queue in self.queues.items():
            if path.startswith(prefix):
                return queue.pop(0) if len(queue) > 1 else queue[0]
        return ""


class PriceServer:
    """Answers like the price APIs do; `faults.queues["/path"] = ["500", "429", "ok"]` makes it misbehave.

    Faults: ok, a status, "429 N" (Retry-After N), hang, reset, cut, html, text, list, endless.
    """

    def __init__(self) -> None:
        self.azure: list[Any] = [azure_item("Standard_NC4as_T4_v3", 0.53)]
        self.gcp: list[Any] = []
        self.sizes: list[Any] = [do_size("gpu-h100x1-80gb", 4.41)]
        self.ec2: dict[str, list[dict[str, str]]] = {"us-east-1": [ec2_row("g4dn.xlarge", "0.5300000000")]}
        self.bedrock: list[dict[str, Any]] = [token_price("Nova Lite", "Input tokens", "0.00006")]
        self.marketplace: list[dict[str, Any]] = []
        self.advisor: dict[str, Any] = {"us-east-1": {"Linux": {"g4dn.xlarge": {"s": 60, "r": 1}}}}
        self.files: dict[str, bytes] = {}
        self.etags = False
        self.spot_status = 200
        self.bytes_sent = 0
        self.faults = Faults()
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.release = threading.Event()
        self.url = ""

    def answer(self, path: str, query: dict[str, list[str]]) -> Answer:
        """The answer of a server in good health."""
        routes: list[tuple[str, Callable[[str, dict[str, list[str]]], object]]] = [
            ("/api/retail/prices", self._azure), ("/v1/services/6F81-5844-456A/skus", self._gcp),
            ("/v2/sizes", self._sizes), ("/spot-advisor-data.json", self._advisor),
        ]  # fmt: skip
        for prefix, route in routes:
            if path == prefix:
                return self._json(route(path, query))
        if path in self.files:
            return 200, {"Content-Type": "text/csv"}, self.files[path]
        if path.startswith("/offers/v1.0/aws/"):
            return self._aws(path.split("/"))
        return 404, {}, b""

    def _json(self, value: object) -> Answer:
        body = json.dumps(value).encode()
        return 200, {"Content-Type": "application/json"} | ({"ETag": f'"{hash(body)}"'} if self.etags else {}), body

    def _azure(self, path: str, query: dict[str, list[str]]) -> object:
        wanted = query["$filter"][0]
        items = [one for one in self.azure if not isinstance(one, dict) or f"'{one['armRegionName']}'" in wanted]
        start = int(query.get("$skip", ["0"])[0])
        following = f"https://prices.azure.com:443{path}?$filter={wanted.replace(' ', '%20')}&$skip={start + 2}"
        more = start + 2 < len(items) or self.endless
        page = items[start : start + 2] or ([azure_item(f"x{start}", 1)] if self.endless else [])
        return {
            "BillingCurrency": "USD",
            "Items": page,
            "NextPageLink": following if more else None,
            "Count": len(page),
        }

    endless = False

    def _gcp(self, _path: str, query: dict[str, list[str]]) -> object:
        start = int(query.get("pageToken", ["0"])[0])
        following = str(start + 2) if start + 2 < len(self.gcp) else ""
        return {"skus": self.gcp[start : start + 2], "nextPageToken": "0" if self.endless else following}

    def _sizes(self, path: str, query: dict[str, list[str]]) -> object:
        page = int(query.get("page", ["1"])[0])
        following = {"next": f"https://api.digitalocean.com{path}?page={page + 1}"}
        more = 2 * page < len(self.sizes) or self.endless
        sizes = self.sizes[2 * page - 2 : 2 * page]
        return {"sizes": sizes, "links": {"pages": following} if more else {}, "meta": {"total": len(self.sizes)}}

    def _advisor(self, _path: str, _query: dict[str, list[str]]) -> object:
        return {"ranges": [{"index": 1, "label": "5-10%", "max": 11}], "spot_advisor": self.advisor}

    def _aws(self, parts: list[str]) -> Answer:
        offer, last = parts[4], parts[-1]
        if last == "region_index.json":
            regions = list(self.ec2) if offer == "AmazonEC2" else ["us-east-1"]
            at = "/offers/v1.0/aws"
            return self._json({"regions": {
                code: {"regionCode": code, "currentVersionUrl": f"{at}/{offer}/20261101/{code}/index.json"}
                for code in regions
            }})  # fmt: skip
        if offer == "AmazonEC2" and last == "index.csv":
            body = ec2_csv(self.ec2[parts[-2]])
            return 200, {"Content-Type": "text/csv"} | ({"ETag": f'"{hash(body)}"'} if self.etags else {}), body
        products = self.bedrock if offer == "AmazonBedrock" else self.marketplace
        return self._json({
            "products": {f"S{n}": one["product"] for n, one in enumerate(products)},
            "terms": {"OnDemand": {f"S{n}": {"T": {"priceDimensions": {"D": one["dimension"]}}}
                                   for n, one in enumerate(products)}},
        })  # fmt: skip


def ec2_csv(rows: list[dict[str, str]]) -> bytes:
    """A region's file as AWS writes it: five lines about itself, the columns, the rows."""
    head = ['"FormatVersion","v1.0"', '"Disclaimer","x"', '"Publication Date","2026-11-01T00:00:00Z"',
            '"Version","20261101"', '"OfferCode","AmazonEC2"']  # fmt: skip
    lines = [",".join(f'"{cell}"' for cell in EC2_COLUMNS)]
    lines += [",".join(f'"{row[column]}"' for column in EC2_COLUMNS) for row in rows]
    return ("\n".join(head + lines) + "\n").encode()


def spot_xml(state: PriceServer, form: dict[str, list[str]]) -> bytes:
    """One row a page, as EC2 writes it; an error where that is what the server is to answer."""
    if state.spot_status != 200:
        return b"<Response><Errors><Error><Code>AuthFailure</Code><Message>no</Message></Error></Errors></Response>"
    zone, price, following = ("a", "0.200000", "t") if "NextToken" not in form else ("b", "0.220000", "")
    return f"""<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
        <spotPriceHistorySet><item><instanceType>g4dn.xlarge</instanceType>
        <productDescription>Linux/UNIX</productDescription><spotPrice>{price}</spotPrice>
        <timestamp>2026-11-20T01:00:00.000Z</timestamp><availabilityZone>us-east-1{zone}</availabilityZone></item>
        </spotPriceHistorySet><nextToken>{following}</nextToken></DescribeSpotPriceHistoryResponse>""".encode()


def handler_of(state: PriceServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            state.asked.append(self.path)
            state.headers.append({name.casefold(): value for name, value in self.headers.items()})
            fault = state.faults.next(url.path)
            if fault == "hang":
                state.release.wait()
            elif fault == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            elif fault[:3].isdigit():
                wait = fault[4:]
                self._send(int(fault[:3]), {"Retry-After": wait} if wait else {}, b"no")
            elif fault in ("html", "text", "list"):
                bodies = {"html": b"<html></html>", "text": b"not json at all", "list": b'["wrong"]'}
                self._send(200, {}, bodies[fault])
            else:
                status, headers, body = state.answer(url.path, parse_qs(url.query))
                if headers.get("ETag") and self.headers.get("If-None-Match") == headers["ETag"]:
                    status, body = 304, b""
                self._send(status, headers, body, cut=fault == "cut")

        def do_POST(self) -> None:
            """EC2's query protocol: DescribeSpotPriceHistory over two pages."""
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            state.asked.append(self.path)
            assert form["Action"] == ["DescribeSpotPriceHistory"]
            assert form["ProductDescription.1"] == ["Linux/UNIX"]
            self._send(state.spot_status, {"Content-Type": "text/xml"}, spot_xml(state, form))

        def _send(self, status: int, headers: dict[str, str], body: bytes, *, cut: bool = False) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            state.bytes_sent += len(body)
            self.wfile.write(body[: len(body) // 2] if cut else body)

        def finish(self) -> None:
            try:
                super().finish()
            except OSError:
                return  # a connection that was reset has nothing to flush

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    return Handler


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away, or a reset of our own making, is no news."""


@pytest.fixture
def server() -> Iterator[PriceServer]:
    state = PriceServer()
    http = QuietServer(("127.0.0.1", 0), handler_of(state))
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_address[1]}"
    yield state
    state.release.set()
    http.shutdown()
    http.server_close()
    thread.join()


class Unhurried(Watch):
    """A watch that notes how long it was asked to wait, and does not."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.check()


@pytest.fixture
def web() -> Web:
    """Attempts that follow one another at once, no cache."""
    return Web(limits=FetchLimits(timeout_s=30.0, attempts=3, wait_s=0.01), watch=Unhurried())


@pytest.fixture
def shapes(request: pytest.FixtureRequest) -> ModuleType:
    """The row builders beside the server."""
    server: Any = request.getfixturevalue("server")
    return sys.modules[type(server).__module__]


def prices(result: SourceResult) -> dict[tuple[str, str, str], Decimal]:
    return {(o.instance_type, o.region, o.purchase): o.usd_per_instance_hour for o in result.offers}


def quarantined(result: SourceResult) -> dict[str, int]:
    return dict(result.report.quarantined)
