"""Arrivals: drawn from a process, or as a trace recorded them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tonnage.sizing.traces import parse_trace
from tonnage.traffic.arrivals import ArrivalPlan, replayed


def times(**said: Any) -> list[float]:
    return [one.at_s for one in ArrivalPlan(**said).arrivals()]


def test_poisson_arrivals_keep_their_rate_and_their_seed() -> None:
    """20,000 arrivals lie within 3 % of the rate, gaps vary as much as they are long, and a seed gives the same."""
    found = times(process="poisson", rate_per_s=100.0, duration_s=200.0, seed=3)
    gaps = [after - before for before, after in pairwise(found)]
    mean = sum(gaps) / len(gaps)
    assert len(found) == pytest.approx(20_000, rel=0.03)
    assert sum((gap - mean) ** 2 for gap in gaps) / len(gaps) == pytest.approx(mean**2, rel=0.05)
    assert found == times(process="poisson", rate_per_s=100.0, duration_s=200.0, seed=3)
    assert found != times(process="poisson", rate_per_s=100.0, duration_s=200.0, seed=4)


@pytest.mark.parametrize(("first", "last"), [(10.0, 90.0), (90.0, 10.0), (50.0, 50.0), (100.0, 0.0)])
def test_a_ramp_goes_from_one_rate_to_the_other(first: float, last: float) -> None:
    """Each half of the ramp has as many arrivals as the area under its line, within four standard deviations."""
    found = times(process="ramp", rate_per_s=first, last_rate_per_s=last, duration_s=100.0)
    assert found == sorted(found)
    for begin, here, there in ((0.0, first, (first + last) / 2), (50.0, (first + last) / 2, last)):
        count, expected = sum(begin <= at < begin + 50.0 for at in found), 50.0 * (here + there) / 2
        assert abs(count - expected) < 4 * expected**0.5


def test_a_trace_is_replayed_from_nought() -> None:
    """The first request at nought, lengths with each; speed shortens the waits."""
    lines = ["arrived_at,num_prefill_tokens,num_decode_tokens", "10,20,3", "12,30,4"]
    found = replayed(parse_trace(lines), speed=4.0)
    assert [(one.at_s, one.input_tokens, one.output_tokens) for one in found] == [(0.0, 20, 3), (0.5, 30, 4)]
