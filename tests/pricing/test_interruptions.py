"""The interval between saves at a constant rate, against a grid of exact runs."""

import math

import numpy as np
import pytest

from tonnage.pricing.interruptions import daly_interval_s, young_interval_s
from tonnage.pricing.renewal import RenewalTerms, exponential, renewal_run


def test_young_and_daly_are_near_the_best_one() -> None:
    """Two losses in four hours, saves of a minute: no interval of a grid beats either by more than 2 %."""
    terms = RenewalTerms(startup_h=1 / 12, save_h=1 / 60, wait_h=0.0)
    law = exponential(0.5)
    young = float(young_interval_s(60.0, np.array([0.5 / 3600]))[0]) / 3600
    daly = daly_interval_s(60.0, 7200.0) / 3600
    best = min(renewal_run(24.0, tau / 60, law, terms).billed_h for tau in range(2, 120, 2))
    for interval in (young, daly):
        assert renewal_run(24.0, interval, law, terms).billed_h < best * 1.02
    assert young * 3600 == pytest.approx(math.sqrt(2 * 60 * 7200))
