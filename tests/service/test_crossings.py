"""Crossings of a staircase with a line, found as counting them by hand finds them."""

from __future__ import annotations

import numpy as np
import pytest

from tonnage.service.crossings import find_crossings, volume_grid, with_intervals


def staircase(price: float, capacity: float):  # type: ignore[no-untyped-def]
    return lambda rate: price * np.ceil(rate / capacity - 1e-12)


@pytest.mark.parametrize("each", [8.0, 10.5, 12.0, 15.0, 40.0])
def test_every_crossing_of_a_staircase(each: float) -> None:
    """Machines at 10 that carry 1/s, the API at `each` a unit of rate: crossings on every stair, none missed.

    Stair n, (n-1, n], costs 10 n: below the line from 10 n / each on, above it again past n if each·n < 10 (n+1).
    """
    own = staircase(10.0, 1.0)
    stairs = [float(n) for n in range(1, 41)]
    found = find_crossings(own, lambda rate: each * rate, volume_grid(1.0, stairs))
    expected: list[tuple[float, str]] = []
    for n in range(1, 41):
        enters = 10.0 * n / each
        if n - 1 < enters < n and not (expected and expected[-1][1] == "own fleet"):
            expected.append((enters, "own fleet"))
        if each * n < 10.0 * (n + 1) and expected and expected[-1][1] == "own fleet":
            expected.append((float(n), "API"))
    below = [(rate, above) for rate, above in found if rate < 40.0]
    assert len(below) == len([one for one in expected if one[0] < 40.0])
    for (rate, above), (where, direction) in zip(below, expected, strict=False):
        assert above == direction
        assert rate == pytest.approx(where, rel=1e-5)


def test_never_is_an_answer() -> None:
    """Where a request costs more on every full machine than the API asks, nothing crosses."""
    assert find_crossings(staircase(10.0, 1.0), lambda rate: 9.0 * rate, volume_grid(1.0, range(1, 41))) == []


def test_intervals_pair_crossings_of_one_direction() -> None:
    """Ends come from the crossing of the same order; where an end has none, it is unknown."""
    value = [(10.0, "own fleet"), (20.0, "API"), (30.0, "own fleet")]
    faster = [(8.0, "own fleet")]
    slower = [(12.0, "own fleet"), (18.0, "API"), (40.0, "own fleet")]
    first, back, second = with_intervals(value, faster, slower)
    assert (first.low_per_s, first.rate_per_s, first.high_per_s) == (8.0, 10.0, 12.0)
    assert (back.low_per_s, back.high_per_s) == (None, 20.0)
    assert (second.low_per_s, second.high_per_s) == (None, 40.0)
