"""Spot: the interval and the expected time against closed forms and a simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.pricing.interruptions import Terms, expected_run, young_interval_s

TERMS = Terms(startup_s=300.0, checkpoint_s=60.0, interruptions_per_hour=0.5)


def run(hours: float, terms: Terms, nodes: float = 1.0) -> float:
    return float(expected_run(np.array([hours * 3600.0]), np.array([nodes]), terms).expected_s[0])


def test_without_interruptions_only_checkpoints_cost() -> None:
    """At a vanishing rate the expected time is the work (one interval covers it all, and one save)."""
    assert run(10, replace(TERMS, interruptions_per_hour=0.0)) == pytest.approx(10 * 3600 + 60, rel=1e-3)


def test_expected_time_matches_a_simulation() -> None:
    """Daly's formula within 3 % of 4,000 simulated runs that lose everything since the last save."""
    work, interval = 6 * 3600.0, 1800.0
    terms = replace(TERMS, checkpoint_interval_s=interval)
    random = np.random.default_rng(7)
    rate = terms.interruptions_per_hour / 3600

    def simulate() -> float:
        clock, done = 0.0, 0.0
        while done < work:
            need = interval + terms.checkpoint_s
            failure = random.exponential(1 / rate)
            if failure >= need:
                clock, done = clock + need, done + interval
            else:
                clock += failure
                restart = random.exponential(1 / rate)
                while restart < terms.startup_s:  # an interruption while starting: start again
                    clock += restart
                    restart = random.exponential(1 / rate)
                clock += terms.startup_s
        return clock

    mean = float(np.mean([simulate() for _ in range(4000)]))
    assert run(6, terms) == pytest.approx(mean, rel=0.03)


def test_young_interval_is_near_the_best_one() -> None:
    """No interval of a fine grid beats Young's choice by more than 2 %."""
    chosen = run(24, TERMS)
    others = [run(24, replace(TERMS, checkpoint_interval_s=float(tau))) for tau in range(120, 7200, 60)]
    assert min(others) > 0.98 * chosen
    assert young_interval_s(60.0, np.array([0.5 / 3600]))[0] == pytest.approx(math.sqrt(2 * 60 * 7200))


@given(hours=st.floats(0.01, 100), rate=st.floats(0, 2), more=st.floats(0, 2), nodes=st.integers(1, 16))
def test_never_less_than_the_work_and_never_better_with_more_interruptions(
    hours: float, rate: float, more: float, nodes: int
) -> None:
    """Expected time is at least the work, and grows with the rate and the nodes."""
    base = replace(TERMS, checkpoint_interval_s=900.0)
    calm, rough = (
        replace(base, interruptions_per_hour=rate),
        replace(base, interruptions_per_hour=rate + more),
    )
    assert run(hours, calm, nodes) >= hours * 3600 * 0.999
    assert run(hours, rough, nodes) >= run(hours, calm, nodes) * 0.999
    assert run(hours, calm, nodes + 1) >= run(hours, calm, nodes) * 0.999


def test_without_checkpoints_a_long_spot_run_diverges() -> None:
    """One save at the end of 400 h on 8 machines at 0.5 interruptions an hour has no finite expectation in practice."""
    assert run(400, replace(TERMS, checkpoint_interval_s=400 * 3600.0), nodes=8) > 1e300
