"""How long to go on: attempts with exponential back-off and jitter, or as long as the server asks (`Retry-After`)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from tonnage.errors import TonnageError

T = TypeVar("T")
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 60.0
_BUSY: Final = frozenset({408, 425, 429})  # below 500, and yet worth another attempt
_NEVER: Final = frozenset({501, 505})  # what the server cannot do at all


class TemporaryError(Exception):
    """Worth another attempt. `retry_after_s`: the server asked to wait so long."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def is_temporary(status: int) -> bool:
    """Whether an HTTP status may be another one next time (RFC 9110, 15.5 and 15.6)."""
    return status in _BUSY or (status >= 500 and status not in _NEVER)


@dataclass(slots=True, kw_only=True)
class RetryPolicy:
    """Counts failures in a row; `failed` waits, or raises what `give_up` makes of (what, failures, last error)."""

    attempts: int
    wait: Callable[[float], None]  # raises where the user interrupts, or the time is up
    give_up: Callable[[str, int, TemporaryError], TonnageError]
    first_wait_s: float = FIRST_WAIT_S
    longest_retry_after_s: float = LONGEST_WAIT_S  # a server that asks for a longer wait is given up
    _failures: int = 0

    def progressed(self) -> None:
        """Something arrived: the count starts over."""
        self._failures = 0

    def failed(self, error: TemporaryError, what: str) -> None:
        """One more failure of `what`: wait as the server asked, else twice as long as last time, with jitter."""
        self._failures += 1
        asked_s = error.retry_after_s
        if self._failures >= self.attempts or (asked_s or 0.0) > self.longest_retry_after_s:
            raise self.give_up(what, self._failures, error) from error
        usual_s = min(LONGEST_WAIT_S, self.first_wait_s * 2 ** (self._failures - 1)) * random.uniform(0.5, 1.0)
        self.wait(usual_s if asked_s is None else asked_s)

    def insist(self, ask: Callable[[], T], what: str) -> T:
        """The answer of `ask`, asked again after each TemporaryError."""
        while True:
            try:
                return ask()
            except TemporaryError as error:
                self.failed(error, what)


def retry_after_s(text: str | None, now_s: float | None = None) -> float | None:
    """Seconds that a `Retry-After` header asks for (RFC 9110, 10.2.3: a number or a moment); None: neither.

    >>> retry_after_s("7"), retry_after_s("Thu, 01 Jan 1970 00:01:00 GMT", now_s=20.0), retry_after_s("soon")
    (7.0, 40.0, None)
    """
    from email.utils import parsedate_to_datetime

    if not text:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - (time.time() if now_s is None else now_s))
    except (ValueError, OverflowError):
        return None
