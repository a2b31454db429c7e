"""How far sources that measured the same configuration differ, as the accuracy page counts it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from source_spread import FEWEST, source_spread


@dataclass(frozen=True, kw_only=True)
class Row:
    model: str
    source: str
    value: float
    batch_size: int | None = 1
    quality: str = "ok"


def table(ratio: float, models: int = FEWEST) -> list[Row]:
    """So many models, each measured by two sources that differ by `ratio`, one of them twice."""
    return [
        Row(model=f"m{number}", source=source, value=value * (number + 1))
        for number in range(models)
        for source, value in (("a", 1.0), ("b", ratio), ("b", ratio))
    ]


def test_two_sources_are_as_far_apart_as_their_medians() -> None:
    """Factors of 1.44: 44 % apart, so that halfway errs by 20 % on either; the order of sources does not matter."""
    for ratio in (1.44, 1 / 1.44):
        found = source_spread(table(ratio), ("model", "batch_size"))
        assert found is not None
        assert (found.pairs, found.sources) == (FEWEST, 2)
        assert found.apart_median_pct == pytest.approx(44.0)
        assert found.least_p90_pct == pytest.approx(20.0)


def test_rows_that_say_too_little_or_are_doubted_are_not_compared() -> None:
    """One source alone, suspect rows, rows without a batch and too few pairs say nothing of a spread."""
    rows = table(2.0)
    same = ("model", "batch_size")
    assert source_spread([row for row in rows if row.source == "a"], same) is None
    assert source_spread([replace(row, quality="suspect") for row in rows], same) is None
    assert source_spread([replace(row, batch_size=None) for row in rows], same) is None
    assert source_spread(table(2.0, models=FEWEST - 1), same) is None
