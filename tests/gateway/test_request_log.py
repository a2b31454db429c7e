"""The request log: what stands in it, what does not, and what happens where it cannot be written."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import (
    GatewayHarness,
    Scripted,
    chat,
    event,
    hang_up,
    play,
    said,
    silence,
    streamed,
    whole,
    words,
)

import tonnage
from tonnage.errors import DataError, InputError
from tonnage.gateway.file.kept_entries import RequestLogEntry
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.observing.observer import Observer
from tonnage.gateway.observing.record import RequestRecord
from tonnage.gateway.observing.redaction import redacted
from tonnage.gateway.observing.request_log import LogFiles, RequestLogWriter, log_files

PRICE = {"input_usd_per_million": 1, "output_usd_per_million": 2}


def made_log(folder: Path, measures: GatewayMeasures | None = None, said: list[str] | None = None, **keys: Any) -> Any:
    entry = RequestLogEntry.model_validate({"folder": str(folder / "log"), **keys})
    return RequestLogWriter(entry, measures or GatewayMeasures(), (said if said is not None else []).append, seed=1)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in log_files(folder / "log") for line in path.read_text().splitlines()]


def count(measures: GatewayMeasures, result: str) -> float:
    return measures.cell("tonnage_gateway_log_total", (("result", result),))[0]


def test_a_line_for_each_request(tmp_path: Path) -> None:
    """Answered, retried, refused, from the cache, turned away: who asked, where it went, what it took and cost."""

    async def scenario() -> None:
        keys = {"web": {"key": "env:KEY_A", "team": "web"}}
        async with (
            Scripted(hang_up, always=said()) as one,
            Scripted(streamed(*words(2)), always=said()) as other,
            GatewayHarness(
                tmp_path, {"a": one, "b": other}, route={"cache": {}}, keys=keys, budgets=[{"usd": 0.01}]
            ) as harness,
        ):
            harness.handler.observer = Observer(made_log(tmp_path, harness.measures))
            await harness.ask(chat(stream=True), authorization="Bearer secret-a")
            for _ in range(2):
                await harness.ask(chat(temperature=0), authorization="Bearer secret-a")
            await harness.ask(chat(max_tokens=9000), authorization="Bearer secret-a")
            await harness.ask(chat(), authorization="Bearer wrong")
            harness.handler.observer.close()
            assert count(harness.measures, "written") == 5
            rows = await harness.rows()
        found = lines(tmp_path)
        stream, first, again, refused, away = found
        assert [one["status"] for one in found] == [200, 200, 200, 429, 401]
        assert [one["deployment"] for one in stream["attempts"]] == ["a", "b"]
        assert [one["outcome"] for one in stream["attempts"]][1] == "ok"
        assert (stream["key"], stream["team"], stream["route"], stream["stream"]) == ("web", "web", "chat", True)
        assert (stream["input_tokens"], stream["output_tokens"], stream["cache"]) == (7, 4, None)
        assert 0 < stream["first_byte_s"] <= stream["latency_s"]
        assert (first["cache"], again["cache"], again["usd_pico"], again["deployment"]) == ("miss", "hit", 0, None)
        assert refused["refused"] == "insufficient_quota"
        assert refused["limit"].startswith("usd/")
        assert (away["refused"], away["key"], away["route"]) == ("invalid_api_key", "none", None)
        assert {one["request"] for one in found[:2]} == {one["request"] for one in rows}
        assert sum(one["usd_pico"] for one in rows) <= sum(one["usd_pico"] for one in found)
        assert all("body" not in one for one in found)
        assert all(path.stat().st_mode & 0o077 == 0 for path in log_files(tmp_path / "log"))

    play(scenario())


def test_bodies_without_secrets(tmp_path: Path) -> None:
    """Asked for, bodies are kept without keys and addresses, also where a stream spreads one over its events."""

    async def scenario() -> None:
        pieces = ("My key is sk-abcdef", "ghijklmnopqrstuvw, ", "write to jo@", "example.org")
        events = [event({"choices": [{"index": 0, "delta": {"content": one}}]}) for one in pieces]
        async with (
            Scripted(streamed(*events, event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 9}}),
                              event(b"[DONE]")), always=said("call +49 170 1234567")) as one,
            GatewayHarness(tmp_path, {"a": one}) as harness,
        ):  # fmt: skip
            harness.handler.observer = Observer(made_log(tmp_path, bodies=True))
            text = "I am ann@example.com, AKIAIOSFODNN7EXAMPLE"
            await harness.ask(json.dumps(chat(text, stream=True)).replace("@", "\\u0040").encode())
            await harness.ask(chat("x" * 40_000))
            harness.handler.observer.close()

    play(scenario())
    first, long = lines(tmp_path)
    assert first["answer"] == "My key is [key], write to [e-mail]"
    assert "I am [e-mail], [key]" in first["body"]
    assert len(long["body"]) == 16_000
    assert "call [phone]" in long["answer"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"api_key": "abc12345678"}', '{"api_key": "[secret]"}'),
        ("Authorization: Bearer abcDEF123456789", "Authorization: Bearer [secret]"),
        ("my password is hunter2hunter2", "my password is [secret]"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2ln", "[token]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc", "[private key]"),
        ("card 4111 1111 1111 1111.", "card [card]."),
        ("order 4111 1111 1111 1112", "order 4111 1111 1111 1112"),
        ("DE89 3704 0044 0532 0130 00", "[account]"),
        ("a\\u0040b.org", "[e-mail]"),
        ('"url": "data:image/png;base64,iVBORw0KGgo="', '"url": "[data]"'),
        ('"max_tokens": 1234567890, "p": 0.123456789', '"max_tokens": 1234567890, "p": 0.123456789'),
        ("ssn 078-05-1120", "ssn [social security number]"),
    ],
)  # fmt: skip
def test_what_is_taken_out(text: str, left: str) -> None:
    """By its shape; numbers that only look like cards stay."""
    assert redacted(text) == left


def test_redaction_takes_time_in_proportion() -> None:
    """Of hostile texts four times as long take far less than sixteen times the processor time: no pattern looks at a
    text again and again."""

    def least_s(text: str) -> float:
        taken = []
        for _ in range(3):
            begun = time.process_time()
            redacted(text)
            taken.append(time.process_time() - begun)
        return min(taken)

    for part, end in (("a", ""), ("1 ", ""), ("a.", "@"), ("token ", ""), ("AB12 ", ""), ("+1 ", "")):
        short, long = (least_s(part * (size // len(part)) + end) for size in (8_000, 32_000))
        assert long < 10 * max(short, 1e-3), part


def record(status: int = 200) -> RequestRecord:
    made = RequestRecord("chat", request="r", caller=None, route="chat", asked=None, began_s=0.0, body_bytes=None)
    made.status = status
    return made


def test_a_sample_keeps_all_that_failed(tmp_path: Path) -> None:
    """Each line says which share of its kind is kept, so that counts can be had back."""
    measures = GatewayMeasures()
    log = made_log(tmp_path, measures, sample_percent=25.0)
    for number in range(400):
        log.put(record(500 if number % 40 == 0 else 200))
    log.close()
    found = lines(tmp_path)
    failed = [one for one in found if one["status"] == 500]
    assert len(failed) == 10
    assert {one["sample"] for one in failed} == {1.0}
    assert 60 < len(found) - 10 < 140
    assert {one["sample"] for one in found if one["status"] == 200} == {0.25}
    assert count(measures, "left-out") + count(measures, "written") == 400


def test_files_end_and_the_oldest_go(tmp_path: Path) -> None:
    """By size and by age; what is kept stays within its bounds, and a file that another worker writes is left."""
    now = [1e9]
    files = LogFiles(tmp_path, file_bytes=100, file_age_s=60, keep_bytes=350, keep_s=1e9, now=lambda: now[0])
    other = LogFiles(tmp_path, file_bytes=1000, file_age_s=60, keep_bytes=350, keep_s=1e9, now=lambda: now[0] - 1)
    other.write([b"x" * 50 + b"\n"])
    (first,) = log_files(tmp_path)
    for _ in range(10):
        now[0] += 1
        files.write([b"y" * 24 + b"\n"] * 4)
    assert first.exists()
    assert sum(one.stat().st_size for one in log_files(tmp_path)) <= 350
    now[0] += 100
    files.write([b"z\n"])
    files.write([b"z\n"])
    assert log_files(tmp_path)[-1].read_bytes() == b"z\nz\n"
    files.close()
    other.close()
    LogFiles(tmp_path, file_bytes=100, file_age_s=60, keep_bytes=350, keep_s=10).tidy()
    assert log_files(tmp_path)  # written this second, by the clock of the disk
    LogFiles(tmp_path, file_bytes=100, file_age_s=60, keep_bytes=350, keep_s=10, now=lambda: 4e9).tidy()
    assert not log_files(tmp_path)


def test_a_full_disk_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are lost, counted and said once; no half of a line stays; with room again they are written again."""
    measures, told = GatewayMeasures(), list[str]()
    log = made_log(tmp_path, measures, told)
    write, full = os.write, [True]

    def written(file: int, data: bytes) -> int:
        if full[0] and len(data) > 10 and os.readlink(f"/proc/self/fd/{file}").endswith(".jsonl"):
            if len(data) < 300:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(file, data[:-200])
        return write(file, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", written)
        for _ in range(2):
            log.put(record())
            log._beside.hand_on()
        assert count(measures, "lost") == 2
        assert len(told) == 1
        assert "No space left" in told[0]
        full[0] = False
        log.put(record())
        log._beside.hand_on()
    assert count(measures, "written") == 1
    assert len(told) == 2
    log.close()
    assert len(lines(tmp_path)) == 1


def test_a_writer_that_cannot_keep_up_loses_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is bounded, and what is lost is counted."""
    monkeypatch.setattr("tonnage.gateway.observing.request_log.MOST_WAITING_BYTES", 5000)
    measures = GatewayMeasures()
    log = made_log(tmp_path, measures)
    log._beside._stop.set()
    log._beside._thread.join()
    for _ in range(20):
        log.put(record())
    assert count(measures, "not-kept-up") == 15
    log._beside.hand_on()
    assert count(measures, "written") == 5
    log.put(record())
    assert count(measures, "not-kept-up") == 15


def written(folder: Path, **keys: Any) -> Path:
    path = folder / "gateway.yaml"
    deployments = {"a": {"url": "http://127.0.0.1:1/v1", "model": "m", "price": PRICE}}
    path.write_text(json.dumps({"deployments": deployments, "routes": {"chat": {"deployments": ["a"]}},
                                "store": str(folder / "accounts.db"), **keys}))  # fmt: skip
    return path


def test_the_file_says_where_and_how_much(tmp_path: Path) -> None:
    """The folder is taken from the file's place; bounds that cannot hold are refused."""
    found = tonnage.check_gateway(written(tmp_path, request_log={"folder": "log"})).found
    assert found.request_log is not None
    assert found.request_log.folder == str(tmp_path / "log")
    with pytest.raises(InputError, match="less than a file for each worker and one more"):
        tonnage.check_gateway(written(tmp_path, request_log={"keep_mb": 100}))
    with pytest.raises(InputError, match="at most 100"):
        tonnage.check_gateway(written(tmp_path, request_log={"sample_percent": 101}))


def test_simulate_reads_the_log(tmp_path: Path) -> None:
    """Its folder or a file of it: refused ones are counted apart, a torn end is none, speeds are those it measured."""

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as one,
            GatewayHarness(tmp_path, {"a": one}, budgets=[{"usd": 0.01}]) as harness,
        ):
            harness.handler.observer = Observer(made_log(tmp_path))
            for most in (10, 10, 9000):
                await harness.ask(chat(max_tokens=most))
            harness.handler.observer.close()

    play(scenario())
    path = written(tmp_path, store=str(tmp_path / "none.db"))
    (log,) = log_files(tmp_path / "log")
    with log.open("a") as file:
        file.write('{"at_s": 1')
    for place in (tmp_path / "log", log):
        found = tonnage.simulate_gateway(path, place).found
        assert (found.requests, found.left_out, found.share) == ({"a": 2}, 1, 1.0)
        assert found.usd_pico == {"a": 2 * (7 * 1_000_000 + 4 * 2_000_000)}
        assert len(found.latencies_s) == 2
    with pytest.raises(DataError, match="has no file of a request log"):
        tonnage.simulate_gateway(path, tmp_path)


def test_simulate_follows_fallbacks(tmp_path: Path) -> None:
    """A request that a full deployment cannot take goes to the next route, within the regions of its rule."""
    one = {"url": "http://127.0.0.1:1/v1", "model": "m", "price": PRICE}
    path = written(
        tmp_path, deployments={"small": one | {"at_once": 1, "first_byte_ms": 5000, "region": "eu"},
                               "large": one | {"region": "us"}},
        routes={"chat": {"deployments": ["small"], "fallback": "more",
                         "rules": [{"teams": "eu", "deployments": "small", "regions": ["eu"]}]},
                "more": {"deployments": ["large"]}},
        keys={"a": {"key": "blake2b:" + "0" * 64, "team": "eu"}},
    )  # fmt: skip
    log = tmp_path / "log.csv"
    log.write_text("at_s,key,route,input_tokens,output_tokens\n" + "0,x,chat,10,1\n" * 3 + "0,a,chat,10,1\n")
    found = tonnage.simulate_gateway(path, log).found
    assert (found.requests, found.unserved) == ({"small": 1, "large": 2}, 1)


def test_a_client_that_left_has_a_line(tmp_path: Path) -> None:
    """A request whose client closed before an answer: status 0."""

    async def scenario() -> None:
        from tests.gateway.harness import spoken

        async with (
            Scripted(always=silence) as one,
            GatewayHarness(tmp_path, {"a": one}, a={"timeouts": {"first_byte": "200ms"}}) as harness,
        ):
            harness.handler.observer = Observer(made_log(tmp_path))
            _, writer = await spoken(harness.port, chat())
            while not one.seen:
                await door_turn()
            writer.close()
            while not harness.handler.observer.log._beside._waiting:
                await door_turn()
            harness.handler.observer.close()

    async def door_turn() -> None:
        import asyncio

        await asyncio.sleep(0.005)

    play(scenario())
    (found,) = lines(tmp_path)
    assert found["status"] == 0
    assert found["attempts"][0]["outcome"] == "first-byte"


def test_without_a_log_nothing_is_kept(tmp_path: Path) -> None:
    """No file, no thread, no record."""

    async def scenario() -> None:
        async with Scripted(always=whole({"choices": []})) as one, GatewayHarness(tmp_path, {"a": one}) as harness:
            assert harness.handler.observer is None
            await harness.ask()

    play(scenario())
    assert not (tmp_path / "log").exists()


def test_a_worker_follows_a_changed_log(tmp_path: Path) -> None:
    """A reload begins and ends it; what is the same goes on; a folder that cannot be made leaves the old file."""
    from tests.gateway.test_operations import described, made, page

    worker = made(tmp_path, request_log={"folder": "log"})
    first = worker.handler.observer
    assert first is not None

    async def scenario() -> None:
        worker.reload(described(tmp_path, request_log={"folder": "log"}, log_days=3))
        assert worker.handler.observer is first
        (tmp_path / "file").write_text("")
        worker.reload(described(tmp_path, request_log={"folder": "file/log"}))
        assert worker.handler.observer is first
        assert 'tonnage_gateway_reloads_total{result="refused"} 1' in page(worker)
        worker.reload(described(tmp_path))
        assert worker.handler.observer is None

    play(scenario())
    assert first.log is not None
    first.log._beside._thread.join(5)
    assert not first.log._beside._thread.is_alive()
