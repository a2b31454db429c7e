"""The closed form of an autoscaled fleet against its event simulation, and what any fleet must do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.fleet_simulation import arrival_times_s, simulate_fleet
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.service.autoscaling import Autoscaling, held_machines
from tonnage.service.rate_curve import RateCurve

TOLERANCE = 0.10  # windows are taken as independent, counts as gamma gaps; what is left is below a tenth


def random_case(seed: int) -> tuple[RateCurve, float, float, Autoscaling, float]:
    """A day's shape, a mean rate, a machine's capacity, a policy and the variation of the gaps."""
    random = np.random.default_rng(seed)
    wave = RateCurve.sinusoid(float(random.uniform(1, 8)))
    curve = wave if seed % 2 else RateCurve.of(random.uniform(0.2, 2.0, 24).tolist())
    rate = float(random.uniform(0.3, 1.5))
    policy = Autoscaling(
        minimum=int(random.integers(0, 3)),
        maximum=None if random.random() < 0.7 else int(random.integers(4, 12)),
        spare=int(random.integers(0, 2)),
        warm_up_s=float(random.uniform(30, 900)),
        scale_in_delay_s=float(random.uniform(0, 1800)),
        window_s=float(random.choice([60.0, 120.0, 300.0])),
    )
    return curve, rate, rate / float(random.uniform(0.5, 12.0)), policy, float(random.choice([0.5, 1.0, 1.0, 2.0, 3.0]))


def closed_over_simulated(seed: int) -> float:
    curve, rate, capacity, policy, variation = random_case(seed)
    stay_s = float(np.random.default_rng(seed + 10_000).uniform(0.5, 20.0))
    simulated = simulate_fleet(
        curve, rate, capacity, policy, concurrency=max(1, round(capacity * stay_s)), seed=seed, variation=variation
    )
    return held_machines(curve, rate, capacity, policy, variation=variation).mean / simulated.mean_machines


@pytest.mark.parametrize("seed", range(8))
def test_machines_held_are_those_of_the_simulation(seed: int) -> None:
    """A simulated day holds within 10 % of the machines that the closed form says."""
    assert closed_over_simulated(seed) == pytest.approx(1.0, abs=TOLERANCE)


@pytest.mark.slow
def test_machines_held_over_many_cases() -> None:
    """The same on 60 random cases: shapes, rates, bursts, delays, minima, maxima, spares."""
    errors = np.array([closed_over_simulated(seed) - 1.0 for seed in range(100, 160)])
    assert np.max(np.abs(errors)) <= TOLERANCE
    assert abs(float(np.median(errors))) <= 0.02


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(0.01, 200.0), machines=st.floats(0.2, 60.0), peak=st.floats(1.0, 10.0), spare=st.integers(0, 2),
    variation=st.floats(0.3, 4.0),
)  # fmt: skip
def test_more_load_never_holds_fewer_machines(
    rate: float, machines: float, peak: float, spare: int, variation: float
) -> None:
    """Twice the load holds at least as many machines, autoscaled or not; autoscaled never exceeds its own peak."""
    curve, capacity = RateCurve.sinusoid(peak), rate / machines
    for enabled in (True, False):
        policy = Autoscaling(enabled=enabled, spare=spare)
        once = held_machines(curve, rate, capacity, policy, variation=variation)
        twice = held_machines(curve, 2 * rate, capacity, policy, variation=variation)
        assert twice.mean >= once.mean * (1 - 2e-3)
        assert once.mean <= once.peak + 1e-9
        assert np.all(np.diff(once.at_least) <= 1e-9)


def test_a_fixed_fleet_stands_for_the_peak() -> None:
    """Peak 1.5 x 10/s over machines of 4/s: four, and one spare; a minimum and a maximum hold."""
    curve = RateCurve.sinusoid(3.0)
    fixed = Autoscaling(enabled=False)
    assert held_machines(curve, 10.0, 4.0, fixed).mean == 4
    assert held_machines(curve, 10.0, 4.0, replace(fixed, spare=1)).mean == 5
    assert held_machines(curve, 10.0, 4.0, replace(fixed, minimum=9)).mean == 9
    assert held_machines(curve, 10.0, 4.0, replace(fixed, maximum=3)).mean == 3


def test_autoscaling_saves_on_a_steep_day_and_not_on_a_flat_one() -> None:
    """Held machines against the fixed fleet of the same peak."""
    policy = Autoscaling()
    steep, flat = RateCurve.sinusoid(10.0), RateCurve()
    for curve, most in ((steep, 0.85), (flat, 1.3)):
        auto = held_machines(curve, 200.0, 10.0, policy).mean
        fixed = held_machines(curve, 200.0, 10.0, replace(policy, enabled=False)).mean
        assert auto / fixed < most
    assert held_machines(flat, 200.0, 10.0, policy).mean >= 20


def test_warm_up_shows_in_latency_and_headroom_answers_it() -> None:
    """Without headroom a long warm-up lets requests wait; the headroom of the curve keeps them from it."""
    curve = RateCurve.of([0.05] * 8 + [1.0] * 16)
    slow = Autoscaling(warm_up_s=1200.0, headroom=0.0, window_s=60.0)
    late = simulate_fleet(curve, 2.0, 0.5, slow, concurrency=1, seed=1)
    early = simulate_fleet(curve, 2.0, 0.5, replace(slow, headroom=1.0), concurrency=1, seed=1)
    assert early.latency_p95_s < late.latency_p95_s / 2
    assert early.machine_hours > late.machine_hours


def test_simulated_arrivals_follow_the_curve() -> None:
    """Counts of each hour are those of the curve; the variation of the gaps is as asked on a flat day."""
    random = np.random.default_rng(0)
    curve = RateCurve.sinusoid(4.0)
    times = arrival_times_s(curve, 2.0, 1.0, 5.0, random)
    counts = np.histogram(np.mod(times, 86_400.0), bins=24, range=(0, 86_400))[0] / 5.0
    assert counts == pytest.approx(np.array(curve.multipliers) * 7200.0, rel=0.05)
    for variation in (0.5, 1.0, 3.0):
        gaps = np.diff(arrival_times_s(RateCurve(), 1.0, variation, 1.0, random))
        assert np.std(gaps) / np.mean(gaps) == pytest.approx(variation, rel=0.05)


def test_a_bad_day_or_policy_is_refused() -> None:
    """Hourly values are 24, finite, not negative, not all zero; bounds of a fleet are in order."""
    for values in ([1.0] * 23, [1.0] * 23 + [float("nan")], [1.0] * 23 + [-1.0], [0.0] * 24):
        with pytest.raises(InputError):
            RateCurve.of(values)
    with pytest.raises(InputError):
        RateCurve.sinusoid(0.5)
    for changes in ({"minimum": 3, "maximum": 2}, {"spare": -1}, {"window_s": 0.0}, {"warm_up_s": float("nan")}):
        with pytest.raises(InputError):
            Autoscaling(**changes)  # type: ignore[arg-type]
