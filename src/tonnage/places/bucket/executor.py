"""A run at a cloud: the cloud starts the machine and ends it; all reports of the run pass through the bucket."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from getpass import getuser
from pathlib import Path
from typing import Any, Final

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.cloud import CloudJobs, requests_in, script_of, work_of
from tonnage.places.bucket.grown import follow
from tonnage.places.bucket.layout import ALONG, GROWN, LEASE, SENT, Keys, input_key
from tonnage.places.bucket.objects import Objects, open_objects
from tonnage.places.bucket.place import BucketPlace
from tonnage.places.bucket.saving import Saver, bring, newest_checkpoint, newest_of_each, saved_artifacts
from tonnage.places.contract import (
    DeclaredGap,
    Orphan,
    PlaceFinding,
    Submission,
    home_mark,
    must_have,
    read_tag,
    tag_of,
    token_of,
)
from tonnage.places.record import (
    PlaceRecord,
    leave_queue,
    read_record,
    submitting,
    unwanted,
    write_record,
    write_submission,
)
from tonnage.places.several import SeveralMachines, ranked, refuse_parts, silence_s
from tonnage.places.ssh.mirror import Mirror, write_mirror
from tonnage.places.ssh.shipping import Object, inputs_of, object_of, spec_there
from tonnage.places.states import JobView, Phase, PlaceState, joined
from tonnage.runs.folder import RunFolder
from tonnage.runs.job import Job, dump_job
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import has_supervisor
from tonnage.runs.logs import machine_logs
from tonnage.runs.requests import cancel_request, write_request
from tonnage.runs.secrets import named_secrets
from tonnage.runs.spec import RunSpec, dump_spec
from tonnage.runs.states import RunReason
from tonnage.values import dataclass

PROGRAM: Final = "tonnage.supervisor.bucket"
LIVE: Final = frozenset({Phase.QUEUED, Phase.PROVISIONING, Phase.RUNNING, Phase.ENDING})
NO_EXEC: Final = DeclaredGap(
    verb="exec", reason="nothing is open on the machine: no port, no agent that takes commands", whole=True
)


@dataclass(frozen=True, kw_only=True)
class BucketRuns:
    """One place of a kind whose machines meet the client in a bucket."""

    kind: str
    name: str
    place: Any  # of the kind: a BucketPlace
    cloud: CloudJobs

    @property
    def gaps(self) -> tuple[DeclaredGap, ...]:
        return self.cloud.gaps

    @property
    def terms(self) -> BucketPlace:
        found: BucketPlace = self.place
        return found

    @cached_property
    def objects(self) -> Objects:
        return open_objects(
            self.terms.bucket, region=self.terms.region, profile=getattr(self.place, "profile", None),
            endpoint=self.terms.store_endpoint,
        )  # fmt: skip

    def folder_there(self, folder: RunFolder) -> RunFolder:
        return RunFolder(Path(self.terms.mount) / "runs" / home_mark(folder.path.parent) / folder.path.name)

    # before

    def check(self, folder: RunFolder) -> tuple[PlaceFinding, ...]:
        """The bucket first: without it nothing can be sent; then all that the cloud tells."""
        found: list[PlaceFinding] = []
        try:
            self.objects.sizes(f"{home_mark(folder.path.parent)}/{folder.path.name}/check")
            found += self._conditions() if self.terms.proves_conditions else ()
        except TonnageError as error:
            found.append(PlaceFinding(kind="refused", message=error.message, hint=error.hint or ""))
        if self.terms.gpus and not self.terms.tells_driver:
            from tonnage.places.gpu_software import software_at  # it reads tables, which a submission does not need

            found += software_at(self.terms, self.name)
        try:
            found += self.cloud.questions()
        except TonnageError as error:
            found.append(PlaceFinding(kind="refused", message=error.message, hint=error.hint or ""))
        return tuple(dict.fromkeys(found))  # who cannot sign in learns it once

    def _conditions(self) -> list[PlaceFinding]:
        """Whether the store refuses to make what is there: the lease of a run needs that. Its object goes again."""
        key = f"check/{uuid.uuid4().hex}"
        try:
            kept = self.objects.write_if(key, b"1", None) and not self.objects.write_if(key, b"2", None)
        finally:
            self.objects.remove([key])
        if kept:
            return []
        said = f"{self.objects.url} takes conditional writes that it should refuse: two writers are not kept apart"
        return [PlaceFinding(kind="doubtful", message=said, hint="never submit a run from two clients at once")]

    def render(self, spec: RunSpec, job: Job, folder: RunFolder, *, number: int) -> Submission:
        needed = named_secrets(spec)
        if needed and self.terms.secret is None:
            hint = f"places.{self.name}.secret: a secret of the cloud, a JSON object of these variables"
            raise InputError(f"the run needs {', '.join(needed)}, and the place names no `secret`", hint=hint)
        token, tag = token_of(folder.path, number), tag_of(folder.path, number)
        if self._together > 1:
            job = ranked(job, nodes=self._together)
            if not self._shares:
                refuse_parts(spec, place=self.name)
        env = {"TONNAGE_HOME": self.terms.mount, "HF_HOME": f"{self.terms.mount}/cache/huggingface",
               "PYTHONUNBUFFERED": "1"}  # fmt: skip
        work = work_of(
            spec, folder, number=number, tag=tag, place=self.name, owner=self.terms.owner or getuser(),
            command=self._command(folder, number, token), env=env, labels=self.terms.labels, secrets=needed,
        )  # fmt: skip
        requests = self.cloud.requests(work)
        keys = self._keys(folder, number)
        puts = [("PUT", f"{self.terms.bucket}/{key}") for key in (*map(keys.sent, (*SENT, "inputs.json")), keys.lease)]
        calls = [(one.service, one.operation) for one in requests]
        return Submission(
            place=self.name, kind=self.kind, tag=tag, token=token, number=number, script=script_of(requests),
            commands=(*puts, *calls), job=job,
        )  # fmt: skip

    def _command(self, folder: RunFolder, number: int, token: str) -> tuple[str, ...]:
        terms = self.terms
        optional = {"--region": terms.region, "--endpoint": terms.store_endpoint, "--secret": terms.secret_address}
        return (
            terms.python, "-m", PROGRAM, "--store", terms.store_there, "--base", self._base(folder),
            "--number", str(number), "--token", token, "--run", str(self.folder_there(folder).path),
            *(word for name, value in optional.items() if value is not None for word in (name, value)),
            "--notice-s", str(terms.grace_s), "--every-s", f"{terms.exchange_s:g}",
            *([] if terms.starts_again else ["--stay"]),
            *self._gathering,
            *(["--shared"] if self._shares else []),
        )  # fmt: skip

    @property
    def _gathering(self) -> tuple[str, ...]:
        """What each of several machines knows of the others."""
        if not isinstance(self.place, SeveralMachines) or self.place.nodes == 1:
            return ()
        silent_s = silence_s(self.place.silent_after_s, self.terms.exchange_s)
        return ("--machines", str(self.place.nodes), "--silent-s", f"{silent_s:g}")

    @property
    def _together(self) -> int:
        """How many machines run the same command and meet by themselves."""
        return self.place.nodes if isinstance(self.place, SeveralMachines) else 1

    @property
    def _shares(self) -> bool:
        return isinstance(self.place, SeveralMachines) and self.place.shared_mount

    def submit(self, submission: Submission, folder: RunFolder) -> str:
        with submitting(folder):
            before = read_record(folder)
            if before is not None and before.token == submission.token:
                if before.job_id is not None:
                    return before.job_id
                if (there := self.cloud.find(submission.token)) is not None:
                    write_record(folder, replace(before, job_id=there))
                    return there
            elif before is not None:
                self._end(before)  # two submissions of a run never work at once
            inputs = {path: object_of(file) for path, file in inputs_of(folder.spec(), self.terms.holds).items()}
            record = write_submission(folder, submission)
            self._say(submission, folder, record, inputs)
            job_id = self.cloud.send(requests_in(submission.script), submission.token)
            write_record(folder, replace(record, job_id=job_id))
            return job_id

    def _say(self, submission: Submission, folder: RunFolder, record: PlaceRecord, inputs: dict[str, Object]) -> None:
        """All that the machine reads lies in the bucket before there is a machine; the lease last."""
        keys, run = self._keys(folder, record.number), str(self.folder_there(folder).path)
        known = self.objects.sizes("objects/") if inputs else {}
        for one in inputs.values():
            if known.get(input_key(one.digest)) != one.size and one.path is not None:
                self.objects.put(input_key(one.digest), one.path)
        self._send_checkpoint(folder, record.number)
        journal = folder.journal_file.read_bytes()
        sent = {
            "spec.json": dump_spec(spec_there(self._spec(folder), run, self.terms.holds)).encode(),
            "job.json": dump_job(submission.job).encode(),
            "place.json": json.dumps(asdict(record)).encode(),
            "inputs.json": json.dumps({path: one.digest for path, one in sorted(inputs.items())}).encode(),
            "journal.jsonl": journal,
            **{
                name: path.read_bytes() for name in ALONG if name not in GROWN and (path := folder.path / name).exists()
            },
        }
        for name, content in sent.items():
            self.objects.write(keys.sent(name), content)
        grown = (*GROWN, *machine_logs(folder))
        here = {name: path.stat().st_size if (path := folder.path / name).exists() else 0 for name in grown}
        write_mirror(folder, Mirror(token=record.token, there={"journal.jsonl": len(journal)}, here=here, base=here))
        self._take_lease(keys, record)

    def _spec(self, folder: RunFolder) -> RunSpec:
        """With the place's own notices of interruption, beside those that the run names."""
        spec = folder.spec()
        notices = (*spec.launch.notices, *(self.cloud.notices if self.terms.interruptible else ()))
        return replace(spec, launch=replace(spec.launch, notices=tuple(dict.fromkeys(notices))))

    def _send_checkpoint(self, folder: RunFolder, number: int) -> None:
        """What was saved here or at another place goes along, where the bucket has nothing newer."""
        steps = [int(path.name[5:]) for path in folder.checkpoints.glob("step-*") if path.name[5:].isdigit()]
        if not steps:
            return
        there = newest_checkpoint(saved_artifacts(self.objects, self._base(folder)), number=number)
        if there is None or (there.step or 0) < max(steps):
            newest = [path for path in folder.checkpoints.glob("step-*") if path.name[5:].isdigit()
                      and int(path.name[5:]) == max(steps)]  # fmt: skip
            Saver(self.objects, self._keys(folder, number), folder).send(f"checkpoints/{newest[0].name}")

    def _take_lease(self, keys: Keys, record: PlaceRecord) -> None:
        """From here on no older submission writes. TonnageError where a newer one, or another client, has it."""
        found = self.objects.read(keys.lease)
        held: dict[str, Any] = {} if found is None else json.loads(found.content)
        if held.get("token") == record.token:
            return
        newer = held.get("number", 0) >= record.number
        if newer or not self.objects.write_if(
            keys.lease, json.dumps(asdict(record)).encode(), None if found is None else found.version
        ):
            raise TonnageError(
                f"another submission of this run is at {self.objects.url}/{keys.base}",
                hint="`tonnage places orphans --end`, then `tonnage resume`",
            )

    # while it runs

    def status(self, folder: RunFolder) -> PlaceState:
        record = read_record(folder)
        if record is None:
            return joined(JobView(phase=Phase.GONE), folder.state())
        job_id = self._job(folder, record)
        view = JobView(phase=Phase.GONE) if job_id is None else self.cloud.view(job_id)
        self._follow(folder, record)  # after the job was asked: an end that it had is in the bucket by then
        return joined(view, folder.state())

    def logs(self, folder: RunFolder) -> None:
        record = read_record(folder)
        if record is not None:
            self._follow(folder, record)

    def exec(self, folder: RunFolder, argv: Sequence[str]) -> int:
        must_have(self, "exec")
        raise AssertionError(f"{self.kind} runs no command: {folder.path.name} {argv}")

    def stop(self, folder: RunFolder, *, by: str, reason: str) -> None:
        self._ask_run(folder, folder.stop_request, by, reason, EventKind.STOPPED, RunReason.USER_STOPPED)

    def cancel(self, folder: RunFolder, *, by: str, reason: str) -> None:
        self._ask_run(folder, cancel_request(folder), by, reason, EventKind.CANCELLED, RunReason.USER_CANCELLED)

    def _ask_run(self, folder: RunFolder, request: Path, by: str, reason: str, kind: EventKind, why: RunReason) -> None:
        """By a word in the bucket, where somebody reads it; else the job goes and the journal says so."""
        record = read_record(folder)
        if record is not None:
            self._follow(folder, record)
            if has_supervisor(folder):
                write_request(request, by=by, reason=reason)
                content = request.read_bytes()
                request.unlink()
                self.objects.write(self._keys(folder, record.number).asked(request.name), content)
                return
            self._end(record)
        leave_queue(folder, kind, why, place=self.name)

    # after

    def collect(self, folder: RunFolder) -> None:
        self.logs(folder)
        for artifact in newest_of_each(saved_artifacts(self.objects, self._base(folder))).values():
            bring(self.objects, self._base(folder), artifact, folder)
        record = read_record(folder)
        if self.terms.stays and record is not None and folder.state().state.ended:
            self._end(record)

    def teardown(self, folder: RunFolder) -> None:
        """A run that works is asked to save first. What was saved comes here, verified; then nothing stays there."""
        record = read_record(folder)
        if record is None:
            return
        self._follow(folder, record)
        if has_supervisor(folder) and not folder.state().state.ended:
            self.stop(folder, by="teardown", reason=f"the run leaves {self.name}")
            self._wait_for_end(folder, record)
        self._end(record)
        self.collect(folder)
        base = self._base(folder)
        self.objects.remove([key for key in self.objects.sizes(f"{base}/") if key != f"{base}/{LEASE}"])

    def _wait_for_end(self, folder: RunFolder, record: PlaceRecord) -> None:
        until = time.monotonic() + self.terms.grace_s + 2 * self.terms.exchange_s
        while has_supervisor(folder) and not folder.state().state.ended and time.monotonic() < until:
            time.sleep(min(1.0, self.terms.exchange_s))
            self._follow(folder, record)

    def orphans(self, runs: Path, *, end: bool) -> tuple[Orphan, ...]:
        found = []
        for job in self.cloud.tagged(home_mark(runs)):
            tag = read_tag(job.tag)
            if tag is None or tag[0] != home_mark(runs) or job.view.phase not in LIVE:
                continue
            why = unwanted(RunFolder(runs / tag[2]), token=tag[1])
            if why:
                found.append(Orphan(job_id=job.job_id, run=tag[2], word=job.view.word, why=why))
                if end:
                    self.cloud.end(job.job_id, tag[1])
        return tuple(found)

    # the run

    def _base(self, folder: RunFolder) -> str:
        return f"{home_mark(folder.path.parent)}/{folder.path.name}"

    def _keys(self, folder: RunFolder, number: int) -> Keys:
        return Keys(base=self._base(folder), number=number)

    def _follow(self, folder: RunFolder, record: PlaceRecord) -> None:
        keys = self._keys(folder, record.number)
        if self.terms.starts_again and (lease := self.objects.read(keys.lease)) is not None:
            holder = json.loads(lease.content)
            if holder.get("token") == record.token:
                keys = replace(keys, epoch=int(holder.get("epoch", 0)))
        follow(self.objects, keys, folder, record.token)

    def _job(self, folder: RunFolder, record: PlaceRecord) -> str | None:
        if record.job_id is not None:
            return record.job_id
        found = self.cloud.find(record.token)
        if found is not None:
            write_record(folder, replace(record, job_id=found))
        return found

    def _end(self, record: PlaceRecord) -> None:
        job_id = record.job_id or self.cloud.find(record.token)
        if job_id is not None:
            self.cloud.end(job_id, record.token)
