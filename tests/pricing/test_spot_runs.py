"""Spot runs in columns against the exact renewal computation, a simulation, and what any such figure must do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.pricing.renewal import RenewalTerms, best_interval, by_age, renewal_run
from tonnage.pricing.spot_runs import SpotTerms, expected_spot_runs, mean_life_to, save_interval_h, survival

AGES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
FALLING = np.array([1.15, 1.1, 0.65, 0.38, 0.24, 0.18, 0.14, 0.09])


def terms(factor: float = 0.74, *, startup: float = 1 / 12, save: float = 1 / 60, wait: float = 1.1) -> SpotTerms:
    return SpotTerms(
        ages_h=AGES, hazard_per_h=(FALLING * factor)[None, :], startup_h=np.array([startup]), save_h=np.array([save]),
        wait_h=np.array([wait]),
    )  # fmt: skip


def exact(work: float, interval: float, factor: float, save: float) -> tuple[float, float]:
    found = renewal_run(
        work, interval, by_age(AGES, tuple(FALLING * factor)), RenewalTerms(startup_h=1 / 12, save_h=save, wait_h=1.1)
    )
    return found.billed_h, found.expected_h


@pytest.mark.parametrize("factor", [0.1, 0.74, 2.0])
@pytest.mark.parametrize("work", [0.1, 0.5, 3.0, 10.0, 100.0, 300.0])
@pytest.mark.parametrize(("save_s", "within"), [(1.0, 0.015), (10.0, 0.004), (60.0, 0.004), (300.0, 0.004)])
def test_columns_are_the_exact_renewal(factor: float, work: float, save_s: float, within: float) -> None:
    """The bill is that of the segment-by-segment computation; exactly so up to 40 segments."""
    found = expected_spot_runs(np.array([work]), terms(factor, save=save_s / 3600))
    interval = float(found.interval_h[0])
    billed, clock = exact(work, interval, factor, save_s / 3600)
    tolerance = 1e-9 if work / interval <= 40.5 else within
    assert float(found.billed_h[0]) == pytest.approx(billed, rel=tolerance)
    assert float(found.billed_h[0] + found.waiting_h[0]) == pytest.approx(clock, rel=max(8 * tolerance, 1e-9))


@pytest.mark.parametrize("work", [0.3, 1.0, 5.0, 20.0, 80.0])
@pytest.mark.parametrize("save_s", [10.0, 60.0])
def test_the_interval_costs_little_more_than_the_best(work: float, save_s: float) -> None:
    """Daly's rule at the rate within the work is within 3 % of the searched interval's bill."""
    one = terms(save=save_s / 3600)
    law, saves = by_age(AGES, tuple(FALLING * 0.74)), RenewalTerms(startup_h=1 / 12, save_h=save_s / 3600, wait_h=1.1)
    best = best_interval(work, law, saves).billed_h
    chosen = float(save_interval_h(np.array([work]), one)[0])
    assert renewal_run(work, chosen, law, saves).billed_h < best * 1.03


def test_laws_have_closed_forms() -> None:
    """Survival and mean life against sums over a fine grid."""
    grid = np.linspace(0.0, 30.0, 300_001)
    alive = survival(terms(), grid[None, :])[0]
    assert alive[0] == 1.0
    summed = np.cumsum((alive[1:] + alive[:-1]) / 2) * (grid[1] - grid[0])
    for age in (0.2, 1.5, 7.0, 29.0):
        place = int(age / 30 * 300_000)
        assert float(mean_life_to(terms(), np.array([[age]]))[0, 0]) == pytest.approx(summed[place - 1], rel=1e-4)


def test_a_simulation_of_kept_items_agrees() -> None:
    """Nothing is saved, 36 s are in flight: 3,000 simulated runs of 4 h have the same mean bill within 2 %."""
    random = np.random.default_rng(5)
    per_h, start, flying = 0.8, 0.1, 0.01
    constant = SpotTerms(
        ages_h=AGES, hazard_per_h=np.full((1, 8), per_h), startup_h=np.array([start]), save_h=np.zeros(1),
        wait_h=np.zeros(1),
    )  # fmt: skip
    bills = []
    for _ in range(3000):
        left, paid = 4.0, 0.0
        while left > 1e-12:
            life = random.exponential(1 / per_h)
            done = max(np.floor((life - start) / flying), 0) * flying
            paid += min(life, start + left)
            left -= min(done, left) if life < start + left else left
        bills.append(paid)
    found = expected_spot_runs(np.array([4.0]), constant, interval_h=np.array([flying]))
    assert float(found.billed_h[0]) == pytest.approx(np.mean(bills), rel=0.02)


@settings(max_examples=60, deadline=None)
@given(work=st.floats(0.02, 300.0), factor=st.floats(0.01, 3.0), save=st.floats(0.0005, 0.2), more=st.floats(1.01, 3.0))
def test_more_work_and_more_losses_never_cost_less(work: float, factor: float, save: float, more: float) -> None:
    """Bills are no less than work and start-up, grow with the work and with the hazard; parts sum to the bill."""
    one = expected_spot_runs(np.array([work]), terms(factor, save=save))
    longer = expected_spot_runs(np.array([work * more]), terms(factor, save=save))
    riskier = expected_spot_runs(np.array([work]), terms(factor * more, save=save))
    assert float(one.billed_h[0]) >= work
    assert float(longer.billed_h[0]) >= float(one.billed_h[0]) * 0.999
    assert float(riskier.preemptions[0]) >= float(one.preemptions[0]) * 0.99
    parts = work + 1 / 12 + one.saving_h[0] + one.redone_h[0]
    assert float(one.billed_h[0]) == pytest.approx(float(parts), rel=1e-6) or one.redone_h[0] == 0.0


def test_work_that_never_ends_is_infinite() -> None:
    """400 h without a save on machines that live two hours."""
    found = expected_spot_runs(np.array([400.0]), terms(2.0), interval_h=np.array([400.0]))
    assert np.isinf(found.billed_h[0])
