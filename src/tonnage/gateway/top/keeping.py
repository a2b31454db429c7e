"""Looks at running gateways that are kept for a while, so that the next reader has an earlier one to compare with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from time import monotonic, sleep
from typing import Any, Final

import httpx

from tonnage.gateway.top.looking import look
from tonnage.gateway.top.rates import Top, happened

LEAST_S: Final = 1.0  # between two looks whose difference is shown
LONGEST_S: Final = 60.0
MOST_LOOKS: Final = 64
Status = Mapping[str, Any]


class GatewayLooks:
    """What gateways did lately. `key` gives the bearer of their figures, where they ask for one."""

    def __init__(
        self, key: Callable[[], str | None] = lambda: None, *, clock: Callable[[], float] = monotonic,
        wait: Callable[[float], None] = sleep, timeout_s: float = 5.0,
    ) -> None:  # fmt: skip
        self._key, self._clock, self._wait, self._timeout_s = key, clock, wait, timeout_s
        self._kept: dict[str, deque[tuple[float, Status]]] = {}
        self._lock = Lock()

    def top(self, url: str) -> Top:
        """What happened at a gateway since the newest look that is at least a second old; a first reader waits.

        Raises NoGateway where none answers.
        """
        with httpx.Client(timeout=self._timeout_s) as client:
            after = self._look(client, url)
            before = self._earlier(url)
            if before is None:
                self._wait(LEAST_S)
                before, after = after, self._look(client, url)
        return happened(before[1], after[1])

    def _look(self, client: httpx.Client, url: str) -> tuple[float, Status]:
        found = (self._clock(), look(client, url, self._key()))
        with self._lock:
            self._kept.setdefault(url, deque(maxlen=MOST_LOOKS)).append(found)
        return found

    def _earlier(self, url: str) -> tuple[float, Status] | None:
        now = self._clock()
        with self._lock:
            kept = reversed(self._kept[url])
            return next((one for one in kept if LEAST_S <= now - one[0] <= LONGEST_S), None)
