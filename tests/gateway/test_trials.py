"""New deployments on trial: a share of the requests as a canary, copies of requests as a shadow."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.harness import USAGE, GatewayHarness, Scripted, chat, event, late, play, said, streamed, whole, words

from tonnage.errors import InputError
from tonnage.gateway.file.conduct_entries import CanaryEntry
from tonnage.gateway.file.described import ANYBODY
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.proxy.running import FEWEST_ATTEMPTS, Canary


def met(harness: GatewayHarness, name: str) -> dict[str, float]:
    """What a counter counted, by `met`."""
    found: dict[str, float] = {}
    for (one, labels), cell in harness.measures.counts.items():
        if one == name:
            said = dict(labels)
            key = " ".join(filter(None, (said.get("side"), said["met"])))
            found[key] = found.get(key, 0) + cell[0]
    return found


def test_the_share_of_a_canary() -> None:
    """About its percentage of conversations, the same ones each time; other ones for another key."""
    canary = Canary("chat", CanaryEntry(deployment="new", percent=20.0), GatewayMeasures())
    drawn = [canary.drawn(ANYBODY, b"%d" % one) for one in range(2000)]
    assert drawn == [canary.drawn(ANYBODY, b"%d" % one) for one in range(2000)]
    assert 320 < sum(one == "new" for one in drawn) < 480


def test_a_canary_that_fails_is_stopped() -> None:
    """Once there are enough attempts to say so; failures of the others count nothing against it."""
    canary = Canary("chat", CanaryEntry(deployment="new", percent=100.0), GatewayMeasures())
    for number in range(FEWEST_ATTEMPTS):
        assert canary.drawn(ANYBODY, b"x") == "new"
        canary.record("old", failed=True)
        canary.record("new", failed=number % 5 == 0)
    assert canary.stopped
    assert canary.drawn(ANYBODY, b"x") is None


def test_a_canary_goes_first_and_the_others_follow(tmp_path: Path) -> None:
    """Its answer where it gives one, the route's own where it fails; both sides are counted."""

    async def scenario() -> None:
        async with (
            Scripted(always=said("old")) as old,
            Scripted(said("new"), whole({}, 500)) as new,
            GatewayHarness(
                tmp_path, {"old": old, "new": new},
                route={"deployments": ["old"], "policy": "cheapest", "canary": {"deployment": "new", "percent": 100}},
            ) as harness,
        ):  # fmt: skip
            answers = [await harness.ask() for _ in range(2)]
            assert [one.header("x-tonnage-deployment") for one in answers] == ["new", "old"]
            counted = met(harness, "tonnage_gateway_canary_total")
            assert counted == {"canary ok": 1, "canary failed": 1, "base ok": 1}

    play(scenario())


def test_a_rule_is_no_place_for_a_canary(tmp_path: Path) -> None:
    """A request that a rule sends elsewhere, for its residency say, does not try the new deployment."""

    async def scenario() -> None:
        rules = [{"input_tokens_above": 1, "deployments": "old", "regions": ["eu"]}]
        async with (
            Scripted(always=said("old")) as old,
            Scripted(always=said("new")) as new,
            GatewayHarness(
                tmp_path, {"old": old, "new": new}, old={"region": "eu"},
                route={"deployments": ["old"], "rules": rules, "canary": {"deployment": "new", "percent": 100}},
            ) as harness,
        ):  # fmt: skip
            assert (await harness.ask()).status == 200
            assert not new.seen

    play(scenario())


@pytest.mark.parametrize("stream", [False, True])
def test_a_shadow_is_asked_and_compared(tmp_path: Path, stream: bool) -> None:
    """The client has the route's answer and no delay; the other one is booked beside the caller's budgets."""

    async def scenario() -> None:
        ours = [streamed(*words(3)), streamed(*words(3))] if stream else [said("a"), said("a")]
        other = event({"choices": [{"index": 0, "delta": {"content": "w0w1w2"}, "finish_reason": "stop"}]})
        last = (event({"choices": [], "usage": USAGE}), event(b"[DONE]"))
        theirs = [streamed(other, *last), streamed(*words(2))] if stream else [said("a"), said("b")]
        async with (
            Scripted(*ours, said("a")) as up,
            Scripted(*(late(one, 0.1) for one in theirs), whole({}, 500)) as shade,
            GatewayHarness(
                tmp_path, {"a": up, "s": shade}, keys={"me": {"key": "env:KEY_A", "team": "x"}},
                budgets=[{"of": "team:x", "usd": 1}, {"of": "total", "usd": 2}],
                route={"deployments": ["a"], "shadow": {"deployment": "s", "percent": 100}},
            ) as harness,
        ):  # fmt: skip
            me = {"Authorization": "Bearer secret-a"}
            for _ in range(2):
                assert (await harness.ask(chat(stream=stream), **me)).header("x-tonnage-deployment") == "a"
            assert (await harness.ask(chat(), **me)).status == 200
            while sum(met(harness, "tonnage_gateway_shadow_total").values()) < 3:
                await asyncio.sleep(0.01)
            assert met(harness, "tonnage_gateway_shadow_total") == {"same": 1, "different": 1, "shadow-failed": 1}
            rows = await harness.rows()
            shadows = [row for row in rows if row["deployment"] == "s"]
            assert {(row["key"], row["route"]) for row in shadows} == {("(shadow)", "chat:shadow")}
            states = {one.account[0].split("/")[2]: one.committed for one in await harness.book.states()}
            assert states["team:x"] == sum(row["usd_pico"] for row in rows if row["deployment"] == "a")
            assert states["total:"] == sum(row["usd_pico"] for row in rows)
            assert json.loads(shade.raw[0])["messages"] == json.loads(up.raw[0])["messages"]
            assert harness.book.open_holds == 0

    play(scenario())


def test_a_slow_shadow_piles_up_nothing(tmp_path: Path) -> None:
    """Above `at_once` requests are skipped, and counted so; the worker's end does not wait for those under way."""

    async def scenario() -> None:
        async with (
            Scripted(always=said()) as up,
            Scripted(always=late(said(), 5.0)) as shade,
            GatewayHarness(
                tmp_path, {"a": up, "s": shade},
                route={"deployments": ["a"], "shadow": {"deployment": "s", "percent": 100, "at_once": 2}},
            ) as harness,
        ):  # fmt: skip
            for _ in range(5):
                assert (await harness.ask()).status == 200
            assert met(harness, "tonnage_gateway_shadow_total") == {"skipped": 3}
            stored = chat(previous_response_id="r")
            assert (await harness.ask(stored)).status == 200
            await asyncio.sleep(0.02)
            assert len(shade.seen) == 2

    play(scenario())


@pytest.mark.parametrize("key", ["canary", "shadow"])
@pytest.mark.parametrize(("name", "words"), [("b", "no deployment is named 'b'"), ("a", "one of the route's own")])
def test_their_deployments_are_checked(tmp_path: Path, key: str, name: str, words: str) -> None:
    """When the file is read."""
    route: dict[str, Any] = {key: {"deployment": name}}
    with pytest.raises(InputError, match=words):
        play(GatewayHarness(tmp_path, {"a": Scripted()}, route=route, each={"url": "http://h:1/v1"}).__aenter__())  # type: ignore[arg-type]
