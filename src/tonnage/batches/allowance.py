"""What several workers may still spend, and whether they are to stop: kept in one place, asked for part by part."""

from __future__ import annotations

import time
from collections.abc import Callable

from tonnage.traffic.batch import Ending


class BatchAllowance:
    """`admit` before a part is asked, `report` after it. Cost is in USD, limits None where there is none.

    Until the first part is reported the price of a row is not known: with a limit one part goes alone.
    """

    def __init__(
        self, *, most_usd: float | None, spent_usd: float, deadline_s: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._most_usd, self._spent_usd, self._clock = most_usd, spent_usd, clock
        self._ends_s = None if deadline_s is None else clock() + deadline_s
        self._reserved: dict[int, int] = {}  # part, rows that are asked now
        self._rows, self._rows_usd = 0, 0.0
        self.ending: Ending | None = None
        self.reason = ""

    def admit(self, part: int, rows: int) -> tuple[int | None, float | None]:
        """How many rows of a part may be asked, and for how many seconds; None rows: ask again a little later.

        A part that is asked for again (its worker was killed) takes the place of its first time.
        """
        self._reserved.pop(part, None)
        left_s = None if self._ends_s is None else self._ends_s - self._clock()
        if left_s is not None and left_s <= 0:
            self.stop("deadline", "the deadline is reached")
        allowed = 0 if self.ending else self._affordable(rows)
        if allowed:
            self._reserved[part] = allowed
        return allowed, left_s

    def _affordable(self, rows: int) -> int | None:
        if self._most_usd is None:
            return rows
        if not self._rows:
            return None if self._reserved else min(rows, 1)
        each = self._rows_usd / self._rows
        left_usd = self._most_usd - self._spent_usd - each * sum(self._reserved.values())
        allowed = rows if each <= 0 and left_usd >= 0 else int(left_usd / each + 1e-9) if each > 0 else 0
        if allowed <= 0 and not self._reserved:
            self.stop("cost", f"the next requests would pass {self._most_usd:.6g} USD")
            return 0
        return min(rows, allowed) if allowed > 0 else None

    def report(self, part: int, rows: int, usd: float) -> None:
        """So many rows of a part were answered, for so much."""
        self._reserved.pop(part, None)
        self._spent_usd += usd
        self._rows += rows
        self._rows_usd += usd

    def stop(self, ending: Ending, reason: str) -> None:
        """Nothing more is to be asked; the first ending counts."""
        if self.ending is None:
            self.ending, self.reason = ending, reason

    def ended(self) -> tuple[Ending | None, str]:
        return self.ending, self.reason

    def at_once(self) -> int:
        """Rows of parts that are asked now."""
        return sum(self._reserved.values())
