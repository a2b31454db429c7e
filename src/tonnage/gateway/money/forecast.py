"""When a budget will be reached at the present rate, and whether that is worth a warning, with hysteresis.

The rate is what an account grew by over the last while, by samples of what it has committed that workers take a few
times an hour and keep for days. Whether it warns follows from the samples alone, oldest first: each worker that is
asked, also one that has just begun, says the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, NamedTuple, get_args

from tonnage.gateway.money.allowances import Allowance, Window
from tonnage.gateway.money.sql_store import SqlStore
from tonnage.values import dataclass

HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0
LEAST_MEASURED_S: Final = 240.0  # of less no rate is said
WARNS_FROM: Final = 1.0  # the expected share of the budget at the end of its window
CALM_BELOW: Final = 0.9
SAMPLES_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS spend_samples (allowance TEXT NOT NULL, slot BIGINT NOT NULL,"
    " at DOUBLE PRECISION NOT NULL, begin BIGINT NOT NULL, committed BIGINT NOT NULL, PRIMARY KEY (allowance, slot))"
)
EVER_AHEAD_S: Final = 7 * DAY_S  # a budget without an end warns so long before it is reached
SLOT_S: Final[dict[Window, float]] = {"minute": 300.0, "day": 300.0, "month": HOUR_S, "ever": HOUR_S}  # between samples
_RATE_OVER_S: Final[dict[Window, float]] = {"minute": HOUR_S, "day": HOUR_S, "month": DAY_S, "ever": DAY_S}
KEPT_S: Final[dict[Window, float]] = {"minute": HOUR_S, "day": 4 * HOUR_S, "month": 3 * DAY_S, "ever": 3 * DAY_S}


class SpendSample(NamedTuple):
    """What an account had committed at a moment, in its window that began at `begin`; pico-dollars."""

    at_s: float
    begin: int
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendForecast:
    """`pico_per_s`: the rate, measured over `over_s`; `reached_in_s`: at that rate, None: not within its window, or
    never; `share_at_end`: of the cap, at the end of the window (without one: in seven days)."""

    pico_per_s: float
    over_s: float
    reached_in_s: float | None
    share_at_end: float
    warns: bool


def forecast(budget: Allowance, taken: int, samples: Sequence[SpendSample], now_s: float) -> SpendForecast | None:
    """Of a budget in dollars with `taken` settled in its present window. `samples`: of its account, oldest first; None:
    they do not reach back far enough for a rate.

    A warning begins where the budget will be used up before its window ends, and stays until less than nine tenths of
    it are expected to be, or a new window begins.
    """
    begin = budget.begin(datetime.fromtimestamp(now_s, UTC))
    points = [*(one for one in samples if one.at_s < now_s), SpendSample(now_s, begin, taken)]
    spent = [0]
    for before, after in pairwise(points):
        grown = after.committed - (before.committed if after.begin == before.begin else 0)
        spent.append(spent[-1] + max(grown, 0))
    warns, found = False, None
    for index, point in enumerate(points):
        if point.begin != begin:
            continue
        found = _at(budget, points, spent, index)
        if found is not None:
            warns = found[2] > CALM_BELOW if warns else found[2] >= WARNS_FROM
    if found is None:
        return None
    rate, over_s, share = found
    left = budget.cap - taken
    end_s = _end_s(budget, now_s)
    reached_in_s = 0.0 if left <= 0 else left / rate if rate > 0 else None
    if reached_in_s is not None and end_s is not None and reached_in_s > end_s - now_s:
        reached_in_s = None
    return SpendForecast(
        pico_per_s=rate, over_s=over_s, reached_in_s=reached_in_s, share_at_end=share, warns=warns or left <= 0
    )


class SpendSamples(SqlStore):
    """What workers sample, and who asks reads."""

    def sample(self, now_s: float) -> None:
        """The accounts of budgets as they are, once in each slot, whichever worker comes first; old ones go."""
        with self._write() as cursor:
            for window in get_args(Window):
                name = f"usd/{window}/%"
                slot = int(now_s // SLOT_S[window])
                self._run(
                    cursor,
                    "INSERT INTO spend_samples SELECT a.allowance, CAST(? AS BIGINT), CAST(? AS DOUBLE PRECISION),"
                    " a.begin, a.committed FROM accounts a WHERE a.allowance LIKE ? AND a.begin ="
                    " (SELECT max(b.begin) FROM accounts b WHERE b.allowance = a.allowance)"
                    " ON CONFLICT (allowance, slot) DO NOTHING",
                    (slot, now_s, name),
                )
                self._run(
                    cursor,
                    "DELETE FROM spend_samples WHERE allowance LIKE ? AND at < ?",
                    (name, now_s - KEPT_S[window]),
                )

    def samples(self) -> dict[str, list[SpendSample]]:
        """By allowance, oldest first."""
        with self._read() as cursor:
            rows = cursor.execute(
                "SELECT allowance, at, begin, committed FROM spend_samples ORDER BY allowance, at"
            ).fetchall()
        found: defaultdict[str, list[SpendSample]] = defaultdict(list)
        for name, at, begin, committed in rows:
            found[str(name)].append(SpendSample(float(at), int(begin), int(committed)))
        return dict(found)


def _at(
    budget: Allowance, points: Sequence[SpendSample], spent: Sequence[int], index: int
) -> tuple[float, float, float] | None:
    """Rate, seconds it is measured over, expected share of the cap at the end, as known at a point."""
    now_s = points[index].at_s
    first = bisect_right(points, now_s - _RATE_OVER_S[budget.window] - SLOT_S[budget.window], key=lambda one: one.at_s)
    over_s = now_s - points[first].at_s
    if over_s < LEAST_MEASURED_S:
        return None
    rate = (spent[index] - spent[first]) / over_s
    end_s = _end_s(budget, now_s)
    ahead_s = EVER_AHEAD_S if end_s is None else end_s - now_s
    return rate, over_s, (points[index].committed + rate * ahead_s) / budget.cap


def _end_s(budget: Allowance, now_s: float) -> float | None:
    end = budget.end(datetime.fromtimestamp(now_s, UTC))
    return None if end is None else end.timestamp()
