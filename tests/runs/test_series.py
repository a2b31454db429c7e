"""Lines of a long run are thinned evenly; of a short one all are read."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tonnage.runs import EventKind, series
from tonnage.runs.folder import append_values
from tonnage.runs.journal import read_journal
from tonnage.runs.measured import measure, read_records
from tonnage.runs.series import thin_lines
from tonnage.testing import write_run
from tonnage.testing.runs import NOON


def write(path: Path, count: int) -> None:
    path.write_text("".join(json.dumps({"step": step, "pad": "x" * (step % 37)}) + "\n" for step in range(count)))


def test_a_short_file_is_read_whole(tmp_path: Path) -> None:
    """Every line, and a share of 1; nothing where there is no file."""
    write(tmp_path / "m", 50)
    found = thin_lines(tmp_path / "m")
    assert ([line["step"] for line in found.lines], found.share) == (list(range(50)), 1.0)
    assert thin_lines(tmp_path / "none").lines == ()


def test_a_long_file_is_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many whole lines, in order, evenly spread, first and last among them; the share is that of the content."""
    monkeypatch.setattr(series, "WHOLE_BYTES", 1000)
    write(tmp_path / "m", 20_000)
    found = thin_lines(tmp_path / "m", most=100)
    steps = [line["step"] for line in found.lines]
    assert len(steps) == 101
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, 19_999)
    assert max(after - before for before, after in pairwise(steps)) < 3 * 200
    assert found.share == pytest.approx(101 / 20_000, rel=0.2)


def test_figures_of_a_thinned_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are those of an even part; time in steps is of the whole."""
    folder = write_run(tmp_path / "run")
    folder.metrics_file.unlink()
    folder.result_file.write_text("{}")
    for step in range(10, 20_010, 10):
        line = {"step": step, "at": NOON.isoformat(), "steps": 10, "samples": 32, "tokens": 4096, "step_s": 0.5}
        append_values(folder.metrics_file, line)
    whole = measure(read_records(folder))
    monkeypatch.setattr(series, "WHOLE_BYTES", 1000)
    monkeypatch.setattr("tonnage.runs.measured.MOST_LINES", 200)
    records = read_records(folder, thin=True)
    assert len(records.lines) < 210
    thinned = measure(records)
    assert thinned.training_s == pytest.approx(whole.training_s, rel=0.02)
    assert thinned.samples_per_s == pytest.approx(whole.samples_per_s, rel=0.02)
    assert thinned.steps == whole.steps


def test_forecasts_in_a_row_are_read_once(tmp_path: Path) -> None:
    """In brief, the last of each row stands for it; all else is there."""
    folder = write_run(tmp_path / "run")
    for cost in range(5):
        folder.record(EventKind.FORECAST, who="supervisor", at=NOON, usd=float(cost))
    folder.record(EventKind.NOTICE, who="supervisor", at=NOON, source="aws")
    folder.record(EventKind.FORECAST, who="supervisor", at=NOON, usd=9.0)
    every, brief = (list(read_journal(folder.journal_file, brief=brief)) for brief in (False, True))
    assert len(every) - len(brief) == 4
    assert [event.fields["usd"] for event in brief if event.kind is EventKind.FORECAST] == [4.0, 9.0]
