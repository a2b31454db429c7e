"""`place.json` of a run's folder: where it was submitted, under which token, as which job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.files import write_whole
from tonnage.places.contract import Submission
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import dump_job
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import hold_lock
from tonnage.runs.requests import clear_requests
from tonnage.runs.states import RunReason
from tonnage.values import dataclass

LOCK_WAIT_S: Final = 60.0
LAST_WORDS_S: Final = 660.0  # a supervisor reports the end of its run for ten minutes at most


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRecord:
    """What the client knows of its newest submission."""

    place: str
    kind: str
    token: str
    tag: str
    number: int
    job_id: str | None = None  # None: sent or about to be; the place knows


def record_of(submission: Submission, job_id: str | None = None) -> PlaceRecord:
    """The record of a submission."""
    return PlaceRecord(
        place=submission.place, kind=submission.kind, token=submission.token, tag=submission.tag,
        number=submission.number, job_id=job_id,
    )  # fmt: skip


def write_record(folder: RunFolder, record: PlaceRecord) -> None:
    """Replace the record. Jobs look for their token in this file: an older submission's does nothing."""
    write_whole(folder.place_file, json.dumps(asdict(record), indent=2) + "\n")


def read_record(folder: RunFolder) -> PlaceRecord | None:
    """The record, or None of a run of this machine. InputError where the file cannot be used."""
    try:
        values: dict[str, Any] = json.loads(folder.place_file.read_text(encoding="utf-8"))
        return PlaceRecord(**values)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise InputError(f"{folder.place_file} cannot be used: {error}", hint="start the run again") from error


def write_submission(folder: RunFolder, submission: Submission) -> PlaceRecord:
    """Write down what is about to be sent; from here on a job that the place has is found by its tag."""
    clear_requests(folder)
    write_whole(folder.job_file, dump_job(submission.job))
    for file in submission.job.files:
        write_whole(folder.path / file.path, file.text)
    record = record_of(submission)
    write_record(folder, record)
    return record


def unwanted(folder: RunFolder, *, token: str) -> str:
    """Why no run waits for a job of this token; empty where one does."""
    if not folder.spec_file.exists():
        return "its run was removed"
    record = read_record(folder)
    if record is None or record.token != token:
        return "its run was submitted again"
    state = folder.state()
    if state.ended_at is None or (datetime.now(UTC) - state.ended_at).total_seconds() < LAST_WORDS_S:
        return ""
    return f"its run has ended: {state.state.value}"


def leave_queue(folder: RunFolder, kind: EventKind, reason: RunReason, *, place: str) -> None:
    """Nobody works on the run and nobody will: its end is described in the journal."""
    if not folder.state().state.ended:
        folder.record(kind, who="cli", reason=reason.value, message=f"taken out of the queue of {place}")


@contextmanager
def submitting(folder: RunFolder) -> Iterator[None]:
    """One client at a time submits a run."""
    with hold_lock(folder.path / "place.lock", wait_s=LOCK_WAIT_S):
        yield
