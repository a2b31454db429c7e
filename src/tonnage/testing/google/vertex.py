"""Vertex AI's custom jobs with their documented states; requests are held to the discovery document, work is done."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path
from typing import Final

from tonnage.http.body_shapes import faults_of
from tonnage.places.google.schema import JOB_ROOT, custom_job_schemas
from tonnage.testing.google.storage import google_fault
from tonnage.testing.http_service import Asked, Document, HTTPAnswer
from tonnage.testing.machines import FakeMachine, start_machine
from tonnage.values import dataclass

PATH: Final = re.compile(r"/aiplatform/v1/(projects/[^/]+/locations/[^/]+/customJobs)(?:/(\d+)(:cancel)?)?")
LABEL: Final = re.compile(r'labels\.([a-z-]+)="([^"]*)"')
STATE: Final = re.compile(r'state="([A-Z_]+)"')
ENDS: Final = frozenset({"JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"})


@dataclass(slots=True, kw_only=True)
class FakeCustomJob:
    """One job."""

    name: str
    body: Document
    state: str = "JOB_STATE_QUEUED"
    since: float = 0.0
    machine: FakeMachine | None = None
    cancelled_at: float | None = None
    message: str = ""


class FakeVertex:
    """The part of a project that is Vertex AI."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, FakeCustomJob] = {}
        self.page, self.start_s, self.grace_s = 100, 0.1, 20.0
        self._numbers = itertools.count(1)

    def answer(self, asked: Asked) -> HTTPAnswer | None:
        """What it says; None of what is another's."""
        found = PATH.fullmatch(asked.path)
        if found is None:
            return None
        parent, number, cancel = found.groups()
        if number is None:
            return self._create(parent, asked.body) if asked.method == "POST" else self._list(asked)
        job = self.jobs.get(f"{parent}/{number}")
        if job is None:
            return google_fault(404, "notFound", f"The CustomJob {number} does not exist.")
        if cancel:
            if job.state not in ENDS:
                job.state, job.cancelled_at = "JOB_STATE_CANCELLING", time.monotonic()
                if job.machine is not None:
                    job.machine.process.terminate()
            return HTTPAnswer(document={})
        return HTTPAnswer(document=self._document(job))

    def _create(self, parent: str, body: Document) -> HTTPAnswer:
        faults = list(faults_of(body, {"$ref": JOB_ROOT}, "", custom_job_schemas()))
        if faults:
            return google_fault(400, "badRequest", "; ".join(faults))
        name = f"{parent}/{next(self._numbers)}"
        self.jobs[name] = FakeCustomJob(name=name, body=body, since=time.monotonic())
        return HTTPAnswer(document=self._document(self.jobs[name]))

    def _list(self, asked: Asked) -> HTTPAnswer:
        wanted = asked.query["filter"]
        label, states = LABEL.search(wanted), set(STATE.findall(wanted))
        assert label is not None, wanted
        found = [self._document(one) for one in self.jobs.values() if one.body["labels"].get(label[1]) == label[2]
                 and (not states or one.state in states)]  # fmt: skip
        at = int(asked.query.get("pageToken") or 0)
        more = {"nextPageToken": str(at + self.page)} if at + self.page < len(found) else {}
        return HTTPAnswer(document={"customJobs": found[at : at + self.page], **more})

    def _document(self, one: FakeCustomJob) -> Document:
        error = {"error": {"message": one.message}} if one.message else {}
        return {**one.body, "name": one.name, "state": one.state, **error}

    def tick(self) -> None:
        """Jobs get their machines, work, and end."""
        for one in self.jobs.values():
            if one.state not in ENDS:
                self._advance(one)

    def _advance(self, one: FakeCustomJob) -> None:
        now = time.monotonic()
        if one.state == "JOB_STATE_QUEUED" and now - one.since > self.start_s:
            one.state, one.since = "JOB_STATE_PENDING", now
        elif one.state == "JOB_STATE_PENDING" and now - one.since > self.start_s:
            container = one.body["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]
            env = {each["name"]: each["value"] for each in container["env"]}
            log = self.folder / f"{one.name.rpartition('/')[2]}.vertex.log"
            one.machine = start_machine([*container["command"], *container["args"]], env, log)
            one.state, one.since = "JOB_STATE_RUNNING", now
        elif one.machine is not None:
            self._watch(one, one.machine, now)
        elif one.state == "JOB_STATE_CANCELLING":
            one.state = "JOB_STATE_CANCELLED"

    def _watch(self, one: FakeCustomJob, machine: FakeMachine, now: float) -> None:
        code = machine.ended()
        limit_s = float(one.body["jobSpec"]["scheduling"]["timeout"].rstrip("s"))
        if code is not None:
            machine.kill()
            if one.state == "JOB_STATE_CANCELLING":
                one.state = "JOB_STATE_CANCELLED"
            elif code == 0:
                one.state = "JOB_STATE_SUCCEEDED"
            else:
                one.state = "JOB_STATE_FAILED"
                one.message = f"The replica workerpool0-0 exited with a non-zero status of {code}."
        elif one.cancelled_at is not None and now - one.cancelled_at > self.grace_s:
            machine.kill()
        elif one.state == "JOB_STATE_RUNNING" and now - one.since > limit_s:
            one.state, one.cancelled_at = "JOB_STATE_CANCELLING", now
            machine.process.terminate()

    def vanish(self, name: str) -> None:
        """The job is lost, and the project no longer knows it."""
        job = self.jobs.pop(name)
        if job.machine is not None:
            job.machine.kill()

    def close(self) -> None:
        """Nothing is left running."""
        for one in self.jobs.values():
            if one.machine is not None and one.machine.ended() is None:
                one.machine.kill()
