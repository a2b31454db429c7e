"""The faults that users of gateways report, one test each, before scripted upstreams."""

from __future__ import annotations

import asyncio
import json
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
    whole,
    words,
)

from tonnage.gateway.money.rates import pico_usd

pytestmark = pytest.mark.usefixtures("both_ways")

COST = 7 * 10**6 + 4 * 2 * 10**6  # pico-dollars of USAGE at 1 and 2 USD a million


def test_concurrent_calls_never_pass_a_cap(tmp_path: Path) -> None:
    """A hundred at once before a cap of ten: what is settled and held never passes it, and the rest gets 429."""

    async def scenario() -> None:
        hold = (len(json.dumps(chat())) + 512) + 10 * 2  # micro-dollars of one: bytes and template in, 10 tokens out
        cap_usd = 10 * hold / 1e6
        async with (
            Scripted(always=late(said(), 0.1)) as up,
            GatewayHarness(tmp_path, {"a": up}, budgets=[{"of": "total", "usd": cap_usd, "per": "day"}]) as harness,
        ):
            answers = await asyncio.gather(*(harness.ask() for _ in range(100)))
            counted = [one.status for one in answers]
            assert set(counted) == {200, 429}
            spent = sum(row["usd_pico"] for row in await harness.rows())
            assert spent == counted.count(200) * COST <= pico_usd(cap_usd)
            assert harness.book.open_holds == 0

    play(scenario())


def test_refusals_leak_nothing(tmp_path: Path) -> None:
    """Failed, refused and finished requests give their holds back: the last dollar can be spent."""

    async def scenario() -> None:
        script = [whole({"error": {}}, 500), hang_up, whole({"error": {"message": "no"}}, 400)] * 20
        async with (
            Scripted(*script, always=said()) as up,
            GatewayHarness(
                tmp_path,
                {"a": up},
                route={"retry": {"attempts": 1}},
                limits=[{"at_once": 2}],
                budgets=[{"usd": 1}],
            ) as harness,
        ):
            for _ in range(60):
                await harness.ask()
                harness.running.healths["a"].failures = 0
            assert (await harness.ask()).status == 200
            assert harness.book.open_holds == harness.handler.uncertain == 20  # what hung up may have been computed
            harness.handler.settle_uncertain()
            assert harness.book.open_holds == 0

    play(scenario())


def test_an_attempt_is_settled_once(tmp_path: Path) -> None:
    """Settled twice it counts once."""

    async def scenario() -> None:
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}, budgets=[{"usd": 1}]) as harness:
            await harness.ask()
            rows = await harness.rows()
            assert [row["usd_pico"] for row in rows] == [COST]
            await harness.book.flush()
            await harness.book.flush()
            (state,) = await harness.book.states()
            assert state.committed == COST

    play(scenario())


def test_a_client_that_leaves_is_billed(tmp_path: Path) -> None:
    """The stream is read to its end for its usage, with nobody listening."""

    async def scenario() -> None:
        async with (
            Scripted(always=streamed(*words(20), pause_s=0.01)) as up,
            GatewayHarness(tmp_path, {"a": up}) as harness,
        ):
            reader, writer = await spoken(harness.port, chat(stream=True))
            await reader.readuntil(b"w1")
            writer.transport.abort()
            while not (rows := await harness.rows()):
                await asyncio.sleep(0.02)
            assert (rows[0]["outcome"], rows[0]["usd_pico"], rows[0]["estimated"]) == ("client-gone", COST, 0)

    play(scenario())


@pytest.mark.parametrize(
    ("usage", "pico", "estimated"),
    [({"prompt_tokens": 0, "completion_tokens": 0}, 0, 0), (None, None, 1), ({"prompt_tokens": "many"}, None, 1)],
)
def test_zero_is_a_count_and_missing_is_none(tmp_path: Path, usage: Any, pico: int | None, estimated: int) -> None:
    """Usage of zero costs nothing; where there is none, an estimate stands in and is marked."""

    async def scenario() -> None:
        async with Scripted(said(usage=usage)) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            assert (await harness.ask()).status == 200
            (row,) = await harness.rows()
            assert row["estimated"] == estimated
            assert row["usd_pico"] == pico if pico is not None else row["usd_pico"] > 0

    play(scenario())


def test_one_owner_of_retries(tmp_path: Path) -> None:
    """Two failing deployments and three attempts make three requests on the wire, not nine."""

    async def scenario() -> None:
        failing = whole({"error": {}}, 500)
        async with (
            Scripted(always=failing) as one,
            Scripted(always=failing) as other,
            GatewayHarness(tmp_path, {"a": one, "b": other}) as harness,
        ):
            assert (await harness.ask()).status == 502
            assert len(one.seen) + len(other.seen) == 3
            assert [row["outcome"] for row in await harness.rows()] == ["status-500"] * 3

    play(scenario())


def test_a_dead_primary_rests(tmp_path: Path) -> None:
    """After five failures in a row it gets no more requests, also where it is the only one."""

    async def scenario() -> None:
        async with (
            Scripted(always=hang_up) as dead,
            Scripted(always=said()) as alive,
            GatewayHarness(tmp_path, {"a": dead, "b": alive}) as harness,
        ):
            for _ in range(20):
                assert (await harness.ask()).status == 200
            assert len(dead.seen) == 5
            assert not harness.running.healths["a"].available(0.0)
        async with (
            Scripted(always=whole({}, 500)) as alone,
            GatewayHarness(tmp_path, {"a": alone}, route={"retry": {"attempts": 1}}) as harness,
        ):
            answers = [await harness.ask() for _ in range(8)]
            assert len(alone.seen) == 5
            assert answers[-1].status == 503
            assert answers[-1].header("retry-after") is not None

    play(scenario())


def test_a_busy_deployment_rests_as_it_asks(tmp_path: Path) -> None:
    """`Retry-After: 0` is asked again at once, also where it is the only one; a date is read; a silent one rests a
    little, and longer while it stays busy."""

    async def scenario() -> None:
        at_once, silent = whole({"error": {}}, 503, **{"retry-after": "0"}), whole({"error": {}}, 503)
        async with Scripted(at_once, said(), at_once, said()) as lone, GatewayHarness(tmp_path, {"a": lone}) as harness:
            answers = [await harness.ask() for _ in range(2)]
            assert [one.status for one in answers] == [200, 200]
            assert len(lone.seen) == 4
        dated = whole({"error": {}}, 429, **{"retry-after": "Fri, 01 Jan 2100 00:00:00 GMT"})
        async with Scripted(always=dated) as lone, GatewayHarness(tmp_path, {"a": lone}) as harness:
            assert (await harness.ask()).header("retry-after") == "300"
            assert len(lone.seen) == 1
        async with (
            Scripted(always=silent) as lone,
            GatewayHarness(tmp_path, {"a": lone}, route={"retry": {"attempts": 1}}) as harness,
        ):
            assert [(await harness.ask()).status for _ in range(20)] == [429] + [503] * 19
            assert len(lone.seen) == 1
            health = harness.running.healths["a"]
            first, second = health.busy(0.0, None), health.busy(0.0, None)
            assert second == 2 * first

    play(scenario())


def test_a_stream_that_breaks_says_so(tmp_path: Path) -> None:
    """Before the first event another deployment takes over; after it the client is told, and billed what it got."""

    async def scenario() -> None:
        async with (
            Scripted(streamed(cut=True)) as cut,
            Scripted(always=streamed(*words(3))) as well,
            GatewayHarness(tmp_path, {"a": cut, "b": well}) as harness,
        ):
            answer = await harness.ask(chat(stream=True))
            assert answer.header("x-tonnage-deployment") == "b"
            assert answer.body.endswith(b"data: [DONE]\n\n")
        async with (
            Scripted(streamed(*words(3, end=False)[:2], cut=True)) as up,
            GatewayHarness(tmp_path, {"a": up}) as harness,
        ):
            pieces: list[bytes] = []
            reader, writer = await spoken(harness.port, chat(stream=True))
            while data := await reader.read(65536):
                pieces.append(data)
            writer.close()
            told = b"".join(pieces)
            assert b'"w1"' in told
            assert b"upstream_failed" in told
            assert not told.endswith(b"0\r\n\r\n")
            row = (await harness.rows())[-1]
            assert (row["outcome"], row["estimated"], row["output_tokens"]) == ("cut", 1, 2)

    play(scenario())


def test_a_machine_of_ones_own_is_not_free(tmp_path: Path) -> None:
    """Its tokens cost the time they take of an hour that is paid for."""

    async def scenario() -> None:
        own = {"usd_per_hour": 3.6, "input_tokens_per_s": 10_000, "output_tokens_per_s": 1_000}
        async with (
            Scripted(said()) as up,
            GatewayHarness(tmp_path, {"a": up}, a={"own": own, "price": None}) as harness,
        ):
            answer = await harness.ask()
            assert answer.header("x-tonnage-cost-usd") == "0.0000047"  # 7 x 0.1 and 4 x 1 micro-dollars

    play(scenario())


def test_cached_input_costs_its_own_price_once(tmp_path: Path) -> None:
    """OpenAI counts cached input in the input: it is not charged twice, nor at the full price."""

    async def scenario() -> None:
        usage = {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 900}}
        price = {"input_usd_per_million": 1, "output_usd_per_million": 2, "cached_input_usd_per_million": 0.1}
        async with (
            Scripted(said(usage=usage)) as up,
            GatewayHarness(tmp_path, {"a": up}, a={"price": price}) as harness,
        ):
            await harness.ask()
            (row,) = await harness.rows()
            assert row["usd_pico"] == 100 * 10**6 + 900 * 10**5 + 10 * 2 * 10**6

    play(scenario())


@pytest.mark.parametrize(
    "other",
    [{"temperature": 0, "max_tokens": 11}, {"temperature": 0, "tools": []}, {"temperature": 0, "seed": 2},
     {"temperature": 0, "response_format": {"type": "json_object"}}, {"temperature": 0, "unheard_of": True}],
)  # fmt: skip
def test_the_cache_knows_every_field(tmp_path: Path, other: dict[str, Any]) -> None:
    """The same body is answered from the cache, one that differs in any field is not, nor another team's."""

    async def scenario() -> None:
        keys = {"a": {"key": "env:KEY_A", "team": "x"}, "b": {"key": "env:KEY_B", "team": "y"}}
        async with (
            Scripted(always=said()) as up,
            GatewayHarness(tmp_path, {"up": up}, route={"cache": {"ttl": "1h"}}, keys=keys) as harness,
        ):
            mine, theirs = {"authorization": "Bearer secret-a"}, {"authorization": "Bearer secret-b"}
            first = await harness.ask(chat(temperature=0), **mine)
            again = await harness.ask(chat(temperature=0), **mine)
            assert (again.body, again.header("x-tonnage-cache")) == (first.body, "hit")
            assert len(up.seen) == 1
            await harness.ask(chat(**other), **mine)
            await harness.ask(chat(temperature=0), **theirs)
            assert len(up.seen) == 3
            await harness.ask(chat(), **mine)
            await harness.ask(chat(), **mine)  # an answer that is not meant to repeat
            assert len(up.seen) == 5

    play(scenario())


def test_tool_calls_pass_as_they_are(tmp_path: Path) -> None:
    """Pieces of a tool call reach the client byte for byte and one by one."""

    async def scenario() -> None:
        calls = [
            {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": ""}},
            {"index": 0, "function": {"arguments": '{"a'}},
            {"index": 1, "id": "call_2", "function": {"name": "g", "arguments": "{}"}},
        ]
        events = [event({"choices": [{"index": 0, "delta": {"tool_calls": [one]}}]}) for one in calls]
        stream = (*events, event({"choices": [], "usage": USAGE}), event(b"[DONE]"))
        async with (
            Scripted(always=streamed(*stream, pause_s=0.005)) as up,
            GatewayHarness(tmp_path, {"a": up}) as harness,
        ):
            answer = await harness.ask(chat(stream=True, stream_options={"include_usage": True}))
            assert answer.body == b"".join(stream)
            without = await harness.ask(chat(stream=True))
            assert without.body == b"".join([*events, event(b"[DONE]")])
            assert up.seen[1]["stream_options"] == {"include_usage": True}

    play(scenario())


def test_a_limit_told_as_400_is_a_limit(tmp_path: Path) -> None:
    """A provider's throttling that comes as 400 goes to the next deployment; a bad request comes back as it is."""

    async def scenario() -> None:
        throttled = whole({"error": {"code": "ThrottlingException", "message": "Too many requests"}}, 400)
        bad = whole({"error": {"message": "rate_limit: expected a list", "type": "invalid_request_error"}}, 400)
        async with (
            Scripted(throttled) as busy,
            Scripted(said(), bad) as other,
            GatewayHarness(tmp_path, {"a": busy, "b": other}) as harness,
        ):
            assert (await harness.ask()).status == 200
            answer = await harness.ask()
            assert (answer.status, json.loads(answer.body)["error"]["message"]) == (400, "rate_limit: expected a list")
            assert len(busy.seen) == 1  # it rests

    play(scenario())


def test_limits_hold_over_all_requests(tmp_path: Path) -> None:
    """Tokens a minute are those that came, not those that were guessed; the answer says which limit and until when."""

    async def scenario() -> None:
        usage = {"prompt_tokens": 500, "completion_tokens": 500}
        async with (
            Scripted(always=said(usage=usage)) as up,
            GatewayHarness(tmp_path, {"a": up}, limits=[{"of": "total", "tokens_per_minute": 2500}]) as harness,
        ):
            answers = [await harness.ask() for _ in range(4)]
            assert [one.status for one in answers] == [200, 200, 200, 429]
            document = json.loads(answers[-1].body)["error"]
            assert "2500 tokens a minute" in document["message"]
            assert 1 <= int(answers[-1].header("retry-after") or 0) <= 60

    play(scenario())


def test_much_at_once_is_answered(tmp_path: Path) -> None:
    """Two hundred connections at once are all answered, and nothing stays held or connected."""

    async def scenario() -> None:
        async with Scripted(always=said()) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            answers = await asyncio.gather(*(harness.ask() for _ in range(200)))
            assert {one.status for one in answers} == {200}
            assert harness.book.open_holds == 0

    play(scenario())


def test_an_attempt_that_may_have_been_billed_keeps_its_hold(tmp_path: Path) -> None:
    """A time-out after the request was sent: its money stays held, its place is given back, the next one answers."""

    async def scenario() -> None:
        async with (
            Scripted(always=silence) as slow,
            Scripted(always=said()) as well,
            GatewayHarness(
                tmp_path, {"a": slow, "b": well}, a={"timeouts": {"first_byte": "100ms"}}, limits=[{"at_once": 1}]
            ) as harness,
        ):
            answer = await harness.ask()
            assert (answer.status, answer.header("x-tonnage-deployment")) == (200, "b")
            assert (harness.handler.uncertain, harness.book.open_holds) == (1, 1)
            harness.handler.settle_uncertain()
            rows = await harness.rows()
            assert sorted((row["outcome"], row["estimated"]) for row in rows) == [("first-byte", 1), ("ok", 0)]

    play(scenario())


def test_a_response_that_tells_its_failure_is_not_cut(tmp_path: Path) -> None:
    """`response.failed` ends a stream whole: no second error is put behind it, and the ledger says `failed`."""

    async def scenario() -> None:
        began = event({"type": "response.created", "response": {}})
        ended = event({"type": "response.failed", "response": {"error": {"code": "server_error"}, "usage": None}})
        async with Scripted(streamed(began, ended)) as up, GatewayHarness(tmp_path, {"a": up}) as harness:
            asked = {"model": "chat", "max_output_tokens": 10, "input": "hi", "stream": True}
            answer = await harness.ask(asked, "/v1/responses")
            assert answer.body == began + ended
            (row,) = await harness.rows()
            assert (row["outcome"], row["estimated"]) == ("failed", 1)
            assert harness.running.healths["a"].failures == 1

    play(scenario())
