"""The folder of one run: where each thing is, and the few ways to write there that survive a kill.

Several processes share it. The specification is written once; the journal and the metrics are only appended to, a
whole line per write; everything else appears by rename.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tonnage.files import DRAFT_PREFIX, PRIVATE, make_private_folder, write_whole
from tonnage.runs.journal import CUT, Event, EventKind, read_journal
from tonnage.runs.progress import read_progress
from tonnage.runs.secrets import masked
from tonnage.runs.spec import RunSpec, dump_spec, load_spec
from tonnage.runs.states import RunState, state_of, with_mark
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run on disk: `TONNAGE_HOME/runs/NAME`."""

    path: Path

    @property
    def spec_file(self) -> Path:
        return self.path / "spec.json"

    @property
    def job_file(self) -> Path:  # what the runner rendered: command, environment, files
        return self.path / "job.json"

    @property
    def prediction_file(self) -> Path:  # what was predicted before the first step, with the plan's identity
        return self.path / "prediction.json"

    @property
    def journal_file(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def metrics_file(self) -> Path:  # by rank 0: one line per logged step
        return self.path / "metrics.jsonl"

    @property
    def samples_file(self) -> Path:  # by the supervisor: memory, utilisation, power, spend over time
        return self.path / "samples.jsonl"

    @property
    def log_file(self) -> Path:  # stdout and stderr of the workers
        return self.path / "log.txt"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:  # the finished model, as transformers saves it
        return self.path / "model"

    @property
    def result_file(self) -> Path:  # by rank 0 at the end: metrics, measured figures
        return self.path / "result.json"

    @property
    def stop_request(self) -> Path:  # its presence asks the workers to save and end
        return self.path / "stop"

    @property
    def place_file(self) -> Path:  # where the run was submitted, if not on this machine: place, token, job
        return self.path / "place.json"

    @property
    def mirror_file(self) -> Path:  # how far it has been read, where the run's own folder is on another machine
        return self.path / "mirror.json"

    @property
    def pid_file(self) -> Path:  # of the supervisor
        return self.path / "supervisor.pid"

    def create(
        self, spec: RunSpec, *, prediction: str | None = None, submitted: Mapping[str, Any] | None = None
    ) -> None:
        """Make the folder, whole: with its specification, what was predicted, and whereto it is submitted.

        FileExistsError where a run of this name is there. A client that is killed leaves all of that or nothing: a run
        without its journal's first line would be gone on with on this machine, wherever it was meant for.
        """
        make_private_folder(self.path.parent)
        beside = RunFolder(self.path.with_name(f"{DRAFT_PREFIX}{os.getpid()}-{self.path.name}"))
        shutil.rmtree(beside.path, ignore_errors=True)
        try:
            beside.path.mkdir(mode=0o700)  # specification, log and rows' names are the user's alone
            beside.checkpoints.mkdir(mode=0o700)
            write_whole(beside.spec_file, dump_spec(spec))
            if prediction is not None:
                write_whole(beside.prediction_file, prediction)
            if submitted is not None:
                beside.record(EventKind.SUBMITTED, who="cli", **submitted)
            _rename_new(beside.path, self.path)
        except BaseException:
            shutil.rmtree(beside.path, ignore_errors=True)
            raise

    def spec(self) -> RunSpec:
        return load_spec(self.spec_file.read_text(encoding="utf-8"), where=str(self.spec_file))

    def events(self, *, faults: list[str] | None = None, brief: bool = False) -> Iterator[Event]:
        """What the journal tells; lines that cannot be read are left out, and named in `faults`."""
        return read_journal(self.journal_file, faults=[] if faults is None else faults, brief=brief)

    def state(self) -> RunState:
        """The state of the run: by its journal, and the mark its workers leave after each step."""
        faults: list[str] = []
        state = with_mark(state_of(self.events(faults=faults, brief=True)), read_progress(self.path))
        return replace(state, faults=tuple(faults))

    def record(self, kind: EventKind, *, who: str, at: datetime | None = None, **fields: Any) -> Event:
        """Append one event and flush it to the disk."""
        event = Event(kind=kind, at=at or datetime.now(UTC), who=who, fields=fields)
        append_line(self.journal_file, masked(event.to_json()), sync=True)
        return event


def _rename_new(beside: Path, path: Path) -> None:
    """Give a folder its name. FileExistsError where that is taken."""
    try:
        os.rename(beside, path)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        raise


def append_line(path: Path, line: str, *, sync: bool = False) -> None:
    """One line in one write, so that lines of several processes never mix; a line cut by a kill is marked first."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, PRIVATE)
    try:
        size = os.fstat(descriptor).st_size
        broken = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        content = ((CUT + "\n" if broken else "") + line + "\n").encode()
        if os.write(descriptor, content) < len(content):  # the disk took a part of it; the next line marks that as cut
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_values(path: Path, values: Mapping[str, Any]) -> None:
    """One line of JSON, for metrics and samples. ValueError for a figure that is not a number."""
    append_line(path, json.dumps(values, allow_nan=False))


def read_document(path: Path) -> Mapping[str, Any]:
    """A file of JSON; empty where it is not there yet. ValueError where it is no object."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{path}: not an object of JSON")
    return found
