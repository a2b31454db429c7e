"""The level of an interval is the one at which each source is held by the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tonnage.calibration.interval_level import LEVELS, calibrated_level
from tonnage.calibration.intervals import fit_intervals, intervals_without_source, residual, source_of
from tonnage.calibration.prediction import JudgedRow

from .conftest import MakeJudged


def rows_of(judged: MakeJudged, seed: int, sources: int, *, between: float, within: float) -> list[JudgedRow]:
    """Twenty rows of each source, off by an error of the source and one of their own."""
    random = np.random.default_rng(seed)
    errors = np.repeat(random.normal(0.0, between, sources), 20) + random.normal(0.0, within, 20 * sources)
    return [
        judged(row_id=str(n), metric="iteration_time_s", family="f", source=f"s{n // 20}", measured=100 * np.exp(error))
        for n, error in enumerate(errors)
    ]


def test_the_level_by_hand() -> None:
    """Two sources reach from -0.1 to 0.1 and one to 0.3. Half of it lies where the others do at their widest, so that
    60 of 72 rows are held; with less of the others' ends, 52."""
    near = [-0.10, -0.06, -0.02, 0.02, 0.06, 0.10]
    far = [-0.10, 0.0, 0.10, 0.2, 0.25, 0.3]
    values, sources = [*near, *near, *far] * 4, [*"aaaaaabbbbbbcccccc"] * 4
    level = calibrated_level(values, [1.0] * 72, sources, 0.8)
    assert level == pytest.approx(0.67)  # of 48 others eight are at either end: a tail below 8/48 each
    assert calibrated_level(values, [1.0] * 72, sources, 0.99) == LEVELS[-1]


def test_too_little_shows_no_level() -> None:
    """Two sources do not show how sources differ, and few rows not what share is held."""
    assert calibrated_level([0.1, -0.1] * 50, [1.0] * 100, ["a", "b"] * 50, 0.8) is None
    assert calibrated_level([0.1, 0.0, -0.1] * 10, [1.0] * 30, ["a", "b", "c"] * 10, 0.8) is None
    assert calibrated_level([0.1, 0.0, -0.1] * 30, [1.0] * 10 + [0.001] * 80, ["a", "b", "c"] * 30, 0.8) is None


def test_a_source_weighs_as_its_rows_do() -> None:
    """One source of wild errors asks for the widest level only where it has the weight."""
    values = [*np.linspace(-0.1, 0.1, 160), *np.linspace(-3.0, 3.0, 80)]
    sources = [*("ab" * 80), *("c" * 80)]
    light = calibrated_level(values, [1.0] * 160 + [0.1] * 80, sources, 0.8)
    heavy = calibrated_level(values, [1.0] * 160 + [2.0] * 80, sources, 0.8)
    assert light is not None
    assert light < 0.9
    assert heavy == LEVELS[-1]


@pytest.mark.parametrize("between", [0.0, 0.1, 0.3])
def test_a_new_source_is_held_as_often_as_promised(judged: MakeJudged, between: float) -> None:
    """However much sources differ, a source that no interval saw lies inside 72 to 88 % of the time."""
    covered = []
    for seed in range(40):
        rows = rows_of(judged, seed, 8, between=between, within=0.1)
        made = intervals_without_source(rows)
        covered.append(np.mean([made[source_of(row)].covers(row) for row in rows]))
    assert 0.72 <= np.mean(covered) <= 0.88


def test_the_level_comes_down_where_most_sources_err_less(judged: MakeJudged) -> None:
    """Three sources err a fifth as much as three others. The share that an interval holds of them all is the one asked
    for, which plain quantiles of the pooled rows hold too; for nine quiet ones in ten the level is lower than that."""
    quiet = rows_of(judged, 1, 27, between=0.0, within=0.02)
    loud = [replace(row, source="loud " + row.source) for row in rows_of(judged, 2, 3, between=0.3, within=0.3)]
    rows = [*quiet, *loud]
    values = [residual(row) for row in rows]
    level = calibrated_level(values, [1.0] * len(rows), [source_of(row) for row in rows], 0.8)
    assert level is not None
    found = fit_intervals(rows)
    assert 0.78 <= np.mean([found.covers(row) for row in rows]) <= 0.84
