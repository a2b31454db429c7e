"""Figures of the watch by OTLP over HTTP, against a receiver on this machine that parses the protocol buffers."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tonnage.errors import WorkloadError
from tonnage.monitoring.alerts.reading import read_rules
from tonnage.monitoring.alerts.rules import OtlpTarget
from tonnage.monitoring.collecting import page_figures
from tonnage.monitoring.figures import series
from tonnage.monitoring.otlp import MOST_WAITING, OtlpWriter

collector = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
PAGE = """\
# TYPE tonnage_encoder_request_seconds histogram
tonnage_encoder_request_seconds_bucket{endpoint="/embed",le="0.1"} 3
tonnage_encoder_request_seconds_bucket{endpoint="/embed",le="1"} 5
tonnage_encoder_request_seconds_bucket{endpoint="/embed",le="+Inf"} 6
tonnage_encoder_request_seconds_sum{endpoint="/embed"} 4.5
tonnage_encoder_request_seconds_count{endpoint="/embed"} 6
node_load1 0.7
"""


class Receiver:
    """Keeps what it parses; answers `status`."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []  # one a call: name -> the metric
        self.headers: list[dict[str, str]] = []
        self.resources: list[dict[str, str]] = []
        self.status, self.hold = 200, threading.Event()
        self.hold.set()
        found = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                found.hold.wait(10)
                found.headers.append({name.lower(): value for name, value in self.headers.items()})
                if found.status == 200:
                    assert self.path == "/v1/metrics"
                    made = collector.ExportMetricsServiceRequest()
                    made.ParseFromString(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
                    [resource] = made.resource_metrics
                    found.resources.append({one.key: one.value.string_value for one in resource.resource.attributes})
                    found.metrics.append({one.name: one for scope in resource.scope_metrics for one in scope.metrics})
                self.send_response(found.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.hold.set()
    made.server.shutdown()
    made.server.server_close()


def labels_of(point: Any) -> dict[str, str]:
    return {one.key: one.value.string_value for one in point.attributes}


def test_kinds_units_and_meanings_are_those_of_the_registry(receiver: Receiver) -> None:
    """A gauge, a counter that begins when it was first seen, a histogram with counts a bucket, another's page as a
    gauge; the header that was asked for."""
    said: list[str] = []
    target = OtlpTarget(endpoint=receiver.url, headers=(("x-key", "s3cret"),), service="team")
    writer = OtlpWriter(target, said.append)
    power = series("tonnage_gpu_power_watts", {"run": "a", "gpu": "0"})
    spend = series("tonnage_run_spend_usd_total", {"run": "a"})
    page = dict(page_figures(PAGE))
    writer.put(1000.0, {power: 650.5, spend: 1.0, **page})
    writer.put(1010.0, {power: 640.0, spend: 1.5, **page})
    writer.put(1020.0, {spend: 0.2})  # it fell: it began anew
    writer.close()
    first, second, third = receiver.metrics
    gauge, counter = first["tonnage_gpu_power_watts"], second["tonnage_run_spend_usd_total"]
    assert (gauge.unit, gauge.description, gauge.gauge.data_points[0].as_double) == ("W", "Power drawn", 650.5)
    assert labels_of(gauge.gauge.data_points[0]) == {"run": "a", "gpu": "0"}
    assert gauge.gauge.data_points[0].time_unix_nano == 1000 * 10**9
    assert (counter.unit, counter.sum.is_monotonic, counter.sum.aggregation_temporality) == ("{USD}", True, 2)
    assert counter.sum.data_points[0].start_time_unix_nano == 1000 * 10**9
    assert third["tonnage_run_spend_usd_total"].sum.data_points[0].start_time_unix_nano == 1020 * 10**9
    [point] = first["tonnage_encoder_request_seconds"].histogram.data_points
    assert (list(point.bucket_counts), list(point.explicit_bounds)) == ([3, 2, 1], [0.1, 1.0])
    assert (point.count, point.sum, labels_of(point)) == (6, 4.5, {"endpoint": "/embed"})
    assert first["node_load1"].gauge.data_points[0].as_double == 0.7
    assert receiver.resources[0]["service.name"] == "team"
    assert receiver.headers[0]["x-key"] == "s3cret"
    assert said == []


def test_a_receiver_that_refuses_is_said_once_and_delays_nothing(receiver: Receiver) -> None:
    """And again once it takes figures; the words carry no header."""
    receiver.status = 400
    receiver.hold.clear()
    said: list[str] = []
    writer = OtlpWriter(OtlpTarget(endpoint=receiver.url, headers=(("x-key", "s3cret"),)), said.append)
    figure = {series("tonnage_run_loss", {"run": "a"}): 1.0}
    for at in range(3):
        writer.put(float(at), figure)
    assert receiver.headers == []  # no answer was waited for
    receiver.hold.set()
    deadline = time.monotonic() + 60
    while len(receiver.headers) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    receiver.status = 200
    writer.put(4.0, figure)
    writer.close()
    assert said == [f"OTLP: figures are not sent to {receiver.url}: it takes none",
                    f"OTLP: {receiver.url} takes figures again"]  # fmt: skip


def test_a_receiver_that_hangs_costs_the_oldest_rounds(receiver: Receiver) -> None:
    """The rounds go on; what waits is bounded, and what is lost is said."""
    receiver.hold.clear()
    said: list[str] = []
    writer = OtlpWriter(OtlpTarget(endpoint=receiver.url), said.append)
    for at in range(MOST_WAITING + 5):
        writer.put(float(at), {series("tonnage_run_loss", {"run": "a"}): 1.0})
    assert said == [f"OTLP: figures are not sent to {receiver.url}: it is slower than the rounds"]
    receiver.hold.set()
    writer.close()
    assert MOST_WAITING <= len(receiver.metrics) <= MOST_WAITING + 1


def test_the_file_says_where_to() -> None:
    """Headers are references; a secret in the clear and a misspelt key are refused with their line."""
    text = "otlp:\n  endpoint: http://127.0.0.1:4318\n  headers: {authorization: env:OTLP_KEY}\n  service: team\n"
    rules = read_rules(text, file="w.yaml", environment={"OTLP_KEY": "Bearer x"})
    assert rules.otlp == OtlpTarget(
        endpoint="http://127.0.0.1:4318", headers=(("authorization", "Bearer x"),), service="team"
    )
    for wrong, words in (("headers: {authorization: Bearer x}", "env:NAME"), ("endpoit: x", "endpoint")):
        with pytest.raises(WorkloadError) as caught:
            read_rules(f"otlp:\n  endpoint: http://127.0.0.1:4318\n  {wrong}\n", file="w.yaml", environment={})
        assert "w.yaml:" in str(caught.value)
        assert words in f"{caught.value} {caught.value.hint}"
        assert "Bearer" not in f"{caught.value} {caught.value.hint}"
