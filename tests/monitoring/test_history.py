"""Figures over time: what is kept, how it is thinned, what a damaged file says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tonnage.errors import DataError
from tonnage.monitoring.figures import SeriesKey, series
from tonnage.monitoring.history import BLOCK_ROUNDS, CHUNK_S, MetricHistory

A, B = series("m", {"run": "a"}), series("m", {"run": "b"})
DAY = 86_400.0


def kept(history: MetricHistory, key: SeriesKey = A) -> list[tuple[float, float]]:
    return [(at, figures[key]) for at, figures in history.rounds([key], since=0.0, until=math.inf)]


def test_what_is_added_is_read_again(tmp_path: Path) -> None:
    """Over the border of packed blocks and loose rounds, and by another process's look at the file."""
    points = [(10.0 * number, float(number) / 7.0) for number in range(3 * BLOCK_ROUNDS + 5)]
    with MetricHistory(tmp_path / "h.db", keep_s=DAY) as history:
        for at, value in points:
            history.add(at, {A: value, B: -value})
        assert kept(history) == points
    with MetricHistory(tmp_path / "h.db", keep_s=DAY) as history:
        assert kept(history, B) == [(at, -value) for at, value in points]
        assert history.names() == [A, B]
        span = [at for at, _ in history.rounds([A], since=700.0, until=720.0)]
        assert span == [700.0, 710.0, 720.0]


def test_old_figures_become_means(tmp_path: Path) -> None:
    """After the fine hours a minute is one point, with the mean of its six; none is lost from the sum."""
    with MetricHistory(tmp_path / "h.db", keep_s=30 * DAY) as history:
        for number in range(2400):
            history.add(10.0 * number, {A: float(number % 6)})
        before = len(kept(history))
        history.thin(10.0 * 2400 + 6 * 3600.0 + CHUNK_S)
        after = kept(history)
    assert len(after) < before / 4
    assert {value for _, value in after[:100]} == {2.5}


def test_what_is_older_than_kept_is_gone(tmp_path: Path) -> None:
    """After its time nothing of a figure is left."""
    with MetricHistory(tmp_path / "h.db", keep_s=3600.0) as history:
        for number in range(2 * BLOCK_ROUNDS):
            history.add(10.0 * number, {A: 1.0})
        history.thin(10 * DAY)
        assert kept(history) == []


def test_a_round_is_whole_or_not_there(tmp_path: Path) -> None:
    """A round that cannot be written takes nothing with it: the next is as if it had not been."""
    with MetricHistory(tmp_path / "h.db", keep_s=DAY) as history:
        history.add(0.0, {A: 1.0})
        history._base.execute("CREATE TRIGGER full BEFORE INSERT ON rounds BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        with pytest.raises(OSError, match="disk full"):
            history.add(10.0, {A: 2.0, B: 2.0})
        history._base.execute("DROP TRIGGER full")
        history.add(20.0, {A: 3.0, B: 3.0})
        assert kept(history) == [(0.0, 1.0), (20.0, 3.0)]
        assert kept(history, B) == [(20.0, 3.0)]


def test_a_file_that_is_none_says_so(tmp_path: Path) -> None:
    """With what to do about it."""
    (tmp_path / "h.db").write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(DataError, match="not a database") as caught:
        MetricHistory(tmp_path / "h.db", keep_s=DAY)
    assert "move the file away" in str(caught.value.hint)
