"""A run's journal and folder: what is appended is read back, whatever is cut off in the middle."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.runs import EventKind, RunFolder, RunReason, RunSpec, RunStatus, dump_spec, load_spec, read_journal
from tonnage.runs.folder import append_values
from tonnage.runs.spec import DataSource, DataSpec
from tonnage.runs.tail import Tail

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def spec() -> RunSpec:
    return RunSpec(
        name="one",
        task="sequence-classification",
        data=DataSpec(train=DataSource(location="rows.jsonl", format="jsonl"), columns=(("text", "t"), ("label", "l"))),
    )


def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "runs" / "one")
    made.create(spec())
    return made


def test_a_specification_is_read_back_as_written() -> None:
    """Dumped and loaded, a specification is the same value, and its columns answer by role."""
    again = load_spec(dump_spec(spec()), where="here")
    assert again == spec()
    assert (again.column("text"), again.column("tags")) == ("t", None)


def test_a_bad_specification_names_its_key() -> None:
    """The error says file and key."""
    text = dump_spec(spec()).replace('"sequence-classification"', '"chess"')
    with pytest.raises(InputError, match=r"spec.json: task"):
        load_spec(text, where="spec.json")


def test_states_follow_the_journal(tmp_path: Path) -> None:
    """Each event moves the run on; a restart counts the steps done twice."""
    run = folder(tmp_path)
    run.record(EventKind.SUBMITTED, who="cli", at=NOON, name="one")
    run.record(EventKind.STARTED, who="supervisor", at=NOON, attempt=1)
    run.record(EventKind.TRAINING, who="rank0", at=NOON, step=1)
    run.record(EventKind.CHECKPOINT, who="rank0", at=NOON, step=10)
    assert run.state().state is RunStatus.RUNNING
    run.record(EventKind.RESTARTING, who="supervisor", at=NOON, reason=RunReason.WORKER_KILLED.value, delay_s=1)
    assert run.state().reason is RunReason.WORKER_KILLED
    run.record(EventKind.STARTED, who="supervisor", at=NOON, attempt=2)
    run.record(EventKind.RESUMED, who="rank0", at=NOON, step=10, lost_steps=3)
    run.record(EventKind.SUCCEEDED, who="supervisor", at=NOON, step=20)
    state = run.state()
    assert (state.state, state.attempt, state.step, state.lost_steps) == (RunStatus.SUCCEEDED, 2, 20, 3)
    assert state.state.ended
    assert state.ended_at == NOON


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_line_cut_by_a_kill_is_left_out(tmp_path: Path, cut: int) -> None:
    """Half a last line is no event; the next writer marks it and goes on."""
    run = folder(tmp_path)
    run.record(EventKind.SUBMITTED, who="cli", at=NOON)
    run.record(EventKind.STARTED, who="supervisor", at=NOON)
    run.journal_file.write_bytes(run.journal_file.read_bytes()[:-cut])
    assert [event.kind for event in run.events()] == [EventKind.SUBMITTED]
    run.record(EventKind.LOST, who="cli", at=NOON)
    assert [event.kind for event in run.events()] == [EventKind.SUBMITTED, EventKind.LOST]


def test_rubbish_in_the_middle_is_named(tmp_path: Path) -> None:
    """A line that nobody cut and nobody can read is an error with its number."""
    path = tmp_path / "journal.jsonl"
    path.write_text('{"kind": "noise"}\n{}\n')
    with pytest.raises(ValueError, match=r"journal.jsonl:1"):
        list(read_journal(path))


def test_one_bad_line_does_not_hide_the_others(tmp_path: Path) -> None:
    """Rubbish, bytes that are no text, an event and a reason of a later version: left out, and named by the state."""
    run = folder(tmp_path)
    run.record(EventKind.SUBMITTED, who="cli", at=NOON)
    with run.journal_file.open("ab") as file:
        file.write(b"\xff\xfe rubbish\n" + b'{"at": "2026-01-02", "who": "x", "kind": "later"}\n[]\n')
        file.write(b'{"at": "2026-01-02T00:00:00+00:00", "who": "supervisor", "kind": "failed", "reason": "Later"}\n')
    run.record(EventKind.STARTED, who="supervisor", at=NOON)
    state = run.state()
    assert state.state is RunStatus.STARTING
    assert [fault.split(": ")[0].rpartition(":")[2] for fault in state.faults] == ["2", "3", "4"]
    assert [event.kind for event in Tail(run.journal_file).events()][-1] is EventKind.STARTED


def test_two_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    """The folder is made once."""
    run = folder(tmp_path)
    with pytest.raises(FileExistsError):
        run.create(spec())


def test_a_metric_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    """NaN never reaches a file that others parse."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_values(tmp_path / "metrics.jsonl", {"loss": float("nan")})
