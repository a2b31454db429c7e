"""Limits hold whatever the run does: simulated runs on a clock of their own, and the arithmetic of bills."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import PlanRefused
from tonnage.runs.guards import (
    KILL_MARGIN_S,
    Forecast,
    SpendMeter,
    billed_usd,
    breach,
    check_guard,
    forecast,
    must_kill,
    save_allowance_s,
)
from tonnage.runs.spec import GuardSpec
from tonnage.runs.states import RunReason

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Outcome:
    held_s: float
    saved: bool
    killed: bool


TICK_S = 0.5  # slower than the supervisor's own; with the time a kill takes still inside KILL_MARGIN_S


def simulate(guard: GuardSpec, *, step_s: float, slow_from: int, factor: float, save_s: float) -> Outcome:
    """A supervisor over a worker that answers a request only at the end of a step, and turns slow on the way."""
    now, steps, asked = 0.0, 0, False
    saves: list[float] = []
    times: list[float] = []
    step_ends, save_ends = step_s, None
    while True:
        if must_kill(guard, SpendMeter(held_s=now)):
            return Outcome(now + KILL_MARGIN_S - TICK_S - 0.01, saved=False, killed=True)
        allowance_s = save_allowance_s(guard, saves_s=saves, steps_s=times)
        asked = asked or breach(guard, SpendMeter(held_s=now), save_s=allowance_s) is not None
        if save_ends is None and now >= step_ends:
            steps += 1
            taken = step_s * (factor if steps >= slow_from else 1.0)
            times, step_ends = [*times, taken][-50:], now + taken
            if asked or steps % 20 == 0:
                save_ends = now + save_s
        if save_ends is not None and now >= save_ends:
            saves, save_ends, step_ends = [*saves, save_s][-5:], None, now + times[-1]
            if asked:
                return Outcome(now, saved=True, killed=False)
        now += TICK_S


@settings(deadline=None, max_examples=80)
@given(
    whole_s=st.floats(2, 2000), rate=st.floats(1, 100), quantum=st.sampled_from([1.0, 60.0, 3600.0]),
    step_s=st.floats(0.5, 30), slow_from=st.integers(1, 60), factor=st.sampled_from([1.0, 3.0, 10.0, 1000.0]),
    save_s=st.floats(0.1, 120),
)  # fmt: skip
def test_spend_stays_within_a_quantum_of_the_cap(
    whole_s: float, rate: float, quantum: float, step_s: float, slow_from: int, factor: float, save_s: float
) -> None:
    """However slow steps become and however long a save takes, the bill is at most the cap and one billing quantum."""
    cap = whole_s / 3600 * rate
    guard = GuardSpec(max_cost_usd=cap, usd_per_hour=rate, billing_quantum_s=quantum)
    outcome = simulate(guard, step_s=step_s, slow_from=slow_from, factor=factor, save_s=save_s)
    assert billed_usd(outcome.held_s, rate, quantum) <= cap + quantum / 3600 * rate + 1e-6


def test_a_steady_run_is_saved_inside_its_cap() -> None:
    """With steps and saves as before, the save itself is paid for by the cap, without a kill."""
    guard = GuardSpec(max_cost_usd=1.0, usd_per_hour=10.0, billing_quantum_s=1.0)
    outcome = simulate(guard, step_s=1.0, slow_from=10_000, factor=1.0, save_s=5.0)
    assert (outcome.saved, outcome.killed) == (True, False)
    assert billed_usd(outcome.held_s, 10.0, 1.0) <= 1.0
    assert outcome.held_s > 0.9 * 360  # nor does it stop long before


def test_every_quantum_begun_is_paid() -> None:
    """Seconds by the minute, hours by the hour."""
    assert billed_usd(0.0, 36.0, 60) == 0
    assert billed_usd(1.0, 36.0, 60) == pytest.approx(0.6)
    assert billed_usd(3600.0, 36.0, 3600) == pytest.approx(36.0)
    assert billed_usd(3601.0, 36.0, 3600) == pytest.approx(72.0)


def test_a_cost_limit_without_a_price_is_refused() -> None:
    """Nobody can hold it: the hint says how to give the price."""
    with pytest.raises(PlanRefused) as refused:
        check_guard(GuardSpec(max_cost_usd=5.0))
    assert "--usd-per-hour" in (refused.value.hint or "")
    check_guard(GuardSpec(max_cost_usd=5.0, usd_per_hour=1.0))
    check_guard(GuardSpec(max_s=5.0))


@pytest.mark.parametrize(
    ("guard", "meter", "reason"),
    [
        (
            GuardSpec(max_cost_usd=1, usd_per_hour=3600, billing_quantum_s=1),
            SpendMeter(held_s=0.5),
            RunReason.COST_LIMIT,
        ),
        (GuardSpec(max_s=100), SpendMeter(held_s=95), RunReason.TIME_LIMIT),
        (GuardSpec(max_s=100), SpendMeter(held_s=5, earlier_s=90), RunReason.TIME_LIMIT),
        (GuardSpec(idle_s=60), SpendMeter(held_s=500, idle_s=61), RunReason.IDLE),
    ],
)
def test_each_limit_is_named(guard: GuardSpec, meter: SpendMeter, reason: RunReason) -> None:
    """The breach names the limit and the value; a moment before there is none."""
    found = breach(guard, meter, save_s=10)
    assert found is not None
    assert found.reason is reason
    assert breach(guard, SpendMeter(held_s=0.0), save_s=0.0) is None


def test_no_limit_is_never_reached() -> None:
    """A run without limits may run forever."""
    assert breach(GuardSpec(), SpendMeter(held_s=1e9, idle_s=1e9), save_s=1e9) is None
    assert not must_kill(GuardSpec(), SpendMeter(held_s=1e9))


def test_what_earlier_sessions_spent_counts() -> None:
    """A run that was resumed has less left."""
    guard = GuardSpec(max_cost_usd=10, usd_per_hour=3600, billing_quantum_s=1)
    assert breach(guard, SpendMeter(held_s=5), save_s=1) is None
    assert breach(guard, SpendMeter(held_s=5, earlier_usd=5), save_s=1) is not None


def see(guard: GuardSpec, steps_s: list[float], steps_left: int | None = 100) -> Forecast | None:
    return forecast(guard, SpendMeter(held_s=100), steps_left=steps_left, steps_s=steps_s, now=NOON)


def test_forecast_of_steady_steps() -> None:
    """100 steps of 2 s: 200 s more, at a price by the second, with no spread."""
    guard = GuardSpec(usd_per_hour=3600, billing_quantum_s=1, max_cost_usd=250)
    seen = see(guard, [2.0] * 10)
    assert seen is not None
    assert (seen.usd, seen.low_usd, seen.high_usd) == (300, 300, 300)
    assert (seen.end_at - NOON).total_seconds() == 200
    assert seen.over(guard)
    assert not seen.over(replace(guard, max_cost_usd=301))


def test_forecast_interval_holds_the_spread() -> None:
    """Uneven steps widen the interval; more of them narrow it again."""
    guard = GuardSpec(usd_per_hour=3600, billing_quantum_s=1)
    few, many = see(guard, [1.0, 3.0] * 2), see(guard, [1.0, 3.0] * 25)
    assert few is not None
    assert many is not None
    assert few.low_usd < many.low_usd < many.usd < many.high_usd < few.high_usd  # type: ignore[operator]


def test_no_forecast_where_the_end_is_not_known() -> None:
    """Unknown is unknown: no total, too few steps; without a price the time alone."""
    assert see(GuardSpec(), [2.0] * 10, steps_left=None) is None
    assert see(GuardSpec(), [2.0] * 2) is None
    timed = see(GuardSpec(), [2.0] * 10)
    assert timed is not None
    assert timed.usd is None
