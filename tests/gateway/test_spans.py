"""OpenTelemetry spans of the gateway, against a receiver of OTLP over HTTP on this machine."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.gateway.harness import GatewayHarness, Scripted, chat, hang_up, play, said, streamed, words

from tonnage.errors import InputError, MissingExtra
from tonnage.gateway.file.kept_entries import SpansEntry
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.observing.observer import Observer
from tonnage.gateway.observing.record import begin_trace
from tonnage.gateway.observing.spans import SpanWriter

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Received:
    """What came: spans as dictionaries, and the headers of the requests."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status, self.url = 200, ""

    def named(self, name: str) -> dict[str, Any]:
        (found,) = [one for one in self.spans if one["name"] == name]
        return found


@contextmanager
def receiver() -> Iterator[Received]:
    found = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            if found.status == 200:
                assert self.path == "/v1/traces"
                made = ExportTraceServiceRequest()
                made.ParseFromString(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
                for resource in made.resource_spans:
                    named = {one.key: one.value.string_value for one in resource.resource.attributes}
                    for scope in resource.scope_spans:
                        found.spans += [read_span(one, named) for one in scope.spans]
            self.send_response(found.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def read_span(one: Any, resource: dict[str, str]) -> dict[str, Any]:
    values = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in one.attributes}
    return {
        "name": one.name, "trace": one.trace_id.hex(), "id": one.span_id.hex(), "parent": one.parent_span_id.hex(),
        "kind": one.kind, "error": one.status.code == 2, "service": resource["service.name"],
        "seconds": (one.end_time_unix_nano - one.start_time_unix_nano) / 1e9, "begin_ns": one.start_time_unix_nano,
    } | values  # fmt: skip


def made(url: str, measures: GatewayMeasures | None = None, told: list[str] | None = None, **keys: Any) -> SpanWriter:
    entry = SpansEntry.model_validate({"endpoint": url, **keys})
    say = (told if told is not None else []).append
    return SpanWriter(entry, {"x-key": "s3cret"}, measures or GatewayMeasures(), say)


def count(measures: GatewayMeasures, result: str) -> float:
    return measures.cell("tonnage_gateway_spans_total", (("result", result),))[0]


def test_a_span_a_request_and_a_child_an_attempt(tmp_path: Path) -> None:
    """In the client's own trace, in the words of the GenAI conventions; each upstream is told its own span."""
    measures = GatewayMeasures()

    async def scenario(url: str) -> None:
        async with (
            Scripted(hang_up, always=said()) as one,
            Scripted(streamed(*words(2)), always=said()) as other,
            GatewayHarness(tmp_path, {"a": one, "b": other}) as harness,
        ):
            harness.handler.observer = Observer(spans=made(url, measures))
            await harness.ask(chat(stream=True, temperature=0.5), traceparent=PARENT, tracestate="vendor=1")
            heads.extend(other.heads)
            harness.handler.observer.close()
            ports.append(harness.gateway.deployments["b"].endpoint.port)

    heads, ports = list[str](), list[int]()
    with receiver() as found:
        play(scenario(found.url))
    root = found.named("chat chat")
    failed, answered = (one for one in found.spans if one["name"] == "chat upstream-model")
    assert {one["trace"] for one in found.spans} == {PARENT.split("-")[1]}
    assert (root["parent"], root["kind"], root["service"]) == (PARENT.split("-")[2], 2, "tonnage-gateway")
    assert {failed["parent"], answered["parent"]} == {root["id"]}
    assert {failed["kind"], answered["kind"]} == {3}
    assert f"traceparent: 00-{root['trace']}-{answered['id']}-01" in heads[0].lower()
    assert "tracestate: vendor=1" in heads[0].lower()
    assert heads[0].lower().count("traceparent:") == 1
    assert (failed["error"], answered["error"], root["error"]) == (True, False, False)
    assert failed["error.type"] == failed["tonnage.outcome"] != "ok"
    assert (root["gen_ai.operation.name"], root["gen_ai.request.model"]) == ("chat", "chat")
    assert (answered["gen_ai.provider.name"], answered["server.port"]) == ("openai", ports[0])
    assert answered["gen_ai.usage.input_tokens"] == root["gen_ai.usage.input_tokens"] == 7
    assert answered["gen_ai.usage.output_tokens"] == 4
    assert (root["gen_ai.request.temperature"], root["gen_ai.request.max_tokens"]) == (0.5, 10)
    assert 0 < answered["gen_ai.response.time_to_first_chunk"] <= answered["seconds"] <= root["seconds"]
    assert root["begin_ns"] <= failed["begin_ns"] < answered["begin_ns"]
    assert root["tonnage.cost.usd"] > 0
    assert found.headers[0]["x-key"] == "s3cret"
    assert count(measures, "sent") == 3


def test_refusals_are_spans_too(tmp_path: Path) -> None:
    """With what the client was told as the kind of the error; a trace that its client does not record is not sent."""

    async def scenario(url: str) -> None:
        async with (
            Scripted(always=said()) as one,
            GatewayHarness(tmp_path, {"a": one}, budgets=[{"usd": 0.01}]) as harness,
        ):
            harness.handler.observer = Observer(spans=made(url))
            await harness.ask(chat(max_tokens=9000))
            await harness.ask({"model": "nobody"})
            await harness.ask(traceparent=PARENT[:-2] + "00")
            assert PARENT[:-2] + "00" in one.heads[0]
            harness.handler.observer.close()

    with receiver() as found:
        play(scenario(found.url))
    refused, away = found.spans
    assert (refused["error.type"], refused["http.response.status_code"]) == ("insufficient_quota", 429)
    assert (away["name"], away["error.type"]) == ("chat -", "model_not_found")


def test_a_receiver_that_takes_none_costs_nothing(tmp_path: Path) -> None:
    """Requests are answered; spans are lost, counted, and said once."""
    measures, told = GatewayMeasures(), list[str]()

    async def scenario(found: Received) -> None:
        async with Scripted(always=said()) as one, GatewayHarness(tmp_path, {"a": one}) as harness:
            spans = made(found.url, measures, told)
            harness.handler.observer = Observer(spans=spans)
            for status in (400, 400, 200):
                found.status = status
                assert (await harness.ask()).status == 200
                spans._beside.hand_on()
            harness.handler.observer.close()

    with receiver() as found:
        play(scenario(found))
    assert (count(measures, "lost"), count(measures, "sent")) == (4, 2)
    assert [one.split(",")[0] for one in told] == ["spans are lost", "spans are taken again"]


@pytest.mark.parametrize(
    "value",
    ["", "00-x-y-01", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "ff-" + PARENT[3:], PARENT.replace("-01", "")],
)
def test_a_parent_that_cannot_be_read_is_none(value: str) -> None:
    """The request then begins a trace of its own."""
    found = begin_trace([(b"traceparent", value.encode())], 1.0, Random(1))
    assert found is not None
    assert found.parent_id == 0
    assert begin_trace([(b"traceparent", value.encode())], 1e-12, Random(1)) is None


def test_nothing_is_loaded_where_it_is_off() -> None:
    """A worker does not import OpenTelemetry."""
    code = "import sys, tonnage.gateway.worker; print([one for one in sys.modules if 'opentelemetry' in one])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtra) as error:
        made("http://127.0.0.1:1")
    assert "tonnage[otel]" in (error.value.hint or "")


def test_the_file_says_where_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers are references; an address that is none is refused."""
    from tests.gateway.test_request_log import written

    import tonnage

    monkeypatch.setenv("OTLP_KEY", "abc")
    spans = {"endpoint": "http://127.0.0.1:4318", "headers": {"X-Key": "env:OTLP_KEY"}}
    assert tonnage.check_gateway(written(tmp_path, spans=spans)).found.spans_headers == {"x-key": "abc"}
    with pytest.raises(InputError, match="spans"):
        tonnage.check_gateway(written(tmp_path, spans={"endpoint": "ftp://x"}))
    with pytest.raises(InputError):
        tonnage.check_gateway(written(tmp_path, spans={"endpoint": "http://x", "headers": {"a": "plain"}}))
