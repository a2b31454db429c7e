"""A thread beside the requests: what is put into its queue it hands on in batches. Putting never waits."""

from __future__ import annotations

import sys
import traceback
from collections import deque
from collections.abc import Callable
from threading import Event, Thread
from typing import Final, Generic, TypeVar

T = TypeVar("T")
HAND_ON_EVERY_S: Final = 0.25
CLOSE_S: Final = 5.0


class BackgroundConsumer(Generic[T]):
    """`consume` is called in the thread, with what was put since the last time; `finish` at its end."""

    def __init__(
        self, name: str, consume: Callable[[list[T]], None], finish: Callable[[], None], *, most_bytes: int
    ) -> None:
        self._consume, self._finish, self._most_bytes = consume, finish, most_bytes
        self._waiting: deque[tuple[T, int]] = deque()
        self._put_bytes = self._taken_bytes = 0  # each is changed by one thread alone
        self._stop = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: T, size: int) -> bool:
        """False: too much waits already, and the item is not taken. `size`: about its bytes in memory."""
        if self._put_bytes - self._taken_bytes > self._most_bytes:
            return False
        self._put_bytes += size
        self._waiting.append((item, size))
        return True

    def close(self) -> None:
        """Hand on what waits; no longer than a few seconds."""
        self._stop.set()
        self._thread.join(CLOSE_S)

    def hand_on(self) -> None:
        """In the thread: all that waits."""
        items = []
        while self._waiting:
            item, size = self._waiting.popleft()
            self._taken_bytes += size
            items.append(item)
        try:
            self._consume(items)
        except Exception:  # a fault of ours: said, and what comes later is handed on all the same
            traceback.print_exc(file=sys.stderr)

    def _run(self) -> None:
        while not self._stop.wait(HAND_ON_EVERY_S):
            self.hand_on()
        self.hand_on()
        self._finish()
