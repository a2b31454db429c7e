"""Which replica takes a request, and in which order requests wait: no sockets here, one event loop.

A request takes the free slot of the replica with the least in flight. With a prefix key it goes to the replica that
the key names (rendezvous hashing), whose cache holds the prefix, unless that one has much more to do than the least
loaded one. Requests without a slot wait first come first served, up to a limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from hashlib import blake2b
from time import monotonic
from typing import Final

from tonnage.errors import TonnageError
from tonnage.scaling.service import Observation
from tonnage.serving.replicas.trial import SeatCounts
from tonnage.values import dataclass

BREAK_AFTER: Final = 3  # faults in a row
BREAK_S: Final = 2.0
PREFIX_SLACK: Final = 0.25  # of a replica's slots: more to do than the least loaded one by this, and it loses its own


class QueueFull(TonnageError):
    """As many requests wait as may. `retry_after_s`: when a slot is likely."""

    def __init__(self, waiting: int, retry_after_s: float) -> None:
        super().__init__(f"{waiting} requests wait for a slot already", hint=f"again in {retry_after_s:.0f} s")
        self.waiting, self.retry_after_s = waiting, retry_after_s


class NoSlotInTime(TonnageError):
    """No replica had a free slot within the time a request may wait."""

    def __init__(self, waited_s: float, retry_after_s: float) -> None:
        super().__init__(f"no replica had a free slot within {waited_s:g} s", hint=f"again in {retry_after_s:.0f} s")
        self.retry_after_s = retry_after_s


class Seat:
    """A replica as the balancer sees it."""

    def __init__(self, name: str, slots: int) -> None:
        self.name, self.slots = name, slots
        self.in_flight = 0
        self.open = True  # takes new requests
        self.faults = 0  # in a row
        self.closed_until_s = 0.0
        self.emptied = asyncio.Event()
        self.emptied.set()
        self.counts: SeatCounts | None = None  # while a new version is on trial
        self.share: float | None = None  # of the requests, for one that is on trial
        self.taken = self.of = 0  # requests that it took on trial, of all since then

    @property
    def on_trial(self) -> bool:
        """Whether an answer of it that is an error is asked of another replica."""
        return self.share is not None

    def has_its_share(self) -> bool:
        """Whether it has as many of the requests as it may while it is on trial."""
        return self.share is not None and self.taken >= self.share * (self.of + 1)

    def takes(self, now_s: float) -> bool:
        """Whether it may get one more; after a break one request tries it."""
        if not self.open or self.in_flight >= self.slots or now_s < self.closed_until_s:
            return False
        return self.faults < BREAK_AFTER or self.in_flight == 0


@dataclass(slots=True, kw_only=True)
class Counts:
    """Counts since the start of the service."""

    arrived: int = 0
    finished: int = 0
    finished_work_s: float = 0.0
    late: int = 0
    refused: int = 0
    retried: int = 0
    failed: int = 0
    abandoned: int = 0


class Balancer:
    """Slots of replicas given to requests."""

    def __init__(
        self, *, promise_s: float, most_waiting: int, longest_wait_s: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self.promise_s, self.most_waiting, self.longest_wait_s = promise_s, most_waiting, longest_wait_s
        self.seats: dict[str, Seat] = {}
        self.counts = Counts()
        self._seen = Counts()
        self._clock = clock
        self._waiting: deque[tuple[asyncio.Future[Seat], bytes | None, frozenset[str]]] = deque()
        self._mean_s = 1.0

    @property
    def waiting(self) -> int:
        return sum(not future.done() for future, _, _ in self._waiting)

    @property
    def running(self) -> int:
        return sum(seat.in_flight for seat in self.seats.values())

    def add(self, seat: Seat) -> None:
        """A replica that takes requests from now on."""
        self.seats[seat.name] = seat
        self.hand_out()

    def remove(self, name: str) -> None:
        """A replica that is gone, whatever it was doing."""
        self.seats.pop(name, None)

    async def drain(self, name: str, timeout_s: float) -> bool:
        """No new requests for this replica; True once those it has are done, False where they take longer."""
        seat = self.seats[name]
        seat.open = False
        try:
            async with asyncio.timeout(timeout_s):
                await seat.emptied.wait()
        except TimeoutError:
            return False
        return True

    async def take(self, prefix: bytes | None = None, avoid: Collection[str] = (), *, again: bool = False) -> Seat:
        """A slot, its replica none of `avoid` while there are others. `again`: a retry, which goes to the front.

        Raises QueueFull, NoSlotInTime. Whoever takes a slot gives it back.
        """
        begin_s = self._clock()
        if not again:
            self.counts.arrived += 1
        seat = self._choose(prefix, avoid) if again or not self._waiting else None
        if seat is None:
            seat = await self._wait(prefix, frozenset(avoid), again=again)
        else:
            self._occupy(seat)
        if not again and self._clock() - begin_s > self.promise_s:
            self.counts.late += 1
        return seat

    async def _wait(self, prefix: bytes | None, avoid: frozenset[str], *, again: bool) -> Seat:
        if self.waiting >= self.most_waiting and not again:
            self.counts.refused += 1
            self.counts.late += 1  # the law must see those that got no slot at all
            raise QueueFull(self.waiting, self.retry_after_s())
        future: asyncio.Future[Seat] = asyncio.get_running_loop().create_future()
        place = (future, prefix, avoid)
        (self._waiting.appendleft if again else self._waiting.append)(place)
        self.hand_out()
        try:
            async with asyncio.timeout(self.longest_wait_s):
                return await future
        except (TimeoutError, asyncio.CancelledError) as error:
            if future.done() and not future.cancelled():
                self.give_back(future.result(), 0.0, counted=False)
            future.cancel()
            if isinstance(error, asyncio.CancelledError):
                self.counts.abandoned += 1
                raise
            self.counts.refused += 1
            self.counts.late += 0 if again else 1
            raise NoSlotInTime(self.longest_wait_s, self.retry_after_s()) from None

    def give_back(
        self, seat: Seat, took_s: float, *, fault: bool = False, counted: bool = True, error: bool = False
    ) -> None:
        """A slot that is free again, after `took_s` seconds; `fault`: the replica did not answer."""
        seat.in_flight -= 1
        if seat.counts is not None and (counted or fault):
            seat.counts.note(took_s, error=fault or error)
        if seat.in_flight == 0:
            seat.emptied.set()
        if fault:
            seat.faults += 1
            if seat.faults >= BREAK_AFTER:
                seat.closed_until_s = self._clock() + BREAK_S
                asyncio.get_running_loop().call_later(BREAK_S + 0.01, self.hand_out)
        elif counted:
            seat.faults = 0
            self.counts.finished += 1
            self.counts.finished_work_s += took_s
            self._mean_s += 0.02 * (took_s - self._mean_s)
        self.hand_out()

    def hand_out(self) -> None:
        """Free slots to those who wait, in order."""
        while self._waiting:
            future, prefix, avoid = self._waiting[0]
            if future.done():
                self._waiting.popleft()
                continue
            seat = self._choose(prefix, avoid)
            if seat is None:
                return
            self._waiting.popleft()
            self._occupy(seat)
            future.set_result(seat)

    def retry_after_s(self) -> float:
        """Seconds until those who wait now have had a slot, at least one."""
        slots = sum(seat.slots for seat in self.seats.values() if seat.open)
        return max(1.0, (self.waiting + 1) * self._mean_s / slots) if slots else 5.0

    def observe(self, *, ready: int, starting: int) -> Observation:
        """What was seen since the last call."""
        now, old = self.counts, self._seen
        seen = Observation(
            arrived=now.arrived - old.arrived, finished=now.finished - old.finished,
            finished_work_s=now.finished_work_s - old.finished_work_s, waiting=self.waiting, running=self.running,
            ready=ready, starting=starting, late=now.late - old.late,
        )  # fmt: skip
        self._seen = Counts(
            arrived=now.arrived, finished=now.finished, finished_work_s=now.finished_work_s, late=now.late
        )
        return seen

    def _occupy(self, seat: Seat) -> None:
        for one in self.seats.values():
            one.of += one.on_trial
        seat.taken += seat.on_trial
        seat.in_flight += 1
        seat.emptied.clear()

    def _choose(self, prefix: bytes | None, avoid: Collection[str]) -> Seat | None:
        now_s = self._clock()
        free = [seat for seat in self.seats.values() if seat.takes(now_s)]
        free = [seat for seat in free if seat.name not in avoid] or free
        free = [seat for seat in free if not seat.has_its_share()] or free
        if not free:
            return None
        least = min(free, key=lambda seat: seat.in_flight)
        if prefix is None:
            return least
        own = max(free, key=lambda seat: _weight(prefix, seat.name))
        return own if own.in_flight - least.in_flight <= PREFIX_SLACK * own.slots else least


def prefix_key(body: bytes, length: int) -> bytes:
    """The key of a request's first bytes: requests that begin alike go to the same replica."""
    return blake2b(body[:length], digest_size=8).digest()


def _weight(prefix: bytes, name: str) -> bytes:
    return blake2b(prefix + name.encode(), digest_size=8).digest()
