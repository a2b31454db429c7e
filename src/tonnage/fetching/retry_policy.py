"""How long to go on: attempts with exponential back-off, `Retry-After`, and an end when the user interrupts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Final, TypeVar

from tonnage.errors import FetchError
from tonnage.fetching.remote import Stopped, Temporary

T = TypeVar("T")
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 60.0
LONGEST_RETRY_AFTER_S: Final = 600.0


@dataclass(slots=True)
class RetryPolicy:
    """Counts failures in a row; `failed` waits, or raises FetchError when there were too many."""

    attempts: int
    stop: Event
    first_wait_s: float = FIRST_WAIT_S
    say: Callable[[str], None] = field(default=lambda _text: None)
    _failures: int = 0

    def progressed(self) -> None:
        """Something arrived: the count starts over."""
        self._failures = 0

    def failed(self, error: Temporary, what: str) -> None:
        """One more failure of `what`."""
        self._failures += 1
        if self._failures >= self.attempts:
            raise FetchError(
                f"{what}: {error} (after {self._failures} attempts)",
                hint="run the same command again: what has arrived is kept; --attempts sets the retries",
            ) from error
        self.pause(error.retry_after_s)

    def pause(self, retry_after_s: float | None) -> None:
        """Wait as the server asked, else twice as long as last time, with jitter so that readers spread out."""
        usual = min(LONGEST_WAIT_S, self.first_wait_s * 2 ** (self._failures - 1)) * random.uniform(0.5, 1.0)
        wait_s = usual if retry_after_s is None else min(LONGEST_RETRY_AFTER_S, max(0.0, retry_after_s))
        if wait_s > 5:
            self.say(f"waiting {wait_s:.0f} s, as the server asked" if retry_after_s else f"waiting {wait_s:.0f} s")
        if self.stop.wait(wait_s):
            raise Stopped

    def insist(self, ask: Callable[[], T], what: str) -> T:
        """The answer of `ask`, asked again after each Temporary."""
        while True:
            if self.stop.is_set():
                raise Stopped
            try:
                return ask()
            except Temporary as error:
                self.failed(error, what)


def retry_after_s(text: str | None, now_s: float | None = None) -> float | None:
    """Seconds a `Retry-After` header asks for: a number, or the moment it names; None when it says neither.

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
