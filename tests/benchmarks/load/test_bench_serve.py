"""`tonnage bench serve` against a service over real sockets."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvloop")

import tonnage
from tonnage import BenchServeOptions
from tonnage.benchmarks.load.dialects import DIALECTS, TimedStreamReader
from tonnage.cli import run
from tonnage.errors import InputError, TonnageError
from tonnage.http.pool import read_endpoint, request_bytes
from tonnage.testing.upstream import PretendedUpstream

SOON = {"rate_per_s": 60.0, "duration_s": 0.25, "warm_up_s": 0.02, "most_late_s": 5.0}  # shared cores may be late


@pytest.fixture(scope="module")
def upstream() -> Iterator[PretendedUpstream]:
    with PretendedUpstream(delay_s=0.01) as one:
        yield one


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("protocol", DIALECTS)
def test_every_protocol_is_spoken(upstream: PretendedUpstream, protocol: str) -> None:
    """All requests are answered; a service that generates shows first tokens and tokens a second."""
    found = tonnage.bench_serve(upstream.url, BenchServeOptions(protocol=protocol, **SOON)).found
    assert found.result.sent == found.result.answered > 0
    assert found.result.latency is not None
    assert found.result.latency.p50 >= 0.009
    assert (found.result.ttft is not None) == DIALECTS[protocol].generates


def test_lengths_are_in_the_tokens_of_the_service(upstream: PretendedUpstream) -> None:
    """The service counts two tokens a word and three more: two probes show it, so that 203 tokens are asked for."""
    found = tonnage.bench_serve(upstream.url, BenchServeOptions(input_tokens="203", output_tokens="5", **SOON)).found
    assert found.result.input_tokens == 203.0
    assert found.result.output_tokens == 5.0
    assert found.result.gaps is not None
    assert found.result.gaps.count == 4 * found.result.answered


def test_only_the_texts_of_a_file_are_sent(upstream: PretendedUpstream, tmp_path: Path) -> None:
    """The first of them is the probe: a service whose context is short is not asked for a text of 160 words."""
    texts = tmp_path / "texts.txt"
    texts.write_text("one two\nthree four five\n", encoding="utf-8")
    upstream.seen.clear()
    tonnage.bench_serve(upstream.url, BenchServeOptions(data=str(texts), **SOON))
    sent = [json.loads(body)["messages"][0]["content"] for body in upstream.seen]
    assert sum(upstream.seen.values()) > 2
    assert set(sent) == {"one two", "three four five"}


def test_a_model_of_short_texts_is_measured(upstream: PretendedUpstream) -> None:
    """It refuses the probe of 160 words: a shorter pair shows how it counts, and lengths are as asked."""
    upstream.most_tokens = 128
    try:
        found = tonnage.bench_serve(upstream.url, BenchServeOptions(input_tokens="103", **SOON)).found
    finally:
        upstream.most_tokens = None
    assert found.result.input_tokens == 103.0
    assert found.result.answered == found.result.sent > 0


def test_a_server_of_embeddings_states_its_model(upstream: PretendedUpstream) -> None:
    """At `/info`, where it has that page; else it is «default»."""
    found = tonnage.bench_serve(upstream.url, BenchServeOptions(protocol="tei-embed", **SOON)).found
    assert found.model == "default"
    upstream.info = {"model_id": "BAAI/bge-small-en-v1.5"}
    try:
        found = tonnage.bench_serve(upstream.url, BenchServeOptions(protocol="tei-embed", **SOON)).found
    finally:
        upstream.info = None
    assert found.model == "BAAI/bge-small-en-v1.5"


def test_rows_are_in_the_file_and_in_the_store(upstream: PretendedUpstream, tmp_path: Path) -> None:
    """The same rows; `validate inference` reads the file and finds the same error of each figure. A slow machine may
    answer nothing within so short a run: then there is no rate, and latencies alone are rows."""
    from tonnage.settings import current_settings
    from tonnage.store import open_store

    asked = BenchServeOptions(
        rows=str(tmp_path / "rows.csv"), model="llama3.1-8b", gpu="H100-SXM", gpus=1, engine="vllm", precision="bf16",
        **SOON,
    )  # fmt: skip
    found = tonnage.bench_serve(upstream.url, asked).found
    with (tmp_path / "rows.csv").open(encoding="utf-8") as stream:
        assert list(csv.DictReader(stream)) == [dict(row) for row in found.rows]
    with open_store(current_settings().database_url) as store:
        assert store.measurements("inference") == [dict(row) for row in found.rows]
    judged = json.loads(tonnage.validate("inference", tmp_path / "rows.csv").to_json())
    assert judged["predicted"] == len(found.predicted) > 0
    metrics = {one["metric"]: one["bias_pct"] for one in judged["metrics"]}
    assert {one.metric: one.error_percent for one in found.predicted} == pytest.approx(metrics, rel=0.01, abs=0.01)
    assert all(one.low <= one.predicted <= one.high for one in found.predicted)
    assert {"latency_ms_p95", "ttft_ms_p50"} <= set(metrics)


def test_a_page_instead_of_an_answer_is_told_in_one_line() -> None:
    """Some other server stands there: its words without their lines."""
    page = b"<html>\n  <title>Error response</title>\n</html>\n"

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(501)
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            with pytest.raises(TonnageError) as failed:
                tonnage.bench_serve(url, BenchServeOptions(protocol="tei-embed", **SOON))
        finally:
            server.shutdown()
            thread.join()
    assert str(failed.value).endswith("over tei-embed: http 501 <html> <title>Error response</title> </html>")


def test_errors_are_counted_by_kind(upstream: PretendedUpstream, tmp_path: Path) -> None:
    """A row of a data set that the service refuses, one that it answers with rubbish, one that it cuts off."""
    data = tmp_path / "texts.jsonl"
    rows = ["plain", "status-500", "rubbish", "cut"]
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows), encoding="utf-8")
    asked = BenchServeOptions(data=str(data), protocol="tei-embed", p95_latency_s=10.0, **SOON)
    found = tonnage.bench_serve(upstream.url, asked).found.result
    assert set(dict(found.faults)) == {"http 500", "rubbish", "connection closed"}
    assert found.holds is False


@pytest.mark.slow
def test_capacity_lies_where_slots_run_out() -> None:
    """4 slots of 20 ms answer 200 requests a second: the search ends below that, and above a third of it."""
    with PretendedUpstream(delay_s=0.02, slots=4) as small:
        asked = BenchServeOptions(
            protocol="tei-embed", find_capacity=True, p95_latency_s=0.15, rate_per_s=40.0, duration_s=0.8,
            warm_up_s=0.1, most_late_s=5.0,
        )  # fmt: skip
        found = tonnage.bench_serve(small.url, asked).found.capacity
    assert found is not None
    assert found.held_per_s is not None
    assert 20.0 < found.held_per_s < 320.0  # a burst of 0.8 s may end before its queue has grown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (BenchServeOptions(protocol="smoke"), "no protocol is named 'smoke'"),
        (BenchServeOptions(arrivals="ramp"), "--to-rate"),
        (BenchServeOptions(find_capacity=True), "needs a promise"),
        (BenchServeOptions(input_tokens="mean=3"), "--input-tokens"),
        (BenchServeOptions(input_tokens="many"), "found 'many'"),
        (BenchServeOptions(api_key_env="NOBODY_SETS_THIS"), "NOBODY_SETS_THIS"),
        (BenchServeOptions(data="nowhere.jsonl"), "nowhere.jsonl"),
        (BenchServeOptions(trace="nowhere.csv"), "nowhere.csv"),
        (BenchServeOptions(protocol="tei-embed", rate_per_s=0.5, duration_s=0.1), "no request was due"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    upstream: PretendedUpstream, options: BenchServeOptions, said: str
) -> None:
    """Each names the option at fault."""
    with pytest.raises(InputError, match=said):
        tonnage.bench_serve(upstream.url, options)


def test_a_service_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1, with the address; a wrong key shows what the service says, and no key."""
    assert run(["bench", "serve", "http://127.0.0.1:9", "--protocol", "tei-embed"]) == 1
    assert "no answer from 127.0.0.1:9" in capsys.readouterr().err
    with PretendedUpstream(key="right") as locked, pytest.raises(TonnageError, match=r"http 401 .*wrong key"):
        tonnage.bench_serve(locked.url, BenchServeOptions(protocol="tei-embed"))


@pytest.mark.parametrize(
    "url", ["localhost:80", "ftp://x", "http://", "http://me:pw@x", "http://x:port", "http://x?a=1"]
)
def test_addresses_that_are_none(url: str) -> None:
    """Refused before anything is sent; a password is not repeated."""
    with pytest.raises(InputError) as fault:
        read_endpoint(url)
    assert "pw" not in str(fault.value)


def test_no_header_smuggles_another() -> None:
    """A line break in a header's value is refused."""
    with pytest.raises(ValueError, match="line break"):
        request_bytes(read_endpoint("http://x"), "/", b"", {"Authorization": "Bearer a\r\nX: y"})


def test_a_stream_is_read_whatever_its_pieces() -> None:
    """Events cut anywhere, errors inside, ends without `[DONE]`."""
    events = (
        b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
        b'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}\n\n'
        b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\n'
    )
    for size in (1, 7, 1000):
        reader = TimedStreamReader()
        for place in range(0, len(events), size):
            reader.feed(events[place : place + size], float(place))
        assert (len(reader.pieces_s), reader.ended, reader.fault) == (2, True, "")
        assert (reader.usage.input_tokens, reader.usage.output_tokens) == (3, 2)
    broken = TimedStreamReader()
    broken.feed(b"data: {\n", 0.0)
    assert broken.fault == "rubbish in stream"


def test_the_page_names_the_client_that_was_late(
    upstream: PretendedUpstream, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that is void ends with exit 1, keeps no rows and says why, in every form."""
    words = ["bench", "serve", upstream.url, "--protocol", "tei-embed", "--rate", "60", "--duration", "400ms"]
    assert run([*words, "--most-late", "0.001ms", "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == []
    assert "the client was too slow" in found["void"]
