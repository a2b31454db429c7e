"""Hours on the bill: rounding as providers round, schedules, commitments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.pricing.usage import Sessions, billed_hours, run_sessions, unused_hours
from tonnage.workload.jobs import BuyTerms, Schedule


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


ROUNDING = [  # seconds on, quantum, minimum, seconds billed
    (30.0, 1, 60, 60), (61.4, 1, 60, 61.4), (30.0, 1, 300, 300), (61.0, 60, 60, 120), (120.0, 60, 60, 120),
    (3601.0, 3600, 3600, 7200), (10.0, 0, 0, 10),
]  # fmt: skip


@pytest.mark.parametrize(("on_s", "quantum_s", "minimum_s", "billed_s"), ROUNDING)
def test_time_is_rounded_as_the_provider_rounds(
    on_s: float, quantum_s: float, minimum_s: float, billed_s: float
) -> None:
    """Up to the quantum and to at least the minimum; by the second and where no rule is known, as it is."""
    one = Sessions(count=column(1), on_s=column(on_s), wall_s=column(on_s))
    billed = billed_hours(one, idle_s=0.0, quantum_s=column(quantum_s), minimum_s=column(minimum_s))
    assert billed[0] * 3600 == pytest.approx(billed_s)


@given(st.floats(1, 1e7), st.sampled_from([0, 1, 60, 3600]), st.sampled_from([0, 60, 3600]), st.floats(0, 1e4))
def test_more_is_never_billed_as_less(on_s: float, quantum_s: float, minimum_s: float, idle_s: float) -> None:
    """The bill covers the time and the idle tail, and exceeds them by less than a quantum above the minimum."""
    one = Sessions(count=column(1), on_s=column(on_s), wall_s=column(on_s))
    billed = 3600 * billed_hours(one, idle_s=idle_s, quantum_s=column(quantum_s), minimum_s=column(minimum_s))[0]
    used = on_s + idle_s
    assert billed >= used * (1 - 1e-9) - 1e-4
    assert billed <= max(used + max(quantum_s, 1e-6), minimum_s) * (1 + 1e-9)


def test_a_schedule_cuts_work_into_days() -> None:
    """20 h of work on 8 h days with 15 min to start: 7.75 h of work a day, three days, three starts, nights between."""
    schedule = Schedule(hours_per_day=8, days_per_month=365.25 / 12)
    sessions = run_sessions(column(20 * 3600), 900.0, schedule)
    assert sessions.count[0] == 3
    assert sessions.on_s[0] == pytest.approx(20 * 3600 + 3 * 900)
    last_day_h = 20 - 2 * 7.75 + 0.25
    assert sessions.wall_s[0] == pytest.approx((2 * 24 + last_day_h) * 3600)
    alone = run_sessions(column(20 * 3600), 900.0, None)
    assert alone.wall_s[0] == pytest.approx(20 * 3600 + 900)
    assert np.isinf(run_sessions(column(60), 8 * 3600.0, schedule).wall_s[0])


COMMITTED = [  # buy, service, billed hours, hours committed and not used
    (BuyTerms(), False, 100.0, 8660.0),
    (BuyTerms(reserved_owned=True), False, 100.0, 0.0),
    (BuyTerms(reserved_utilization=0.8), False, 100.0, 25.0),
    (BuyTerms(), True, 176.0, 554.0),
    (BuyTerms(reserved_utilization=0.8), True, 176.0, 554.0),
    (BuyTerms(), False, 9000.0, 8520.0),
]


@pytest.mark.parametrize(("buy", "service", "billed_h", "unused_h"), COMMITTED)
def test_committed_hours_are_paid(buy: BuyTerms, service: bool, billed_h: float, unused_h: float) -> None:
    """A job pays the term, its share, or only its hours; a service its month. Without a commitment nothing is added."""
    found = unused_hours(column(billed_h, billed_h), column(8760.0, 0.0), buy, service=service)
    assert found.tolist() == pytest.approx([unused_h, 0.0])
