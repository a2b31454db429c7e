"""A second deployment for slow answers: the first to begin answers, both are paid for, nothing is answered twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.gateway.harness import (
    GatewayHarness,
    Scripted,
    chat,
    hang_up,
    late,
    play,
    said,
    silence,
    streamed,
    until,
    whole,
    words,
)

from tonnage.gateway.routing.hedge_policy import FEWEST_TIMES, HedgePolicy

SOON = {"hedge": {"after": "20ms", "share_percent": 50}}


def test_the_percentile_needs_times() -> None:
    """None until twenty are known; then the 95th percentile, of streams and of whole answers each by itself."""
    policy = HedgePolicy(None, 0.05)
    for one in range(FEWEST_TIMES - 1):
        policy.record("a", float(one), stream=True)
    assert policy.after_s("a", stream=True) is None
    policy.record("a", 19.0, stream=True)
    assert policy.after_s("a", stream=True) == 19.0
    assert policy.after_s("a", stream=False) is None
    assert HedgePolicy(0.5, 0.05).after_s("a", stream=False) == 0.5


@pytest.mark.parametrize("stream", [False, True])
def test_the_quicker_one_answers(tmp_path: Path, stream: bool) -> None:
    """The slow one's connection is closed and what was seen of it is settled: both rows, no open hold."""

    async def scenario() -> None:
        quick = streamed(*words(3)) if stream else said("quick")
        async with (
            Scripted(silence) as a,
            Scripted(quick) as b,
            GatewayHarness(tmp_path, {"a": a, "b": b}, route=SOON, budgets=[{"usd": 1}]) as harness,
        ):
            answer = await harness.ask(chat(stream=stream))
            assert answer.status == 200
            assert answer.header("x-tonnage-deployment") == "b"
            rows = {row["deployment"]: row for row in await harness.rows()}
            assert (rows["b"]["outcome"], rows["b"]["estimated"]) == ("ok", 0)
            assert (rows["a"]["outcome"], rows["a"]["estimated"]) == ("hedge-lost", 1)
            read = (len(json.dumps(chat(stream=stream))) // 4 + 1) * 10**6
            assert rows["a"]["usd_pico"] == read + (0 if stream else 10 * 2 * 10**6)  # of a stream no output was seen
            assert harness.book.open_holds == harness.handler.uncertain == 0
            assert not harness.running.upstreams["a"]._open
            assert harness.running.healths["a"].under_way == harness.running.healths["b"].under_way == 0

    play(scenario())


def test_the_first_one_may_still_win(tmp_path: Path) -> None:
    """It begins after the second was asked and before that one does: its answer goes on, byte for byte, once."""

    async def scenario() -> None:
        async with (
            Scripted(late(streamed(*words(5)), 0.06)) as a,
            Scripted(late(said("late"), 5.0)) as b,
            GatewayHarness(tmp_path, {"a": a, "b": b}, route=SOON) as harness,
        ):
            answer = await harness.ask(chat(stream=True, stream_options={"include_usage": True}))
            assert answer.body == b"".join(words(5))
            assert {row["deployment"]: row["outcome"] for row in await harness.rows()} == {"a": "ok", "b": "hedge-lost"}

    play(scenario())


def test_no_hedge_without_need_or_leave(tmp_path: Path) -> None:
    """Not before its time, not beyond its share of the requests, not where the percentile is not known."""

    async def scenario() -> None:
        async with (
            Scripted(said(), *[late(said(), 0.05)] * 12, late(said(), 0.05)) as a,
            Scripted(always=said("b")) as b,
            GatewayHarness(
                tmp_path, {"a": a, "b": b}, route={"hedge": {"after": "20ms", "share_percent": 0}},
                more={"measured": {"deployments": ["a", "b"], "hedge": {}}},
            ) as harness,
        ):  # fmt: skip
            await harness.ask()
            assert not b.seen
            for _ in range(12):  # ten a minute are allowed however small the share
                await harness.ask()
            assert len(b.seen) == 10
            assert (await harness.ask(chat(model="measured"))).header("x-tonnage-deployment") == "a"

    play(scenario())


def test_failures_beside_a_hedge(tmp_path: Path) -> None:
    """One fails after the other was asked: that one answers. Both fail: another attempt, as always."""

    async def scenario() -> None:
        async with (
            Scripted(late(whole({"error": {}}, 500), 0.05), late(hang_up, 0.04), said("again")) as a,
            Scripted(late(said("b"), 0.08), late(whole({"error": {}}, 500), 0.05)) as b,
            GatewayHarness(tmp_path, {"a": a, "b": b}, route=SOON) as harness,
        ):
            assert b'"b"' in (await harness.ask()).body
            assert b'"again"' in (await harness.ask()).body
            assert (len(a.seen), len(b.seen)) == (3, 2)
            assert [line for line in (await harness.rows()) if line["outcome"] == "hedge-lost"] == []

    play(scenario())


def test_a_client_that_leaves_ends_both(tmp_path: Path) -> None:
    """Neither hold is left open beyond what may have been billed."""

    async def scenario() -> None:
        async with (
            Scripted(late(said(), 0.3)) as a,
            Scripted(late(said(), 0.3)) as b,
            GatewayHarness(tmp_path, {"a": a, "b": b}, route=SOON) as harness,
        ):
            asking = asyncio.ensure_future(harness.ask())
            await until(lambda: b.seen)
            asking.cancel()
            await until(lambda: harness.book.open_holds == 0)
            assert sorted(row["outcome"] for row in await harness.rows()) == ["hedge-lost", "ok"]
            assert json.loads(b.raw[0])["model"] == "upstream-model"

    play(scenario())
