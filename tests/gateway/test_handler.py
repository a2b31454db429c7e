"""The gateway: who may ask, what is read, what is refused, and in whose words."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import GatewayHarness, Scripted, chat, play, said, streamed, until, whole, words

pytestmark = pytest.mark.usefixtures("both_ways")


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "JSON object"),
        (b'{"messages":[]}', 400, "must name a route"),
        (chat(model="chatt"), 404, "did you mean 'chat'?"),
        (chat(max_tokens=0), 400, "1 or more"),
        (chat(stream="yes"), 400, "true or false"),
        (chat(n=0), 400, "1 to 1024"),
        (b'{"model":"\xff"}', 400, "not JSON"),
        (b" " * 200_000, 413, "at most 100000 bytes"),
    ],
)
def test_bad_bodies(tmp_path: Path, body: Any, status: int, told: str) -> None:
    """Refused in OpenAI's shape; nothing is sent on."""

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as up,
            GatewayHarness(tmp_path, {"a": up}, listen={"body_mb": 0.1}) as harness,
        ):
            answer = await harness.ask(body)
            assert answer.status == status
            error = json.loads(answer.body)["error"]
            assert told in error["message"]
            assert not up.seen
            assert (await harness.ask()).status == 200

    play(scenario())


def test_keys(tmp_path: Path) -> None:
    """No key, a wrong one, one that has expired, one in an address, a route that it may not use."""

    async def scenario() -> None:
        keys = {
            "a": {"key": "env:KEY_A", "routes": ["other"]},
            "b": {"key": "env:KEY_B", "expires": "2020-01-01"},
        }
        async with (
            Scripted(always=said()) as up,
            GatewayHarness(tmp_path, {"x": up}, keys=keys, more={"other": {"deployments": ["x"]}}) as harness,
        ):
            assert (await harness.ask()).status == 401
            assert (await harness.ask(authorization="Bearer no")).status == 401
            assert b"expired" in (await harness.ask(authorization="Bearer secret-b")).body
            assert (await harness.ask(path="/v1/chat/completions?api_key=secret-a")).status == 401
            assert (await harness.ask(authorization="Bearer secret-a")).status == 404
            allowed = await harness.ask(chat(model="other"), x_api_key="secret-a")
            assert allowed.status == 200
            assert "secret" not in "".join(up.heads)

    play(scenario())


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n"
        b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n",
    ],
)
def test_smuggling_and_monsters(tmp_path: Path, raw: bytes) -> None:
    """Refused with 4xx, and the connection closes."""

    async def scenario() -> None:
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            writer.write(raw)
            answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 4")
            assert not up.seen

    play(scenario())


def test_a_client_that_trickles_is_let_go(tmp_path: Path) -> None:
    """Headers that never end close the connection after ten seconds, which the sweep is told."""

    async def scenario() -> None:
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
            await until(lambda: harness.server.connections)
            await asyncio.sleep(0.05)
            (connection,) = harness.server.connections
            connection.check(connection._since_s + 9)
            assert connection.transport is not None
            connection.check(connection._since_s + 11)
            assert await reader.read() == b""
            writer.close()

    play(scenario())


def test_requests_sent_ahead_are_answered_in_turn(tmp_path: Path) -> None:
    """Three requests in one write, the second of them chunked, with HEAD and GET between."""

    async def scenario() -> None:
        body = json.dumps(chat()).encode()
        first = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        chunked = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
            b"5\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (body[:5], len(body) - 5, body[5:])
        )
        last = b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        async with Scripted(said("one"), said("two")) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            writer.write(first + chunked + last)
            answer = await reader.read()
            writer.close()
            assert answer.index(b"one") < answer.index(b"two") < answer.index(b'"owned_by"')
            assert len(up.seen) == 2

    play(scenario())


def test_bytes_pass_as_they_are(tmp_path: Path) -> None:
    """All of the body but the model's name, and all of the answer, byte for byte; also where the name stands twice."""

    async def scenario() -> None:
        answer = b'{"choices": [],  "x": 1.10, "usage": {"prompt_tokens": 1, "completion_tokens": 0}}'
        async with Scripted(always=whole(answer)) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            sent = b'{ "x": 1.10,  "model" : "chat", "max_tokens":5, "messages": [{"content":"\\u00e9"}] }'
            assert (await harness.ask(sent)).body == answer
            assert up.raw[0] == sent.replace(b'"model" : "chat"', b'"model":"upstream-model"')
            await harness.ask(chat(metadata={"model": "chat"}))
            assert (up.seen[1]["model"], up.seen[1]["metadata"]) == ("upstream-model", {"model": "chat"})

    play(scenario())


def test_output_that_nobody_stated(tmp_path: Path) -> None:
    """Without max_tokens under a budget the upstream is told what can be paid for, and the client what it was told."""

    async def scenario() -> None:
        body = chat()
        del body["max_tokens"]
        async with (
            Scripted(always=said()) as up,
            GatewayHarness(
                tmp_path, {"a": up}, budgets=[{"usd": 0.001, "per": "ever"}], a={"max_output_tokens": 100_000}
            ) as harness,
        ):
            answer = await harness.ask(body)
            told = int(answer.header("x-tonnage-max-tokens") or 0)
            inputs = len(json.dumps(body)) + 512
            assert told == (1000 - inputs) // 2  # micro-dollars, at 1 and 2 a token
            assert up.seen[0]["max_completion_tokens"] == told
        async with (
            Scripted(always=said()) as up,
            GatewayHarness(tmp_path, {"a": up}, route={"max_tokens": 9}) as harness,
        ):
            await harness.ask(body)
            assert up.seen[0]["max_completion_tokens"] == 9

    play(scenario())


def test_own_first_overflows_to_tokens(tmp_path: Path) -> None:
    """An own machine that is full sends the next request to tokens, at once."""

    async def scenario() -> None:
        own = {"usd_per_hour": 1, "input_tokens_per_s": 1000, "output_tokens_per_s": 100}
        slow = streamed(*words(3), pause_s=0.1)
        async with (
            Scripted(always=slow) as mine,
            Scripted(always=said()) as bought,
            GatewayHarness(
                tmp_path,
                {"mine": mine, "bought": bought},
                mine={"own": own, "price": None, "at_once": 1},
                route={"policy": "own-first"},
            ) as harness,
        ):
            first = asyncio.ensure_future(harness.ask(chat(stream=True)))
            await until(lambda: mine.seen)
            second = await harness.ask()
            assert second.header("x-tonnage-deployment") == "bought"
            assert (await first).header("x-tonnage-deployment") == "mine"
            third = await harness.ask(chat(stream=True))
            assert third.header("x-tonnage-deployment") == "mine"

    play(scenario())


def test_fallback_routes_and_dear_requests(tmp_path: Path) -> None:
    """Another route takes over where all deployments of the first failed; a request over its limit is refused."""

    async def scenario() -> None:
        async with (
            Scripted(always=whole({}, 500)) as bad,
            Scripted(always=said()) as well,
            GatewayHarness(
                tmp_path,
                {"a": bad, "b": well},
                route={"deployments": ["a"], "fallback": "other"},
                more={"other": {"deployments": ["b"], "most_usd_per_request": 0.001}},
            ) as harness,
        ):
            assert (await harness.ask()).header("x-tonnage-deployment") == "b"
            refused = await harness.ask(chat(model="other", max_tokens=1000))
            assert refused.status == 400
            assert "the route other allows 0.001" in refused.body.decode()

    play(scenario())


def test_a_fallback_keeps_to_the_regions_of_the_rule(tmp_path: Path) -> None:
    """A request that must be computed in one region is not taken elsewhere by another route."""

    async def scenario() -> None:
        async with (
            Scripted(always=whole({}, 500)) as bad,
            Scripted(always=said()) as us,
            Scripted(always=said()) as eu,
            GatewayHarness(
                tmp_path,
                {"a": bad, "us": us, "eu": eu},
                route={
                    "deployments": ["a"],
                    "fallback": "other",
                    "rules": [{"input_tokens_above": 1, "deployments": ["a"], "regions": ["eu"]}],
                },
                more={"other": {"deployments": ["us", "eu"]}},
                a={"region": "eu"},
                us={"region": "us"},
                eu={"region": "eu"},
            ) as harness,
        ):
            assert (await harness.ask()).header("x-tonnage-deployment") == "eu"
            assert not us.seen

    play(scenario())


def test_a_reload_keeps_what_is_under_way(tmp_path: Path) -> None:
    """A stream that has begun goes on; the next request follows the new file; health of equal deployments stays."""

    async def scenario() -> None:
        from tonnage.gateway.proxy.running import Running
        from tonnage.gateway.signing import make_signer

        async with (
            Scripted(always=streamed(*words(5), pause_s=0.05)) as up,
            GatewayHarness(tmp_path, {"a": up}) as harness,
        ):
            begun = asyncio.ensure_future(harness.ask(chat(stream=True)))
            await until(lambda: up.seen)
            before = harness.running
            harness.handler.running = Running(harness.gateway, harness.measures, make_signer, before)
            before.retire(harness.handler.running.upstreams)
            assert harness.handler.running.healths["a"] is before.healths["a"]
            answer = await begun
            assert answer.body.endswith(b"[DONE]\n\n")

    play(scenario())
