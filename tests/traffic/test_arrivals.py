"""Arrivals: drawn from a process, or as a trace recorded them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.traffic.arrivals import ArrivalPlan, read_trace


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


def test_a_trace_is_replayed_in_order_from_nought(tmp_path: Path) -> None:
    """Lines come in order of time, the first at nought, lengths with them; speed shortens the waits."""
    file = tmp_path / "trace.csv"
    file.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n12,30,4\n10,20,3\n", encoding="utf-8")
    found = read_trace(file, speed=4.0)
    assert [(one.at_s, one.input_tokens, one.output_tokens) for one in found] == [(0.0, 20, 3), (0.5, 30, 4)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("arrived_at,num_prefill_tokens\n0,1\n", "num_decode_tokens"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,2\n1,x,2\n", "csv:3"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\nnan,1,2\n", "csv:2"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,-1,2\n", "csv:2"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n", "no request"),
    ],
)
def test_a_trace_that_cannot_be_used_says_where(tmp_path: Path, text: str, said: str) -> None:
    """A missing column, a word for a number, NaN, a negative length, an empty trace."""
    file = tmp_path / "trace.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_trace(file)
