"""When a second deployment is asked for the same answer: after the time that all but few first bytes take."""

from __future__ import annotations

from collections import deque
from typing import Final

from tonnage.gateway.routing.health import RetryBudget

SLOWEST_SHARE: Final = 0.05  # of first bytes come later than the 95th percentile
FEWEST_TIMES: Final = 20  # below which a 95th percentile says nothing
MOST_TIMES: Final = 200


class HedgePolicy:
    """Of one route in one worker. `after_s`: None, the 95th percentile of the deployment's first bytes so far."""

    def __init__(self, after_s: float | None, share: float) -> None:
        self._after_s = after_s
        self.budget = RetryBudget(share)
        self._times: dict[tuple[str, bool], deque[float]] = {}

    def after_s(self, deployment: str, *, stream: bool) -> float | None:
        """Seconds without a first byte after which to ask another one; None: too few are known.

        A whole answer's first byte comes when it is written, a stream's when it begins: each has times of its own.
        """
        if self._after_s is not None:
            return self._after_s
        times = self._times.get((deployment, stream), ())
        if len(times) < FEWEST_TIMES:
            return None
        return sorted(times)[int(len(times) * (1.0 - SLOWEST_SHARE))]

    def record(self, deployment: str, seconds: float, *, stream: bool) -> None:
        self._times.setdefault((deployment, stream), deque(maxlen=MOST_TIMES)).append(seconds)
