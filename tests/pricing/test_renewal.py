"""Expected time and bill with checkpoints: closed forms for exponential lives, simulation for all others."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, expm1, floor, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.pricing.renewal import (
    Lifetime,
    RenewalTerms,
    best_interval,
    by_age,
    daly_hours,
    exponential,
    renewal_run,
    weibull,
)

TERMS = RenewalTerms(startup_h=0.1, save_h=0.02, wait_h=0.7)
Draw = Callable[[np.random.Generator], float]
LAWS: list[tuple[Lifetime, Draw]] = [
    (exponential(0.5), lambda random: float(random.exponential(2.0))),
    (weibull(0.6, 1.5), lambda random: 1.5 * float(random.weibull(0.6))),
    (weibull(1.5, 3.0), lambda random: 3.0 * float(random.weibull(1.5))),
]


def simulated(work_h: float, interval_h: float, draw: Draw, terms: RenewalTerms, runs: int = 6000) -> tuple[float, ...]:
    """Mean hours on the clock and on the bill, and preemptions, run by run."""
    random = np.random.default_rng(5)
    clock = bill = lost = 0.0
    for _ in range(runs):
        left = work_h
        while True:
            segments = int(np.ceil(left / interval_h - 1e-9))
            need = terms.startup_h + left + (segments - 1) * terms.save_h
            life = draw(random)
            if life >= need:
                clock, bill = clock + need, bill + need
                break
            saved = max(0, floor((life - terms.startup_h) / (interval_h + terms.save_h)))
            left -= min(saved, segments - 1) * interval_h
            clock, bill, lost = clock + life + terms.wait_h, bill + life, lost + 1
    return clock / runs, bill / runs, lost / runs


@pytest.mark.parametrize("law", range(len(LAWS)))
@pytest.mark.parametrize(("work_h", "interval_h"), [(5.0, 1.0), (3.3, 0.5), (2.0, 2.0), (4.0, 0.3)])
def test_it_is_what_a_simulation_finds(law: int, work_h: float, interval_h: float) -> None:
    """Within 5 %, four standard errors or so of 6,000 runs."""
    lifetime, draw = LAWS[law]
    found = renewal_run(work_h, interval_h, lifetime, TERMS)
    clock, bill, lost = simulated(work_h, interval_h, draw, TERMS)
    assert found.expected_h == pytest.approx(clock, rel=0.05)
    assert found.billed_h == pytest.approx(bill, rel=0.05)
    assert found.preemptions == pytest.approx(lost, rel=0.06)


@given(work_h=st.floats(0.1, 10.0), rate=st.floats(0.01, 1.0), startup_h=st.floats(0.0, 0.5))
def test_without_checkpoints_it_is_the_closed_form(work_h: float, rate: float, startup_h: float) -> None:
    """Exponential lives, nothing saved: (e^(λ(R + W)) - 1) / λ billed hours."""
    terms = RenewalTerms(startup_h=startup_h, save_h=0.1, wait_h=0.0)
    found = renewal_run(work_h, work_h, exponential(rate), terms)
    assert found.billed_h == pytest.approx(expm1(rate * (work_h + startup_h)) / rate, rel=1e-9)
    assert found.expected_h == pytest.approx(found.billed_h, rel=1e-9)


def test_a_law_by_age_with_one_rate_is_the_exponential() -> None:
    ages = (0.0, 0.5, 2.0)
    for work_h, interval_h in ((5.0, 0.7), (9.0, 2.5)):
        flat = renewal_run(work_h, interval_h, by_age(ages, (0.4, 0.4, 0.4)), TERMS)
        known = renewal_run(work_h, interval_h, exponential(0.4), TERMS)
        assert flat.expected_h == pytest.approx(known.expected_h, rel=1e-9)


def test_it_meets_daly_where_both_hold() -> None:
    """Exponential lives and no wait: within 2 % of Daly's formula, which saves once more and starts up freely."""
    terms = RenewalTerms(startup_h=0.05, save_h=0.02, wait_h=0.0)
    found = renewal_run(50.0, 0.5, exponential(0.3), terms)
    assert found.billed_h == pytest.approx(daly_hours(50.0, 0.5, 0.3, terms), rel=0.02)
    assert daly_hours(1e5, 1e5, 0.3, terms) == inf


def test_no_interval_of_a_grid_beats_the_best() -> None:
    law = by_age((0.0, 0.5, 2.0, 8.0), (1.2, 0.5, 0.2, 0.05))
    best = best_interval(12.0, law, TERMS)
    grid = [renewal_run(12.0, float(tau), law, TERMS).billed_h for tau in np.geomspace(0.02, 12.0, 120)]
    assert best.billed_h <= min(grid) * 1.002


def test_where_spot_never_goes_nothing_is_saved() -> None:
    """The best interval is the whole work."""
    assert best_interval(10.0, exponential(1e-9), TERMS).interval_h == 10.0


def test_falling_hazards_lose_less_than_their_mean_rate_says() -> None:
    """The same mean life, nothing saved: a Weibull of shape 0.6 needs fewer hours than the exponential."""
    mean_h = 3.0
    scale_h = mean_h / 1.5045754851015187  # Γ(1 + 1/0.6)
    steady, falling = (renewal_run(8.0, 8.0, law, TERMS) for law in (exponential(1 / mean_h), weibull(0.6, scale_h)))
    assert falling.expected_h < steady.expected_h


@given(
    work_h=st.floats(0.5, 20.0),
    interval_h=st.floats(0.1, 20.0),
    shape=st.floats(0.5, 1.2),
    scale_h=st.floats(1.0, 20.0),
)
def test_never_less_than_the_work_and_more_with_more_risk(
    work_h: float, interval_h: float, shape: float, scale_h: float
) -> None:
    """Bounds: the undisturbed run from below; a law that dies twice as fast is never better."""
    calm, rough = (renewal_run(work_h, interval_h, weibull(shape, one), TERMS) for one in (scale_h, scale_h / 2))
    assert calm.billed_h >= work_h
    assert calm.expected_h >= calm.billed_h
    assert rough.billed_h >= calm.billed_h * (1 - 1e-9)


def test_what_cannot_end_is_infinite() -> None:
    """Survival that underflows gives infinity, neither an error nor a number."""
    found = renewal_run(5000.0, 5000.0, exponential(1.0), TERMS)
    assert found.expected_h == inf
    assert exp(-5000.0) == 0.0
