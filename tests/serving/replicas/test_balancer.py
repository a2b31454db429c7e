"""Which replica takes a request: least in flight, prefixes together, broken ones left out; what is seen and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tonnage.serving.replicas.balancer import BREAK_AFTER, BREAK_S, Balancer, NoSlotInTime, QueueFull, Seat, prefix_key


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def balanced(
    work: Callable[[Balancer, Clock], Awaitable[None]],
    *,
    seats: int = 2,
    slots: int = 2,
    waiting: int = 3,
    longest_wait_s: float = 10.0,
) -> None:
    async def whole() -> None:
        clock = Clock()
        balancer = Balancer(promise_s=1.0, most_waiting=waiting, longest_wait_s=longest_wait_s, clock=clock)
        for number in range(seats):
            balancer.add(Seat(f"r{number}", slots))
        await work(balancer, clock)

    asyncio.run(whole())


def test_the_least_loaded_replica_takes_a_request() -> None:
    """Two seats of two slots: alternating, then the one that is free again."""

    async def work(balancer: Balancer, _clock: Clock) -> None:
        taken = [await balancer.take() for _ in range(4)]
        assert sorted(seat.name for seat in taken) == ["r0", "r0", "r1", "r1"]
        balancer.give_back(balancer.seats["r1"], 0.5)
        assert (await balancer.take()).name == "r1"
        assert balancer.running == 4

    balanced(work)


def test_waiting_requests_get_slots_in_order() -> None:
    """First come, first served; a retry goes before all; late ones are counted."""

    async def work(balancer: Balancer, clock: Clock) -> None:
        held = await balancer.take()
        order: list[str] = []

        async def one(name: str, *, again: bool = False) -> None:
            seat = await balancer.take(again=again)
            order.append(name)
            balancer.give_back(seat, 0.1)

        waiting = [asyncio.ensure_future(one(name)) for name in ("first", "second")]
        await asyncio.sleep(0)
        waiting.append(asyncio.ensure_future(one("retry", again=True)))
        await asyncio.sleep(0)
        clock.now_s += 2.0
        balancer.give_back(held, 1.0)
        await asyncio.gather(*waiting)
        assert order == ["retry", "first", "second"]
        assert balancer.counts.late == 2

    balanced(work, seats=1, slots=1)


def test_too_many_and_too_long_are_refused() -> None:
    """The queue has a limit, the wait too; both say when to come again; nothing stays behind."""

    async def work(balancer: Balancer, _clock: Clock) -> None:
        held = await balancer.take()
        waiting = [asyncio.ensure_future(balancer.take()) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as full:
            await balancer.take()
        assert full.value.waiting == 3
        assert full.value.retry_after_s >= 1.0
        for one in waiting:
            with pytest.raises(NoSlotInTime):
                await one
        assert balancer.waiting == 0
        assert balancer.counts.late == balancer.counts.refused == 4  # the law sees them
        balancer.give_back(held, 1.0)
        assert (await balancer.take()) is held

    balanced(work, seats=1, slots=1, longest_wait_s=0.05)


def test_a_cancelled_wait_gives_its_slot_on() -> None:
    """Whoever gives up while waiting takes no slot."""

    async def work(balancer: Balancer, _clock: Clock) -> None:
        held = await balancer.take()
        given_up, other = (asyncio.ensure_future(balancer.take()) for _ in range(2))
        await asyncio.sleep(0)
        given_up.cancel()
        balancer.give_back(held, 1.0)
        assert await other is held
        assert held.in_flight == 1
        assert balancer.counts.abandoned == 1

    balanced(work, seats=1, slots=1)


def test_a_prefix_goes_to_its_own_replica_unless_that_is_busy() -> None:
    """Alike beginnings meet at one replica; when it has much more to do than the others they go elsewhere."""

    async def work(balancer: Balancer, _clock: Clock) -> None:
        key = prefix_key(b"You are a helpful assistant. One", 16)
        assert key == prefix_key(b"You are a helpful assistant. Two", 16)
        first = await balancer.take(key)
        second = await balancer.take(key)
        assert second is first
        third = await balancer.take(key)
        assert third is first  # 2 more than the others: a quarter of 8 slots
        assert await balancer.take(key) is not first

    balanced(work, seats=4, slots=8)


def test_a_broken_replica_rests_and_is_tried_by_one() -> None:
    """After three faults in a row nothing goes there for a while, then one request; an answer heals it."""

    async def work(balancer: Balancer, clock: Clock) -> None:
        broken = balancer.seats["r0"]
        for _ in range(BREAK_AFTER):
            broken.in_flight += 1
            balancer.give_back(broken, 0.0, fault=True)
        assert {(await balancer.take()).name for _ in range(2)} == {"r1"}
        clock.now_s += BREAK_S
        assert await balancer.take() is broken
        assert not broken.takes(clock.now_s)
        balancer.give_back(broken, 0.1)
        assert broken.faults == 0
        assert broken.takes(clock.now_s)

    balanced(work)


def test_a_retry_avoids_the_replicas_that_failed_it() -> None:
    """As long as there are others."""

    async def work(balancer: Balancer, _clock: Clock) -> None:
        for _ in range(3):
            seat = await balancer.take(avoid=["r0"], again=True)
            assert seat.name == "r1"
            balancer.give_back(seat, 0.1)
        balancer.remove("r1")
        assert (await balancer.take(avoid=["r0"], again=True)).name == "r0"

    balanced(work)


def test_what_the_law_sees_is_counted_since_the_last_look() -> None:
    """Arrivals, answers and their time; retries arrive once; what waits and runs is of now."""

    async def work(balancer: Balancer, _clock: Clock) -> None:
        seat = await balancer.take()
        balancer.give_back(seat, 0.25)
        await balancer.take()
        await balancer.take(again=True)
        seen = balancer.observe(ready=2, starting=1)
        assert (seen.arrived, seen.finished, seen.finished_work_s, seen.running, seen.waiting) == (2, 1, 0.25, 2, 0)
        assert balancer.observe(ready=2, starting=0).arrived == 0

    balanced(work)


def test_draining_ends_when_the_last_answer_is_out() -> None:
    """No new request, True once empty; False where that takes too long."""

    async def work(balancer: Balancer, _clock: Clock) -> None:
        seat = await balancer.take()
        assert not await balancer.drain(seat.name, 0.01)
        others = {(await balancer.take()).name for _ in range(2)}
        assert seat.name not in others
        drained = asyncio.ensure_future(balancer.drain(seat.name, 1.0))
        await asyncio.sleep(0)
        balancer.give_back(seat, 0.1)
        assert await drained

    balanced(work)
