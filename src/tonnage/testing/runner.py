"""A runner that starts nothing: jobs are rendered as the local runner does, and end as prepared."""

from __future__ import annotations

import os
from dataclasses import field
from threading import Event
from typing import ClassVar

from tonnage.catalog import InstanceType, Offer
from tonnage.files import write_whole
from tonnage.runners.runner import Local
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job, dump_job
from tonnage.runs.journal import EventKind
from tonnage.runs.requests import clear_requests
from tonnage.runs.spec import RunnerName
from tonnage.runs.states import RunReason, RunState
from tonnage.sources import ManagedPriceRow, QuarantinedRow, SourceReport, SourceResult
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSource:
    """Answers `instances`, `offers` and `managed`; raises `error` where one is given; waits for `gate` first.

    >>> FakeSource(name="mine").fetch().report.rows_used
    0
    """

    name: str
    instances: tuple[InstanceType, ...] = ()
    offers: tuple[Offer, ...] = ()
    managed: tuple[ManagedPriceRow, ...] = ()
    quarantined: tuple[QuarantinedRow, ...] = ()
    error: Exception | None = None
    gate: Event | None = None  # one that is never set is a source that hangs

    def fetch(self) -> SourceResult:
        """The answer; raises `error`."""
        if self.gate is not None:
            self.gate.wait()
        if self.error is not None:
            raise self.error
        used, bad = len(self.offers) + len(self.managed), len(self.quarantined)
        report = SourceReport(source=self.name, rows_read=used + bad, rows_used=used, dropped=())
        return SourceResult(
            instances=self.instances,
            offers=self.offers,
            report=report,
            managed=self.managed,
            quarantined=self.quarantined,
        )
