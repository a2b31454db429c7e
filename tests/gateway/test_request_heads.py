"""A head that came before is known again only where it parses to the same."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.gateway.harness import USAGE, GatewayHarness, Scripted, chat, play, said

from tonnage.gateway.proxy.request_heads import MOST_TRIES, LastHead, RequestHead
from tonnage.gateway.proxy.running import Running
from tonnage.gateway.signing import make_signer

LINES = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nX-Some: thing\r\n\r\n%b"
HEADERS = [(b"host", b"x"), (b"content-length", b"2"), (b"x-some", b"thing")]
MOST_BYTES = 1000


def head(headers: list[tuple[bytes, bytes]] | None = None, *, keep: bool = True) -> RequestHead:
    return RequestHead(b"POST", b"/v1/chat/completions?a=b", headers or HEADERS, keep=keep, old=False)


def remembered(data: bytes = LINES % (2, b"{}"), body_bytes: int = 2, found: RequestHead | None = None) -> LastHead:
    last = LastHead()
    last.remember(found or head(), data, body_bytes)
    return last


def test_the_same_lines_are_known_with_another_body() -> None:
    """Only the digits of the content-length may differ; head and body are what the parser would give."""
    one = head()
    last = LastHead()
    last.remember(one, LINES % (2, b"{}"), 2)
    assert last.matched(LINES % (5, b"hello"), MOST_BYTES) == (one, b"hello")
    assert (one.path, one.query) == ("/v1/chat/completions", b"a=b")


@pytest.mark.parametrize(
    "data",
    [
        LINES % (5, b"hell"),  # more is to come
        LINES % (5, b"hello") + b"POST / HTTP/1.1\r\n",  # another request behind it
        (LINES % (5, b"hello")).replace(b"5", b"+5"),
        (LINES % (5, b"hello")).replace(b"5", b" 5 "),
        (LINES % (5, b"hello")).replace(b"5", b"5\r\nTransfer-Encoding: chunked"),
        (LINES % (5, b"hello")).replace(b"thing", b"other"),
        (LINES % (5, b"hello")).replace(b"POST", b"PUT"),
        LINES % (1001, b"a" * 1001),  # above the limit: the parser refuses it
        b"",
    ],
)
def test_whatever_differs_is_parsed(data: bytes) -> None:
    """Anything but a whole request with the same lines goes to the parser."""
    assert remembered().matched(data, MOST_BYTES) is None


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (LINES % (2, b"{}"), head([*HEADERS, (b"transfer-encoding", b"chunked")])),
        (LINES % (2, b"{}"), head([*HEADERS, (b"expect", b"100-continue")])),
        (LINES % (2, b"{}"), head(keep=False)),
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n{}", None),
        ((LINES % (2, b"{}")).replace(b"X-Some: thing", b"Content-Length: 2"), None),
    ],
    ids=["chunked", "expects", "closes", "no length", "two lengths"],
)
def test_what_frames_itself_otherwise_is_never_remembered(data: bytes, found: RequestHead | None) -> None:
    """A connection whose bodies are framed otherwise, or which ends, is parsed each time."""
    assert remembered(data, found=found).matched(data, MOST_BYTES) is None


def test_a_connection_of_changing_heads_is_given_up() -> None:
    """After a few heads that never came again nothing more is spent on remembering."""
    last = LastHead()
    for number in range(MOST_TRIES + 1):
        data = (LINES % (2, b"{}")).replace(b"thing", b"%d" % number)
        last.remember(head(), data, 2)
    assert last.matched(data, MOST_BYTES) is None


def test_a_key_that_goes_is_refused_on_a_known_connection(tmp_path: Path) -> None:
    """What was found for a head holds under one configuration: after a reload without its key the caller gets 401."""

    async def scenario() -> None:
        keys = {"me": {"key": "env:KEY_A", "team": "a"}}
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}, keys=keys) as harness:
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            statuses = []
            for turn in range(4):
                if turn == 3:
                    (caller,) = harness.gateway.callers.values()
                    other = replace(harness.gateway, callers={"blake2b:0": caller})
                    harness.handler.follow(Running(other, harness.measures, make_signer, harness.running))
                body = json.dumps(chat("hello " * (turn + 1))).encode()
                lines = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret-a\r\n"
                writer.write(f"{lines}content-length: {len(body)}\r\n\r\n".encode() + body)
                found = (await reader.readuntil(b"\r\n\r\n")).lower()
                statuses.append(int(found.split()[1]))
                await reader.readexactly(int(found.split(b"content-length: ")[1].split(b"\r\n")[0]))
            writer.close()
            assert statuses == [200, 200, 200, 401]
            assert len(up.seen) == 3

    play(scenario())


def test_an_answer_with_more_behind_it_ends_its_connection(tmp_path: Path) -> None:
    """A second answer that nobody asked for reaches no client, neither of this request nor of the next."""

    async def twice(writer: asyncio.StreamWriter) -> None:
        for text in ("mine", "stolen"):
            data = json.dumps({"choices": [{"message": {"content": text}}], "usage": USAGE}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data))

    async def scenario() -> None:
        async with Scripted(twice, twice, always=said("later")) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            bodies = [(await harness.ask()).body for _ in range(3)]
            assert [b"stolen" in one for one in bodies] == [False] * 3
            assert [b"mine" in one for one in bodies] == [True, True, False]

    play(scenario())
