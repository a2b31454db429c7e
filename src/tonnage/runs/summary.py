"""One run in full, read from its folder once: what was asked, what happened, what was predicted and measured."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from os.path import dirname, join
from pathlib import Path
from typing import Any

from tonnage.runs.diagnosis import ComparedFigure, compare, explain
from tonnage.runs.folder import RunFolder
from tonnage.runs.guards import SpendSession, sessions_of
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import has_supervisor, without_witness
from tonnage.runs.measured import MeasuredRun, Records, measure, read_records
from tonnage.runs.states import RunState
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """One that was written, by the journal; `there` says whether it still is."""

    step: int
    path: str
    bytes: int | None
    seconds: float | None
    there: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file or folder a run leaves."""

    what: str
    path: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What reports on a run show."""

    name: str
    folder: str
    records: Records
    state: RunState
    measured: MeasuredRun
    compared: tuple[ComparedFigure, ...]
    why: tuple[str, ...]  # figures lie outside their interval
    sessions: tuple[SpendSession, ...]
    checkpoints: tuple[CheckpointRecord, ...]
    artifacts: tuple[Artifact, ...]

    @property
    def loss(self) -> tuple[tuple[float, float], ...]:
        """(step, loss); of a step that was done again the newer line counts."""
        return self.curve("loss")

    def curve(self, key: str) -> tuple[tuple[float, float], ...]:
        """A figure of the metrics over steps."""
        points = {float(line["step"]): float(line[key]) for line in self.records.lines if line.get(key) is not None}
        return tuple(sorted(points.items()))

    @property
    def metrics(self) -> Mapping[str, float]:
        """How good the model is: fractions or in the label's unit, by name."""
        return dict(self.records.result.get("metrics") or {})

    @property
    def baseline(self) -> Mapping[str, float]:
        return dict(self.records.result.get("baseline") or {})


def summarise(folder: RunFolder) -> RunSummary:
    """Read a run's folder, and look whether somebody still works on it. InputError names a file that cannot be read."""
    now = datetime.now(UTC)
    alive = has_supervisor(folder, now=now)
    records = read_records(folder, thin=True)
    measured = measure(records)
    compared = compare(records, measured)
    return RunSummary(
        name=records.spec.name,
        folder=str(folder.path),
        records=records,
        state=without_witness(records.state, alive=alive, now=now),
        measured=measured,
        compared=compared,
        why=explain(records, measured, compared),
        sessions=sessions_of(records.events, records.spec.guard),
        checkpoints=tuple(_checkpoints(folder, records)),
        artifacts=tuple(_artifacts(folder)),
    )


def _checkpoints(folder: RunFolder, records: Records) -> list[CheckpointRecord]:
    """By step, the newest word of each."""
    saves: dict[int, Mapping[str, Any]] = {
        int(event.fields["step"]): event.fields for event in records.events if event.kind is EventKind.CHECKPOINT
    }
    places = {step: join(folder.path, str(fields["path"])) for step, fields in saves.items() if fields.get("path")}
    kept = {place for parent in {dirname(place) for place in places.values()} for place in _folders_in(parent)}
    return [
        CheckpointRecord(
            step=step, path=str(fields.get("path", "")), bytes=fields.get("bytes"), seconds=fields.get("seconds"),
            there=places.get(step) in kept,
        )
        for step, fields in sorted(saves.items())
    ]  # fmt: skip


def _folders_in(parent: str) -> list[str]:
    """The paths of the folders in a folder, read from the disk once; none where it is not there."""
    try:
        with os.scandir(parent) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _artifacts(folder: RunFolder) -> list[Artifact]:
    known = (
        ("model", folder.model), ("result", folder.result_file), ("log", folder.log_file),
        ("metrics", folder.metrics_file), ("samples", folder.samples_file), ("journal", folder.journal_file),
        ("prediction", folder.prediction_file), ("specification", folder.spec_file),
    )  # fmt: skip
    return [Artifact(what=what, path=str(path), bytes=_size(path)) for what, path in known if path.exists()]


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    return path.stat().st_size
