"""Two prices of one machine are compared only where no price cut and no two years lie between them."""

from __future__ import annotations

from datetime import date

import pytest

from tonnage.pricing.price_dates import LONGEST_APART_DAYS, prices_apart

BEFORE, AFTER, LATER = date(2025, 1, 26), date(2025, 6, 5), date(2026, 7, 20)


@pytest.mark.parametrize(
    ("machine", "first", "second", "apart"),
    [
        ("p5.48xlarge", BEFORE, LATER, True),
        ("p5.48xlarge", LATER, BEFORE, True),
        ("p5.48xlarge", AFTER, LATER, False),  # the day of the cut is after it
        ("p4d.24xlarge", None, LATER, True),  # an unknown day may lie before
        ("g5.xlarge", BEFORE, LATER, False),
        ("g5.xlarge", None, LATER, False),
        ("g5.xlarge", date(2023, 1, 1), LATER, True),
    ],
)
def test_a_cut_parts_prices(machine: str, first: date | None, second: date | None, apart: bool) -> None:
    """Before and after the cut of P4 and P5 say nothing of each other; other families only after two years."""
    found = prices_apart("aws", machine, first, second)
    assert (found is not None) is apart


def test_another_cloud_has_no_cut_of_aws() -> None:
    """A machine of another provider is not parted by it, whatever it is called."""
    assert prices_apart("gcp", "p5.48xlarge", BEFORE, LATER) is None


def test_both_days_and_the_cut_are_reported() -> None:
    """The reason holds what a reader needs: either day, and the cut where one parts them."""
    cut, far = (
        prices_apart("aws", "p5.48xlarge", BEFORE, LATER),
        prices_apart("aws", "g5.xlarge", date(2023, 1, 1), LATER),
    )
    assert cut is not None
    assert far is not None
    assert (cut.first_on, cut.second_on, cut.cut_on) == (BEFORE, LATER, AFTER)
    assert far.cut_on is None
    assert (LATER - date(2023, 1, 1)).days > LONGEST_APART_DAYS
