"""A runner that starts nothing: jobs are rendered as the local runner does, and end as prepared."""

from __future__ import annotations

import os
from dataclasses import field
from typing import ClassVar

from tonnage.files import write_whole
from tonnage.runners.local import Local
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job, dump_job
from tonnage.runs.journal import EventKind
from tonnage.runs.requests import clear_requests
from tonnage.runs.spec import RunnerName
from tonnage.runs.states import RunReason, RunState
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeRunner(Local):
    """Carries a run to `running` at once; `end` carries it on. The journal is a real one."""

    name: ClassVar[RunnerName] = "local"
    extra: ClassVar[tuple[str, str] | None] = None
    cores: int = 1
    submitted: list[Job] = field(default_factory=list)

    def submit(self, job: Job, folder: RunFolder) -> int:
        clear_requests(folder)
        write_whole(folder.job_file, dump_job(job))
        self.submitted.append(job)
        attempt = folder.state().attempt + 1
        folder.record(EventKind.STARTED, who="supervisor", attempt=attempt, pid=os.getpid(), command=job.command_line)
        folder.record(EventKind.TRAINING, who="rank0", step=1)
        return os.getpid()

    def status(self, folder: RunFolder) -> RunState:
        return folder.state()

    def stop(self, folder: RunFolder, *, by: str, reason: str) -> None:
        folder.record(
            EventKind.STOPPED, who="supervisor", reason=RunReason.USER_STOPPED.value, message=f"{by}: {reason}"
        )

    def cancel(self, folder: RunFolder, *, by: str, reason: str) -> None:
        message = f"{by}: {reason}"
        folder.record(EventKind.CANCELLED, who="supervisor", reason=RunReason.USER_CANCELLED.value, message=message)

    def end(self, folder: RunFolder, kind: EventKind = EventKind.SUCCEEDED, reason: RunReason | None = None) -> None:
        """Carry the run to its end."""
        if reason is None:
            folder.record(kind, who="supervisor")
        else:
            folder.record(kind, who="supervisor", reason=reason.value)
