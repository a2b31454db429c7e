"""This machine as a place: its supervisor behind the contract that all places keep."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

from tonnage.errors import TonnageError
from tonnage.places.contract import DeclaredGap, Orphan, PlaceFinding, Submission, tag_of, token_of
from tonnage.places.file import LOCAL, LocalPlace
from tonnage.places.record import leave_queue, read_record, submitting, write_record, write_submission
from tonnage.places.states import JobView, Phase, PlaceState, joined
from tonnage.runners.machine import LEAST_GIB, free_disk_gib, look_at_machine
from tonnage.runners.runner import start_supervisor
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import has_supervisor
from tonnage.runs.requests import cancel_request, write_request
from tonnage.runs.spec import RunSpec
from tonnage.runs.states import RunReason, RunStatus
from tonnage.values import dataclass

SUPERVISOR: Final = "tonnage.supervisor"
LAST_WORDS_S: Final = 60.0


def this_machine() -> LocalExecutor:
    """The executor `local`, with this machine's figures."""
    found = look_at_machine()
    gpu = found.gpus[0] if found.gpus else None
    place = LocalPlace(
        kind=LOCAL, cores=found.cores, memory_gib=found.memory_gib, gpus=len(found.gpus),
        gpu=gpu.name if gpu else None, gpu_memory_gib=gpu.memory_gib if gpu else None, like_this_machine=True,
    )  # fmt: skip
    return LocalExecutor(place=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalExecutor:
    """A job is a supervisor of this machine; its id is the process's."""

    kind: ClassVar[str] = LOCAL
    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        DeclaredGap(
            verb="preemption", reason="this machine is not taken away, so no run is started again on it", whole=True
        ),
        DeclaredGap(verb="collect", reason="the folder is this machine's: all of it is here already"),
        DeclaredGap(
            verb="orphans", reason="a supervisor holds its run's lock: none is ever superseded, only its run removed"
        ),
    )
    name: str = LOCAL
    place: LocalPlace

    def folder_there(self, folder: RunFolder) -> RunFolder:
        return folder

    def check(self, folder: RunFolder) -> tuple[PlaceFinding, ...]:
        free_gib = free_disk_gib(folder.path)
        if free_gib < LEAST_GIB:
            said = f"{folder.path.parent}: {free_gib * 1024:.1f} MiB are free"
            return (PlaceFinding(kind="refused", message=said, hint="make room, or set TONNAGE_HOME"),)
        return ()

    def render(self, spec: RunSpec, job: Job, folder: RunFolder, *, number: int) -> Submission:  # noqa: ARG002
        command = (self.place.python or sys.executable, "-m", SUPERVISOR, str(folder.path))
        return Submission(
            place=self.name, kind=self.kind, tag=tag_of(folder.path, number), token=token_of(folder.path, number),
            number=number, script=f"#!/bin/sh\nexec {shlex.join(command)}\n", commands=(command,), job=job,
        )  # fmt: skip

    def submit(self, submission: Submission, folder: RunFolder) -> str:
        with submitting(folder):
            before = read_record(folder)
            sent = before is not None and before.token == submission.token
            if sent and (has_supervisor(folder) or folder.state().state is not RunStatus.PENDING):
                return folder.pid_file.read_text(encoding="utf-8").strip()
            record = write_submission(folder, submission)
            _wait_for_last_words(folder)
            pid = start_supervisor(folder, python=self.place.python or sys.executable)
            write_record(folder, replace(record, job_id=str(pid)))
            return str(pid)

    def status(self, folder: RunFolder) -> PlaceState:
        alive, record = has_supervisor(folder), read_record(folder)  # asked before the journal is read
        state = folder.state()
        phase = Phase.RUNNING if alive else Phase.ENDED if state.state.ended else Phase.GONE
        word = "" if alive or state.state.ended else "no supervisor holds the run"
        return joined(JobView(phase=phase, job_id=None if record is None else record.job_id, word=word), state)

    def logs(self, folder: RunFolder) -> None:  # noqa: ARG002 - the folder is this machine's
        return

    def exec(self, folder: RunFolder, argv: Sequence[str]) -> int:
        return subprocess.run(argv, cwd=folder.path, check=False).returncode

    def stop(self, folder: RunFolder, *, by: str, reason: str) -> None:
        if has_supervisor(folder):
            write_request(folder.stop_request, by=by, reason=reason)
        else:
            leave_queue(folder, EventKind.STOPPED, RunReason.USER_STOPPED, place=self.name)

    def cancel(self, folder: RunFolder, *, by: str, reason: str) -> None:
        if has_supervisor(folder):
            write_request(cancel_request(folder), by=by, reason=reason)
        else:
            leave_queue(folder, EventKind.CANCELLED, RunReason.USER_CANCELLED, place=self.name)

    def collect(self, folder: RunFolder) -> None:  # noqa: ARG002 - the folder is this machine's
        return

    def teardown(self, folder: RunFolder) -> None:
        if folder.state().state.ended:
            _wait_for_last_words(folder)
        for pid, run in _supervisors():
            if run == folder.path:
                _end(pid)

    def orphans(self, runs: Path, *, end: bool) -> tuple[Orphan, ...]:
        found = []
        for pid, run in _supervisors():
            if run.parent == runs and not RunFolder(run).spec_file.exists():
                found.append(Orphan(job_id=str(pid), run=run.name, word="running", why="its run was removed"))
                if end:
                    _end(pid)
        return tuple(found)


def _wait_for_last_words(folder: RunFolder) -> None:
    """The supervisor of the submission before may still report the end of its run: two never hold one."""
    until = time.monotonic() + LAST_WORDS_S
    while has_supervisor(folder):
        if time.monotonic() > until:
            hint = f"`tonnage stop {folder.path.name}` asks it to end"
            raise TonnageError(f"another supervisor looks after '{folder.path.name}'", hint=hint)
        time.sleep(0.02)


def _supervisors() -> Iterator[tuple[int, Path]]:
    """Every supervisor of this machine that we may look at, with the folder of its run."""
    import psutil

    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:  # it has just ended, or is somebody else's
            continue
        if len(words) > 3 and words[1:3] == ["-m", SUPERVISOR]:
            yield process.pid, Path(words[-1])


def _end(pid: int) -> None:
    """A supervisor and all that it started, without a save: its folder may be gone."""
    import psutil

    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in family:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=10)
