"""What a run took and cost, by its journal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tonnage.runs import Event, EventKind
from tonnage.runs.guards import sessions_of
from tonnage.runs.spec import GuardSpec

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
K = EventKind


def events(*told: tuple[EventKind, float]) -> list[Event]:
    return [Event(kind=kind, at=NOON + timedelta(seconds=second), who="supervisor") for kind, second in told]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([(K.SUBMITTED, 0)], []),
        ([(K.SUBMITTED, 0), (K.STARTED, 5), (K.SUCCEEDED, 65)], [(60, 1, True)]),
        ([(K.STARTED, 0), (K.RESTARTING, 50), (K.STARTED, 80), (K.SUCCEEDED, 100)], [(100, 2, True)]),
        ([(K.STARTED, 0), (K.STOPPED, 10), (K.STARTED, 1000), (K.FAILED, 1005)], [(10, 1, True), (5, 1, True)]),
        ([(K.STARTED, 0), (K.CHECKPOINT, 30)], [(30, 1, False)]),
        ([(K.STARTED, 0), (K.CHECKPOINT, 30), (K.LOST, 900), (K.STARTED, 950)], [(30, 1, False), (0, 1, False)]),
    ],
)
def test_sessions_hold_machines(told: list[tuple[EventKind, float]], expected: list[tuple[float, int, bool]]) -> None:
    """From start to end with the waits for restarts; not while it was stopped; lost ones to the last sign of life."""
    found = sessions_of(events(*told), GuardSpec())
    assert [(one.seconds, one.attempts, one.ended_at is not None) for one in found] == expected
    assert all(one.usd is None for one in found)


def test_every_quantum_begun_is_paid() -> None:
    """61 seconds at a dollar a minute, billed by the minute, are two dollars; by the second, a little over one."""
    told = events((K.STARTED, 0), (K.SUCCEEDED, 61))
    (by_minute,) = sessions_of(told, GuardSpec(usd_per_hour=60.0))
    (by_second,) = sessions_of(told, GuardSpec(usd_per_hour=60.0, billing_quantum_s=1.0))
    assert by_minute.usd == pytest.approx(2.0)
    assert by_second.usd == pytest.approx(61 / 60)
