"""A Slurm cluster by its own command line tools, on a machine that shares the home folder with the nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from getpass import getuser
from pathlib import Path
from typing import ClassVar, Final

from tonnage.errors import TonnageError
from tonnage.files import write_whole
from tonnage.places.contract import DeclaredGap, Orphan, PlaceFinding, Submission, home_mark, read_tag, tag_of, token_of
from tonnage.places.file import SlurmPlace
from tonnage.places.record import (
    PlaceRecord,
    leave_queue,
    read_record,
    submitting,
    unwanted,
    write_record,
    write_submission,
)
from tonnage.places.slurm.answers import (
    LIVE,
    PARTITION_FORMAT,
    QUEUE_FORMAT,
    TaggedSlurmJob,
    parse_job,
    parse_partitions,
    parse_queue,
)
from tonnage.places.slurm.questions import against
from tonnage.places.slurm.script import SCRIPT, batch_script
from tonnage.places.states import JobView, Phase, PlaceState, joined
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import has_supervisor
from tonnage.runs.requests import cancel_request, write_request
from tonnage.runs.spec import RunSpec
from tonnage.runs.states import RunReason
from tonnage.values import dataclass

ANSWER_TIMEOUT_S: Final = 60.0
MISSING: Final = "install Slurm's command line tools (Debian: slurm-client), or run on a login node"


class SlurmRefused(Exception):
    """A command of Slurm's ended with its own words on stderr, or did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """One place of the kind `slurm`."""

    kind: ClassVar[str] = "slurm"
    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        DeclaredGap(verb="check", reason="no command on a login node tells whether the nodes see the home folder"),
        DeclaredGap(verb="collect", reason="the folder is shared: all of it is here already"),
    )
    name: str
    place: SlurmPlace

    # before

    def folder_there(self, folder: RunFolder) -> RunFolder:
        return folder

    def check(self, folder: RunFolder) -> tuple[PlaceFinding, ...]:
        from tonnage.places.gpu_software import software_at

        groups = parse_partitions(self._asked("sinfo", "-h", "-e", "-o", PARTITION_FORMAT))
        found = [*against(self.place, self.name, groups), *self._account(), *software_at(self.place, self.name)]
        if not any(one.kind == "refused" for one in found):
            found += self._tested(folder)
        return tuple(found)

    def render(self, spec: RunSpec, job: Job, folder: RunFolder, *, number: int) -> Submission:
        token, tag = token_of(folder.path, number), tag_of(folder.path, number)
        return Submission(
            place=self.name, kind=self.kind, tag=tag, token=token, number=number,
            script=batch_script(self.place, folder.path, name=spec.name, tag=tag, token=token),
            commands=(("sbatch", "--parsable", str(folder.path / SCRIPT)),),
            job=job,
        )  # fmt: skip

    def submit(self, submission: Submission, folder: RunFolder) -> str:
        with submitting(folder):
            before = read_record(folder)
            if before is not None and before.token == submission.token and (there := self._find(before)) is not None:
                return there
            write_whole(folder.path / SCRIPT, submission.script)
            record = write_submission(folder, submission)
            job_id = self._sent(submission, record)
            write_record(folder, replace(record, job_id=job_id))
            return job_id

    # while it runs

    def status(self, folder: RunFolder) -> PlaceState:
        record = read_record(folder)
        job_id = None if record is None else self._find(record)
        view = JobView(phase=Phase.GONE) if job_id is None else self._view(job_id)
        if record is not None and job_id is not None and record.job_id is None:
            write_record(folder, replace(record, job_id=job_id))
        return joined(view, folder.state())

    def logs(self, folder: RunFolder) -> None:  # noqa: ARG002 - the folder is shared
        return

    def exec(self, folder: RunFolder, argv: Sequence[str]) -> int:
        words = ("srun", f"--jobid={self._job(folder)}", "--overlap", "--ntasks=1", *argv)
        return subprocess.run(words, check=False).returncode

    def stop(self, folder: RunFolder, *, by: str, reason: str) -> None:
        if has_supervisor(folder):
            write_request(folder.stop_request, by=by, reason=reason)
        else:
            self._leave_queue(folder, EventKind.STOPPED, RunReason.USER_STOPPED)

    def cancel(self, folder: RunFolder, *, by: str, reason: str) -> None:
        if has_supervisor(folder):
            write_request(cancel_request(folder), by=by, reason=reason)
        else:
            self._leave_queue(folder, EventKind.CANCELLED, RunReason.USER_CANCELLED)

    def _leave_queue(self, folder: RunFolder, kind: EventKind, reason: RunReason) -> None:
        """Nobody works on it: the job goes, and its end is described in the journal."""
        self.teardown(folder)
        leave_queue(folder, kind, reason, place=self.name)

    # after

    def collect(self, folder: RunFolder) -> None:  # noqa: ARG002 - the folder is shared
        return

    def teardown(self, folder: RunFolder) -> None:
        record = read_record(folder)
        job_id = None if record is None else self._find(record)
        if job_id is not None and self._view(job_id).phase in LIVE:
            self._asked("scancel", job_id)

    def orphans(self, runs: Path, *, end: bool) -> tuple[Orphan, ...]:
        ours = home_mark(runs)
        found = []
        for job in self._queue():
            tag = read_tag(job.comment)
            if tag is None or tag[0] != ours or job.view.phase not in LIVE:
                continue
            why = unwanted(RunFolder(runs / tag[2]), token=tag[1])
            if why:
                found.append(Orphan(job_id=job.view.job_id or "", run=tag[2], word=job.view.word, why=why))
        if end and found:
            self._asked("scancel", *(one.job_id for one in found))
        return tuple(found)

    # Slurm itself

    def _sent(self, submission: Submission, record: PlaceRecord) -> str:
        """The id of the job; of the one that Slurm took although its answer was lost."""
        try:
            answer = self._run(submission.commands[0])
        except SlurmRefused as error:
            if (there := self._find(record)) is not None:
                return there
            raise TonnageError(
                f"Slurm does not take the job: {error}", hint=f"`tonnage places check {self.name}`"
            ) from error
        return answer.split(";")[0].strip()

    def _find(self, record: PlaceRecord) -> str | None:
        """The job of a record: as written down, or by its tag."""
        if record.job_id is not None:
            return record.job_id
        jobs = [job.view for job in self._queue() if job.comment.strip() == record.tag]
        live = [view for view in jobs if view.phase in LIVE] or jobs
        return live[-1].job_id if live else None

    def _job(self, folder: RunFolder) -> str:
        record = read_record(folder)
        job_id = None if record is None else self._find(record)
        if job_id is None:
            raise TonnageError(
                f"'{folder.path.name}' has no job at {self.name}", hint=f"`tonnage show {folder.path.name}`"
            )
        return job_id

    def _view(self, job_id: str) -> JobView:
        """A job that ended a while ago is no longer known: its journal has its end."""
        try:
            answer = self._run(("scontrol", "show", "job", "-o", job_id))
        except SlurmRefused as error:
            if "Invalid job id" in str(error):
                return JobView(phase=Phase.GONE, job_id=job_id)
            raise TonnageError(f"{self.name} does not answer: {error}", hint="`scontrol ping`") from error
        return parse_job(answer) or JobView(phase=Phase.GONE, job_id=job_id)

    def _queue(self) -> tuple[TaggedSlurmJob, ...]:
        return parse_queue(self._asked("squeue", "--me", "-h", "--states=all", "-o", QUEUE_FORMAT))

    def _account(self) -> list[PlaceFinding]:
        if self.place.account is None:
            return []
        words = ("sacctmgr", "-n", "-P", "show", "assoc", f"user={getuser()}", "format=account")
        try:
            accounts = self._run(words).split()
        except SlurmRefused as error:
            message = f"the account '{self.place.account}' is not checked: {error}"
            return [PlaceFinding(kind="unchecked", message=message, hint="the cluster keeps no accounts")]
        if self.place.account in accounts:
            return []
        hint = f"places.{self.name}.account: one of {', '.join(accounts) or 'none: ask for an account'}"
        return [PlaceFinding(kind="refused", message=f"no account '{self.place.account}' of yours", hint=hint)]

    def _tested(self, folder: RunFolder) -> list[PlaceFinding]:
        """Slurm's own last word on the very script."""
        script = batch_script(self.place, folder.path, name="check", tag="tonnage-check", token="")
        try:
            self._run(("sbatch", "--test-only"), given=script)
        except SlurmRefused as error:
            return [PlaceFinding(kind="refused", message=f"Slurm refuses the job: {error}", hint=f"places.{self.name}")]
        return []

    def _asked(self, *words: str) -> str:
        try:
            return self._run(words)
        except SlurmRefused as error:
            raise TonnageError(
                f"{self.name}: {words[0]}: {error}", hint="`scontrol ping` says whether it is up"
            ) from error

    def _run(self, words: Sequence[str], *, given: str | None = None) -> str:
        try:
            done = subprocess.run(
                words, input=given, capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, check=False
            )
        except FileNotFoundError as error:
            raise TonnageError(f"{words[0]} is not here", hint=MISSING) from error
        except subprocess.TimeoutExpired as error:
            raise SlurmRefused(f"{words[0]} has not answered for {ANSWER_TIMEOUT_S:g} s") from error
        if done.returncode:
            raise SlurmRefused(
                "; ".join(done.stderr.split("\n")).strip("; ") or f"{words[0]} ended with {done.returncode}"
            )
        return done.stdout
