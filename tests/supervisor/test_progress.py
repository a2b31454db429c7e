"""What the supervisor knows of the workers' progress, from what they leave in the folder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tonnage.runs import EventKind, RunFolder, RunSpec
from tonnage.runs.folder import append_values
from tonnage.runs.progress import ProgressWriter as Marks
from tonnage.runs.spec import DataSource, DataSpec
from tonnage.supervisor.progress import ProgressReader

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "one")
    made.create(RunSpec(name="one", task="mlp", data=DataSpec(train=DataSource(location="x", format="csv"))))
    return made


def test_steps_between_two_lines_of_metrics_count(folder: RunFolder) -> None:
    """The mark of every step is a sign of work, long before the next line of metrics."""
    seen = ProgressReader(folder, now=NOON)
    marks = Marks(folder.path)
    marks.note(3)
    seen.read(LATER)
    assert (seen.step_in_start, seen.active_at) == (3, LATER)
    seen.read(LATER + timedelta(minutes=1))
    assert seen.active_at == LATER
    marks.close()


def test_a_mark_of_an_earlier_start_is_no_work(folder: RunFolder) -> None:
    """A new start begins at its checkpoint, whatever step the one before had reached."""
    marks = Marks(folder.path)
    marks.note(9)
    marks.close()
    seen = ProgressReader(folder, now=NOON)
    seen.starts(NOON)
    seen.read(LATER)
    assert (seen.step_in_start, seen.active_at) == (0, NOON)


def test_only_workers_show_work(folder: RunFolder) -> None:
    """The supervisor's own lines, and those of other tools, do not keep an idle run alive."""
    seen = ProgressReader(folder, now=NOON)
    folder.record(EventKind.FORECAST, who="supervisor", usd=1.0)
    folder.record(EventKind.TRACKING_LOST, who="reporter", uri="x")
    seen.read(LATER)
    assert seen.active_at == NOON
    folder.record(EventKind.CHECKPOINT, who="rank0", step=4, path="p", seconds=2.5)
    seen.read(LATER)
    assert (seen.active_at, seen.checkpoint_step, list(seen.saves_s)) == (LATER, 4, [2.5])


def test_what_a_worker_changed_and_said(folder: RunFolder) -> None:
    """A smaller micro-batch and last words are of one start; the next begins without."""
    seen = ProgressReader(folder, now=NOON)
    folder.record(EventKind.OUT_OF_MEMORY, who="rank0", micro_batch=8, next_micro_batch=4, step=2)
    folder.record(EventKind.STOPPING, who="rank0", message="too large", hint="take less")
    append_values(folder.metrics_file, {"step": 2, "step_s": 0.5})
    seen.read(NOON)
    assert (seen.changed, seen.said, list(seen.steps_s)) == (True, "too large; take less", [0.5])
    seen.starts(NOON)
    assert (seen.changed, seen.said, list(seen.steps_s)) == (False, "", [])


def test_an_early_end_is_worth_saying(folder: RunFolder) -> None:
    """What the workers say of a good end goes into its last line; of a start that was begun anew, nothing."""
    seen = ProgressReader(folder, now=NOON)
    folder.record(EventKind.EARLY_STOP, who="rank0", step=15, message="stopped early")
    seen.read(LATER)
    seen.starts(LATER)
    assert seen.outcome == []
    folder.record(EventKind.EARLY_STOP, who="rank0", step=15, message="stopped early")
    folder.record(EventKind.BEST, who="rank0", step=6, message="of step 6")
    seen.read(LATER)
    assert seen.outcome == ["stopped early", "of step 6"]
