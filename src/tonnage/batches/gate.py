"""How many requests are out at a time, and when none may go: where every row of a batch passes."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Mapping
from time import monotonic
from typing import Final

from tonnage.traffic.concurrency import ConcurrencySearch

_RESET_PART: Final = re.compile(r"([\d.]+)(ms|s|m|h)")
_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
LONGEST_PAUSE_S: Final = 900.0


class BatchStopped(Exception):
    """The batch stops: nothing more is sent."""


class Gate:
    """`enter` waits for a place, `leave` gives it back. A fixed number of places, or as many as the search finds."""

    def __init__(self, fixed: int | None) -> None:
        self._search = None if fixed is not None else ConcurrencySearch(now_s=monotonic())
        self._fixed = fixed or 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._paused_until_s = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self.in_flight = 0
        self.stopped = False

    def begin(self) -> None:
        """Another run begins, maybe in another event loop; what was found and a pause hold on."""
        self._queue.clear()
        self._alarm, self.in_flight, self.stopped = None, 0, False

    @property
    def limit(self) -> int:
        return self._fixed if self._search is None else self._search.limit

    async def enter(self, *, first: bool = False) -> None:
        """Wait for a place; `first`: before all others (a row that is tried again). Raises Stopped."""
        if self.stopped:
            raise BatchStopped
        if not self._queue and self._open():
            self.in_flight += 1
            return
        place = asyncio.get_running_loop().create_future()
        if first:
            self._queue.appendleft(place)
        else:
            self._queue.append(place)
        self._wake()
        await place

    def leave(self) -> None:
        self.in_flight -= 1
        self._wake()

    def answered(self) -> None:
        """A good answer came: the search may raise its limit."""
        if self._search is not None:
            self._search.answered(monotonic())

    def refused(self, wait_s: float) -> None:
        """The service asked for less: fewer at a time, and none until its wait is over."""
        if self._search is not None:
            self._search.refused(monotonic())
        self.pause(wait_s)

    def pause(self, wait_s: float) -> None:
        self._paused_until_s = max(self._paused_until_s, monotonic() + min(wait_s, LONGEST_PAUSE_S))

    def learn_limits(self, headers: Mapping[bytes, bytes]) -> None:
        """Pause where the headers of OpenAI's kind say that nothing is left until a moment."""
        for what in (b"requests", b"tokens"):
            if headers.get(b"x-ratelimit-remaining-" + what) == b"0":
                self.pause(reset_s(headers.get(b"x-ratelimit-reset-" + what, b"").decode("latin-1")) or 1.0)

    def stop(self) -> None:
        """All waiting and all later callers get Stopped."""
        self.stopped = True
        if self._alarm is not None:
            self._alarm.cancel()
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_exception(BatchStopped())

    def _open(self) -> bool:
        return self.in_flight < self.limit and monotonic() >= self._paused_until_s

    def _wake(self) -> None:
        """Give free places to those that wait; where a pause goes on, come back at its end."""
        while self._queue and self._open():
            place = self._queue.popleft()
            if not place.done():
                self.in_flight += 1
                place.set_result(None)
        left_s = self._paused_until_s - monotonic()
        if self._queue and left_s > 0 and (self._alarm is None or self._alarm.cancelled()):
            self._alarm = asyncio.get_running_loop().call_later(left_s + 0.001, self._rings)

    def _rings(self) -> None:
        self._alarm = None
        self._wake()


def reset_s(text: str) -> float | None:
    """Seconds of a reset as OpenAI's headers say it; None: not said.

    >>> reset_s("6m0s"), reset_s("20ms"), reset_s("")
    (360.0, 0.02, None)
    """
    parts = _RESET_PART.findall(text)
    return sum(float(value) * _UNIT_S[unit] for value, unit in parts) if parts else None
