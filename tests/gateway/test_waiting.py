"""Requests that wait for a place: whose turn it is, who is shed, what a refusal says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random

import pytest
from tests.gateway.harness import GatewayHarness, Scripted, chat, late, play, said, silence, spoken, until

from tonnage.gateway.admission.line import Ticket, WaitingLine
from tonnage.gateway.money.allowances import Allowance

LIMIT = Allowance(scope="total", name="", unit="at-once", window="ever", cap=1)


def ticket(key: str, priority: int = 5) -> Ticket:
    return Ticket(key, priority, 0.0, 10.0)


def served(line: WaitingLine) -> list[tuple[int, str]]:
    """All that wait, in the order in which they would be served."""
    found = []
    while (one := line.first()) is not None:
        line.remove(one)
        found.append((one.priority, one.key))
    return found


def test_turns() -> None:
    """The highest priority first; of one priority each key in turn, however many requests it sent."""
    line = WaitingLine(LIMIT)
    for key, priority in [("a", 5), ("a", 5), ("a", 5), ("b", 5), ("c", 1), ("b", 5), ("d", 9)]:
        line.add(ticket(key, priority))
    assert served(line) == [(9, "d"), (5, "a"), (5, "b"), (5, "a"), (5, "b"), (5, "a"), (1, "c")]
    assert len(line) == 0


def test_places_in_the_line() -> None:
    """`ahead_of` is the number of those that are served before a newcomer, whatever waits."""
    random = Random(1)
    for _ in range(200):
        line = WaitingLine(LIMIT)
        for _ in range(random.randrange(12)):
            line.add(ticket(random.choice("abc"), random.randrange(3)))
        key, priority = random.choice("abcd"), random.randrange(4)
        ahead, newcomer = line.ahead_of(key, priority), ticket(key, priority)
        line.add(newcomer)
        order = []
        while (one := line.first()) is not None:
            line.remove(one)
            order.append(one)
        assert order.index(newcomer) <= ahead <= order.index(newcomer) + 3  # up to the keys whose turn may come sooner


@pytest.mark.parametrize(
    ("waiting", "newcomer", "sheds"),
    [
        ([("a", 5), ("b", 3)], ("c", 5), ("b", 3)),
        ([("a", 5), ("b", 5)], ("c", 5), None),
        ([("a", 5), ("a", 5), ("b", 5)], ("c", 5), ("a", 5)),
        ([("a", 5), ("a", 5)], ("a", 5), None),
        ([("a", 5), ("a", 5), ("a", 5)], ("b", 4), None),
        ([("a", 1), ("a", 1), ("b", 1)], ("c", 9), ("a", 1)),
    ],
)
def test_who_is_shed(waiting: list[tuple[str, int]], newcomer: tuple[str, int], sheds: tuple[str, int] | None) -> None:
    """The lowest priority first; among equals a key that has more waiting than the newcomer's gives one up."""
    line = WaitingLine(LIMIT)
    for key, priority in waiting:
        line.add(ticket(key, priority))
    found = line.sheds_for(*newcomer)
    assert (None if found is None else (found.key, found.priority)) == sheds


def test_requests_wait_in_place_of_a_refusal(tmp_path: Path) -> None:
    """Twenty at once before a limit of two: all are answered, never more than two at a time, no hold is left."""

    async def scenario() -> None:
        at_once = most = 0

        async def counted(writer: asyncio.StreamWriter) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.005)
            at_once -= 1
            await said()(writer)

        async with (
            Scripted(always=counted) as up,
            GatewayHarness(tmp_path, {"a": up}, limits=[{"at_once": 2}], queue={}) as d,
        ):
            answers = await asyncio.gather(*(d.ask() for _ in range(20)))
            assert [one.status for one in answers] == [200] * 20
            assert most == 2
            assert d.book.open_holds == len(d.handler.waiting) == 0
            assert all(line.granted == 0 for line in d.handler.waiting._lines.values())

    play(scenario())


def test_a_full_deployment_is_waited_for_after_the_others(tmp_path: Path) -> None:
    """The one with a place is asked at once; when both are full the first that is free is taken."""

    async def scenario() -> None:
        async with (
            Scripted(late(said("slow"), 0.5), always=said("a")) as a,
            Scripted(late(said("first"), 0.05), always=said("second")) as b,
            GatewayHarness(tmp_path, {"a": a, "b": b}, each={"at_once": 1}, queue={}) as harness,
        ):
            answers = await asyncio.gather(*(harness.ask() for _ in range(3)))
            texts = [json.loads(one.body)["choices"][0]["message"]["content"] for one in answers]
            assert sorted(texts) == ["first", "second", "slow"]

    play(scenario())


def test_a_full_line_refuses_with_its_figures(tmp_path: Path) -> None:
    """The position and the wait that was measured, in headers and body; Retry-After in whole seconds."""

    async def scenario() -> None:
        async with (
            Scripted(late(said(), 0.02), silence, always=said()) as up,
            GatewayHarness(tmp_path, {"a": up}, limits=[{"at_once": 1}], queue={"places": 1}) as harness,
        ):
            await harness.ask()  # measures
            waiting = [asyncio.ensure_future(harness.ask()) for _ in range(2)]
            await until(lambda: len(up.seen) == 2 and len(harness.handler.waiting) == 1)
            refused = await harness.ask()
            assert (refused.status, refused.header("retry-after")) == (429, "1")
            assert refused.header("x-tonnage-queue-position") == "2"
            measured = harness.handler.waiting._lines[LIMIT.id].service_s
            assert measured is not None
            assert refused.header("x-tonnage-expected-wait-s") == f"{2 * measured:.3f}"
            error = json.loads(refused.body)["error"]
            assert error["queue_position"] == 2
            assert "as many requests wait already as may" in error["message"]
            for one in waiting:
                one.cancel()

    play(scenario())


def test_overload_sheds_the_lowest_priority(tmp_path: Path) -> None:
    """A key may state a lower priority than its own, never a higher one; the waiting request of the lowest leaves."""

    async def scenario() -> None:
        keys = {"x": {"key": "env:KEY_A", "priority": 7}, "y": {"key": "env:KEY_B", "priority": 2}}
        x, y = {"Authorization": "Bearer secret-a"}, {"Authorization": "Bearer secret-b"}
        async with (
            Scripted(late(said(), 0.3), always=said()) as up,
            GatewayHarness(tmp_path, {"a": up}, keys=keys, limits=[{"at_once": 1}], queue={"places": 1}) as harness,
        ):
            first = asyncio.ensure_future(harness.ask(**x))
            await until(lambda: up.seen)
            low = asyncio.ensure_future(harness.ask(x_tonnage_priority="9", **y))
            await until(lambda: len(harness.handler.waiting) == 1)
            lowest = await harness.ask(x_tonnage_priority="0", **x)
            assert lowest.status == 429
            high = asyncio.ensure_future(harness.ask(**x))
            shed = await low
            assert shed.status == 429
            assert json.loads(shed.body)["error"]["code"] == "overloaded"
            assert [(await one).status for one in (first, high)] == [200, 200]
            assert (await harness.ask(x_tonnage_priority="10", **x)).status == 400

    play(scenario())


def test_what_would_be_too_late_is_refused_at_once(tmp_path: Path) -> None:
    """By its own deadline, or by the time-out that an SDK states; without a place in time it is refused then."""

    async def scenario() -> None:
        async with (
            Scripted(late(said(), 0.2), silence, always=said()) as up,
            GatewayHarness(tmp_path, {"a": up}, limits=[{"at_once": 1}], queue={}) as harness,
        ):
            await harness.ask()  # measures
            busy = asyncio.ensure_future(harness.ask())
            await until(lambda: len(up.seen) == 2)
            for header, value in (("x_tonnage_deadline_ms", "100"), ("x_stainless_read_timeout", "0.1")):
                refused = await harness.ask(**{header: value})
                assert refused.status == 429
                assert b"expected later than this request may wait" in refused.body
            harness.handler.waiting._lines[LIMIT.id].service_s = None
            refused = await harness.ask(x_tonnage_deadline_ms="100")
            assert b"no place was free in the time" in refused.body
            assert (await harness.ask(x_tonnage_deadline_ms="soon")).status == 400
            busy.cancel()

    play(scenario())


def test_who_leaves_waits_no_more(tmp_path: Path) -> None:
    """A client that goes while it waits: nothing is sent for it, and its place in the line is free."""

    async def scenario() -> None:
        async with (
            Scripted(late(said(), 0.25), always=said()) as up,
            GatewayHarness(tmp_path, {"a": up}, limits=[{"at_once": 1}], queue={}) as harness,
        ):
            first = asyncio.ensure_future(harness.ask())
            await until(lambda: up.seen)
            _, writer = await spoken(harness.port, chat())
            await until(lambda: len(harness.handler.waiting) == 1)
            writer.transport.abort()
            while len(harness.handler.waiting):
                await asyncio.sleep(0.02)
            assert (await first).status == 200
            assert len(up.seen) == 1

    play(scenario())


def test_other_refusals_do_not_wait(tmp_path: Path) -> None:
    """A budget that is spent refuses at once, and the place that the request was granted goes to the next one."""

    async def scenario() -> None:
        async with (
            Scripted(late(said(), 0.05), always=said()) as up,
            GatewayHarness(
                tmp_path, {"a": up}, limits=[{"at_once": 1}], queue={}, budgets=[{"usd": 0.0014}]
            ) as harness,
        ):
            first = asyncio.ensure_future(harness.ask())
            await until(lambda: up.seen)
            answers = await asyncio.gather(harness.ask(), harness.ask(chat("x" * 1000)), harness.ask())
            assert [(await first).status, *(one.status for one in answers)] == [200, 200, 429, 200]
            assert b"budget" in answers[1].body

    play(scenario())


def test_places_of_another_worker_are_found(tmp_path: Path) -> None:
    """The one place was another worker's: who waits here has it once that one gives it back."""

    async def scenario() -> None:
        async with (
            Scripted(late(said(), 0.1), always=said()) as up,
            GatewayHarness(tmp_path, {"a": up}, limits=[{"at_once": 1}], queue={}) as one,
            GatewayHarness(tmp_path, {"a": up}, limits=[{"at_once": 1}], queue={}) as other,
        ):
            first = asyncio.ensure_future(one.ask())
            await until(lambda: up.seen)
            assert [(await other.ask()).status, (await first).status] == [200, 200]

    play(scenario())
