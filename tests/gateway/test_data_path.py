"""The data path, by faults that a reader found: what goes over the wire is counted, and nothing else goes."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import (
    USAGE,
    GatewayHarness,
    Scripted,
    chat,
    event,
    hang_up,
    late,
    play,
    said,
    silence,
    spoken,
    streamed,
    until,
    words,
)

from tonnage.http.connection import UpstreamFault, UpstreamTimeouts
from tonnage.http.upstream import Upstream

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"


async def heard(port: int, body: Any, path: bytes = b"/v1/chat/completions") -> bytes:
    """All that the gateway says, to the end of the connection."""
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = HEAD.replace(b"/v1/chat/completions", path) + b"connection: close\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % len(data) + data)
    answer = await reader.read()
    writer.close()
    return answer


def test_a_connection_that_closes_is_not_asked_again_in_silence(tmp_path: Path) -> None:
    """Four kept connections, each closed at the next request: one attempt, one row, which may have been billed."""

    async def scenario() -> None:
        async with (
            Scripted(*[late(said(), 0.05)] * 4, always=hang_up) as up,
            GatewayHarness(tmp_path, {"a": up}, route={"retry": {"attempts": 1}}) as harness,
        ):
            await asyncio.gather(*(harness.ask() for _ in range(4)))
            assert (await harness.ask()).status == 502
            assert len(up.seen) == 5
            assert harness.handler.uncertain == 1
            harness.handler.settle_uncertain()
            row = (await harness.rows())[-1]
            assert (row["outcome"], row["estimated"]) == ("closed", 1)
            assert row["usd_pico"] > 0

    play(scenario())


def test_kept_connections_that_were_closed_are_left_out() -> None:
    """Closed while nothing was under way: found before the request is written, which goes out once, on a new one."""

    async def scenario() -> None:
        async with Scripted(said(), always=said()) as up:
            upstream = Upstream.at("127.0.0.1", int(up.url.split(":")[2].split("/")[0]))
            answer = await upstream.ask("POST", b"/", (), b"{}")
            while await answer.read() is not None:
                pass
            (kept,) = upstream._idle
            kept._idle_since_s -= 1.0
            assert kept.usable()
            for one in up._clients:
                one.cancel()
            kept._transport.pause_reading()  # type: ignore[union-attr]  # the event loop is late
            await asyncio.sleep(0.01)
            assert kept in upstream._idle
            again = await upstream.ask("POST", b"/", (), b"{}")
            assert again is not kept
            while await again.read() is not None:
                pass
            assert len(up.seen) == 2
            upstream.close()

    play(scenario())


def test_a_dead_connection_is_not_kept() -> None:
    """The service closes after its answer, before the answer was read: nobody gets that connection again."""

    async def scenario() -> None:
        async def once(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            writer.close()

        async with Scripted(always=once) as up:
            upstream = Upstream.at("127.0.0.1", int(up.url.split(":")[2].split("/")[0]))
            answer = await upstream.ask("POST", b"/", (), b"{}")
            await asyncio.sleep(0.02)
            assert [await answer.read(), await answer.read()] == [b"{}", None]
            assert not upstream._idle
            with pytest.raises(UpstreamFault) as fault:
                await answer.begin(b"", "POST")
            assert not fault.value.sent

    play(scenario())


def test_each_wait_has_its_own_time() -> None:
    """Pieces that come in time are read, though all of them take longer than one may; then silence is a fault."""

    async def scenario() -> None:
        async def trickle(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
            for _ in range(4):
                await asyncio.sleep(0.17)
                writer.write(b"x")
            await silence(writer)

        async with Scripted(trickle) as up:
            upstream = Upstream.at("127.0.0.1", int(up.url.split(":")[2].split("/")[0]))
            upstream.timeouts = UpstreamTimeouts(first_byte_s=60.0, between_s=0.6)
            answer = await upstream.ask("POST", b"/", (), b"{}")
            assert [await answer.read() for _ in range(4)] == [b"x"] * 4
            with pytest.raises(UpstreamFault, match=r"nothing came for 0\.6 s") as fault:
                await answer.read()
            assert fault.value.kind == "silence"

    play(scenario())


def test_no_retries_for_a_client_that_left(tmp_path: Path) -> None:
    """It leaves while the first attempt is under way, which fails: nothing more is sent."""
    gone = asyncio.Event()

    async def then_hang_up(writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        await hang_up(writer)

    async def scenario() -> None:
        async with (
            Scripted(always=then_hang_up) as up,
            GatewayHarness(tmp_path, {"a": up}, route={"retry": {"attempts": 5}}) as harness,
        ):
            _, writer = await spoken(harness.port, chat())
            await until(lambda: up.seen)
            writer.close()
            await asyncio.sleep(0.05)
            gone.set()
            await until(lambda: harness.handler.uncertain)
            await asyncio.sleep(0.1)
            assert len(up.seen) == 1
            assert harness.book.open_holds == harness.handler.uncertain == 1

    play(scenario())


@pytest.mark.parametrize("framing", [b"content-length: 9000000\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n"])
def test_a_body_that_is_too_large_is_answered(tmp_path: Path, framing: bytes) -> None:
    """413 reaches a client that sends everything before it reads, announced or not."""
    chunked = b"chunked" in framing
    body = b"%x\r\n%b\r\n0\r\n\r\n" % (9_000_000, b"x" * 9_000_000) if chunked else b"x" * 9_000_000

    def send(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(HEAD + framing + body)
            client.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: client.recv(4096), b""))

    async def scenario() -> None:
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}, listen={"body_mb": 1}) as harness:
            answer = await asyncio.to_thread(send, harness.port)
            assert answer.startswith(b"HTTP/1.1 413")
            assert b"at most 1000000 bytes" in answer

    play(scenario())


def test_a_refusal_waits_for_the_answer_before_it(tmp_path: Path) -> None:
    """What is sent ahead of garbage is still answered, then the garbage is refused."""

    async def scenario() -> None:
        async with Scripted(late(said("first"), 0.05)) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            reader, writer = await spoken(harness.port, chat())
            writer.write(b"GARBAGE\r\n\r\n")
            answer = await reader.read()
            writer.close()
            assert answer.index(b"first") < answer.index(b"no HTTP request")

    play(scenario())


def test_trailers_are_no_headers(tmp_path: Path) -> None:
    """A key in a trailer lets nobody in, and a length in it is not one of the request's."""
    body = b'{"model":"chat","max_tokens":1,"messages":[]}'
    chunked = b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(body), body)

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as up,
            GatewayHarness(tmp_path, {"a": up}, keys={"k": {"key": "env:KEY_A"}}) as harness,
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            writer.write(HEAD + chunked + b"authorization: Bearer secret-a\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 401")
            writer.close()
            assert not up.seen

    play(scenario())


@pytest.mark.parametrize(("expect", "version", "first"), [
    (b"100-continue", b"1.1", b"HTTP/1.1 100"), (b"100-continue", b"1.0", b""), (b"a-miracle", b"1.1", b"HTTP/1.1 417"),
])  # fmt: skip
def test_expectations(tmp_path: Path, expect: bytes, version: bytes, first: bytes) -> None:
    """`100-continue` is met, not for HTTP/1.0, which does not know it; others are refused."""
    head = HEAD.replace(b"1.1", version) + b"content-length: 2\r\nexpect: " + expect + b"\r\n\r\n"

    async def scenario() -> None:
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            writer.write(head)
            try:
                line = await asyncio.wait_for(reader.readline(), 20.0 if first else 0.1)
            except TimeoutError:
                line = b""
            writer.close()
            assert line.startswith(first)
            assert bool(line) == bool(first)

    play(scenario())


def test_continue_is_not_said_inside_an_earlier_answer(tmp_path: Path) -> None:
    """The second request's client is told to go on once the first one is answered."""

    async def scenario() -> None:
        async with Scripted(late(said("first"), 0.05)) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            reader, writer = await spoken(harness.port, chat())
            writer.write(HEAD + b"content-length: 2\r\nexpect: 100-continue\r\n\r\n")
            answer = await reader.readuntil(b"100 Continue\r\n\r\n")
            writer.close()
            assert b"first" in answer

    play(scenario())


def test_ids_tell_no_host_name(tmp_path: Path) -> None:
    """What a client sees of the worker is a random name, which the ledger has too."""

    async def scenario() -> None:
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            shown = (await harness.ask()).header("x-tonnage-request-id")
            assert shown is not None
            assert socket.gethostname() not in shown
            assert [row["request"] for row in await harness.rows()] == [shown]

    play(scenario())


def test_the_end_of_a_stream_is_no_word_in_it(tmp_path: Path) -> None:
    """A text may say `data: [DONE]` or the name of a last event: a stream that breaks after it is not whole."""
    text = {"choices": [{"index": 0, "delta": {"content": "data: [DONE]", "refusal": "message_stop"}}]}

    async def scenario() -> None:
        async with (
            Scripted(streamed(event(text), cut=True), streamed(*words(2, end=False), b"data:[DONE]\r\n\r\n")) as up,
            GatewayHarness(tmp_path, {"a": up}) as harness,
        ):
            assert b"gave no whole answer" in await heard(harness.port, chat(stream=True))
            assert b"gave no whole answer" not in await heard(harness.port, chat(stream=True))
            assert [row["outcome"] for row in await harness.rows()] == ["cut", "ok"]

    play(scenario())


def test_a_garbled_stream_ends_at_both_sides(tmp_path: Path) -> None:
    """Before the first event another attempt is made; after it the client is told once, and the upstream is left."""

    async def endless(writer: asyncio.StreamWriter) -> None:
        pieces = (*words(2, None, end=False), event([1]))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces))
        await silence(writer)

    async def scenario() -> None:
        body = {"model": "chat", "max_tokens": 10, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        async with (
            Scripted(streamed(event([1])), streamed(*words(2, USAGE)), endless) as up,
            GatewayHarness(tmp_path, {"a": up}) as harness,
        ):
            answer = await harness.ask(body, "/v1/messages")
            assert b"event: message_stop" in answer.body
            assert len(up.seen) == 2
            broken = await heard(harness.port, body, b"/v1/messages")
            assert broken.count(b"event: error") == 1
            await asyncio.sleep(0.01)
            assert not harness.running.upstreams["a"]._open
            assert harness.book.open_holds == harness.handler.uncertain == 1

    play(scenario())
