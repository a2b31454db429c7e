"""Samples of what accounts have committed, a few an hour, kept for days: what the rates of forecasts rest on."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, get_args

from tonnage.gateway.money.allowances import Window
from tonnage.gateway.money.forecast import KEPT_S, SLOT_S, SpendSample
from tonnage.gateway.money.sql_store import SqlStore

SAMPLES_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS spend_samples (allowance TEXT NOT NULL, slot BIGINT NOT NULL,"
    " at DOUBLE PRECISION NOT NULL, begin BIGINT NOT NULL, committed BIGINT NOT NULL, PRIMARY KEY (allowance, slot))"
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
