"""An Azure ML workspace: command jobs with their documented states, held to the recorded models; work is done.

The part of a pretended subscription (`tonnage.testing.azure.cloud`) that is Microsoft.MachineLearningServices.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tonnage.http.body_shapes import faults_of, recorded_schemas
from tonnage.testing.http_service import Asked, Document, HTTPAnswer
from tonnage.testing.machines import FakeMachine, start_machine
from tonnage.values import dataclass

CLIENT_ID: Final = "99999999-8888-7777-6666-555555555555"  # of the nodes' identity
JOBS: Final = re.compile(r"(?P<home>/subscriptions/.*/workspaces/team)/jobs(?:/(?P<name>[^/]+)(?P<verb>/cancel)?)?")
VERSIONS: Final = re.compile(r"/subscriptions/.*/workspaces/team/environments/[^/]+/versions/[^/]+")
CHANGEABLE: Final = ("description", "tags", "displayName", "properties", "isArchived")
ENDS: Final = frozenset({"Completed", "Failed", "Canceled"})
MINUTES: Final = re.compile(r"PT(\d+)M")
Refuse = Callable[[int, str, str], HTTPAnswer]


@dataclass(slots=True, kw_only=True)
class FakeMLJob:
    """One command job."""

    body: Document
    status: str = "NotStarted"
    since: float = 0.0
    nodes: list[FakeMachine]
    cancelled_at: float | None = None
    notice: datetime | None = None  # when its nodes are taken away
    starts: int = 0


class FakeAzureML:
    """The workspace `team`, with the cluster `gpus` of low priority. `there`: what GET answers, by path."""

    def __init__(self, folder: Path, group: str, url: Callable[[], str], refuse: Refuse) -> None:
        self.folder, self._url, self._refuse = folder, url, refuse
        self.home = f"{group}/providers/Microsoft.MachineLearningServices/workspaces/team"
        self.jobs: dict[str, FakeMLJob] = {}
        self.environments: dict[str, Document] = {}
        self.page, self.start_s, self.gap_s, self.grace_s, self.notice_s = 50, 0.05, 0.5, 20.0, 5.0
        self.cluster: Document = {
            "vmSize": "Standard_NC24ads_A100_v4", "vmPriority": "LowPriority",
            "scaleSettings": {"minNodeCount": 0, "maxNodeCount": 4},
        }  # fmt: skip
        compute = {"properties": {"computeType": "AmlCompute", "properties": self.cluster},
                   "identity": {"userAssignedIdentities": {"/id": {"clientId": CLIENT_ID}}}}  # fmt: skip
        self.sizes: list[Document] = [
            {"name": "Standard_NC24ads_A100_v4", "family": "StandardNCADSA100v4Family", "vCPUs": 24, "memoryGB": 220,
             "gpus": 1, "lowPriorityCapable": True},
            {"name": "Standard_DS3_v2", "family": "standardDSv2Family", "vCPUs": 4, "memoryGB": 14, "gpus": 0,
             "lowPriorityCapable": False},
        ]  # fmt: skip
        self.quotas = {
            "StandardNCADSA100v4Family": (24, 0),
            "Low Priority Cores": (96, 0),
            "standardDSv2Family": (8, 6),
        }
        self.there: dict[str, Document] = {
            self.home: {"name": "team", "location": "eastus"}, f"{self.home}/computes/gpus": compute,
            f"{self.home}/computes/box": {"properties": {"computeType": "ComputeInstance"}},
        }  # fmt: skip

    def answer(self, asked: Asked) -> HTTPAnswer | None:
        """What it says; None of what is another's."""
        if found := JOBS.fullmatch(asked.path):
            return self._jobs(asked, found["name"], cancel=found["verb"] is not None)
        if VERSIONS.fullmatch(asked.path):
            return self._environment(asked)
        if asked.path in self.there:
            return HTTPAnswer(document=self.there[asked.path])
        if asked.path.endswith("Services/locations/eastus/vmSizes"):
            return HTTPAnswer(document={"value": self.sizes})
        if asked.path.endswith("Services/locations/eastus/usages"):
            usages = [{"name": {"value": name}, "limit": limit, "currentValue": used}
                    for name, (limit, used) in self.quotas.items()]  # fmt: skip
            return HTTPAnswer(document={"value": usages})
        return None

    def _environment(self, asked: Asked) -> HTTPAnswer:
        there = self.environments.get(asked.path)
        if asked.method == "GET":
            return HTTPAnswer(document=there) if there else self._refuse(404, "UserError", "Environment not found")
        wrong = list(faults_of(asked.body, {"$ref": "EnvironmentVersion"}, "", _schemas()))
        if wrong:
            return self._refuse(400, "UserError", "; ".join(wrong))
        if there not in (None, asked.body):
            return self._refuse(409, "UserError", "A version cannot be changed.")
        self.environments[asked.path] = asked.body
        return HTTPAnswer(status=201, document=asked.body)

    def _jobs(self, asked: Asked, name: str | None, *, cancel: bool) -> HTTPAnswer:
        if name is None:
            return self._list(asked)
        job = self.jobs.get(name)
        if asked.method == "PUT":
            return self._create(asked, name)
        if job is None:
            return self._refuse(404, "UserError", f"Job {name} not found")
        if cancel:
            if job.status in ENDS:
                return self._refuse(400, "UserError", f"The job is {job.status}")
            job.status, job.cancelled_at = "CancelRequested", time.monotonic()
            for one in job.nodes:
                one.process.terminate()
            return HTTPAnswer(status=202)
        return HTTPAnswer(document=self._document(name, job))

    def _create(self, asked: Asked, name: str) -> HTTPAnswer:
        wrong = list(faults_of(asked.body, {"$ref": "JobBase"}, "", _schemas()))
        job = asked.body["properties"]
        if not wrong and job["environmentId"] not in self.environments:
            wrong = [f"there is no environment {job['environmentId']}"]
        if not wrong and job.get("computeId", f"{self.home}/computes/gpus") not in self.there:
            wrong = [f"there is no compute {job['computeId']}"]
        if wrong:
            return self._refuse(400, "UserError", "; ".join(wrong))
        before = self.jobs.get(name)
        if before is not None:
            if _fixed(before.body["properties"]) != _fixed(job):
                return self._refuse(400, "UserError", "A job with this name already exists. Only description, tags, "
                                    "displayName, properties, and isArchived can be updated.")  # fmt: skip
            return HTTPAnswer(document=self._document(name, before))
        self.jobs[name] = FakeMLJob(body=asked.body, since=time.monotonic(), nodes=[])
        return HTTPAnswer(status=201, document=self._document(name, self.jobs[name]))

    def _list(self, asked: Asked) -> HTTPAnswer:
        mark, _, value = asked.query["properties"].partition("=")
        names = sorted(name for name, one in self.jobs.items()
                       if one.body["properties"].get("properties", {}).get(mark) == value)  # fmt: skip
        at = int(asked.query.get("$skip") or 0)
        link = f"{self._url()}{self.home}/jobs?api-version=x&properties={mark}%3D{value}&$skip={at + self.page}"
        more = {"nextLink": link} if at + self.page < len(names) else {}
        some = [self._document(name, self.jobs[name]) for name in names[at : at + self.page]]
        return HTTPAnswer(document={"value": some, **more})

    def _document(self, name: str, job: FakeMLJob) -> Document:
        studio = {"Studio": {"endpoint": f"https://ml.azure.com/runs/{name}"}}
        return {"name": name, "properties": {**job.body["properties"], "status": job.status, "services": studio}}

    # time

    def notice_of(self, name: str) -> datetime | None:
        """When a job's nodes are taken away, as their scheduled events say."""
        job = self.jobs.get(name)
        return None if job is None else job.notice

    def preempt(self, name: str) -> None:
        """Azure takes the nodes of low priority: the job waits for others, and starts once more."""
        self.jobs[name].notice = datetime.now(UTC) + timedelta(seconds=self.notice_s)

    def vanish(self, name: str) -> None:
        """The workspace no longer knows the job."""
        for one in self.jobs.pop(name).nodes:
            one.kill()

    def tick(self) -> None:
        """Jobs get their nodes, work, and end."""
        for name, job in list(self.jobs.items()):
            if job.status not in ENDS:
                self._advance(name, job)

    def _advance(self, name: str, job: FakeMLJob) -> None:
        now = time.monotonic()
        nexts = {"NotStarted": "Queued", "Queued": "Preparing", "Preparing": "Running"}
        wait_s = self.gap_s if job.status == "Queued" and job.starts else self.start_s
        if job.status in nexts and now - job.since > wait_s:
            job.status, job.since = nexts[job.status], now
            if job.status == "Running":
                self._start(name, job)
        elif job.notice is not None and datetime.now(UTC) > job.notice:
            for one in job.nodes:
                one.kill()
            job.nodes, job.notice, job.status, job.since = [], None, "Queued", now
        elif job.nodes:
            self._watch(job, now)
        elif job.status == "CancelRequested":
            job.status = "Canceled"

    def _start(self, name: str, job: FakeMLJob) -> None:
        asked, job.starts = job.body["properties"], job.starts + 1
        for rank in range(asked["resources"]["instanceCount"]):
            env = {**asked["environmentVariables"], "AZUREML_RUN_ID": name, "NODE_RANK": str(rank),
                   "TONNAGE_AZURE_METADATA_URL": f"{self._url()}/metadata/{name}"}  # fmt: skip
            job.nodes.append(start_machine(shlex.split(asked["command"]), env, self.folder / f"{name}.{rank}.log"))

    def _watch(self, job: FakeMLJob, now: float) -> None:
        codes = [one.ended() for one in job.nodes]
        limit_s = 60 * int(MINUTES.fullmatch(job.body["properties"]["limits"]["timeout"])[1])  # type: ignore[index]
        if None not in codes:
            for one in job.nodes:
                one.kill()
            done = "Failed" if any(codes) else "Completed"
            job.status, job.nodes = "Canceled" if job.cancelled_at is not None else done, []
        elif job.cancelled_at is not None and now - job.cancelled_at > self.grace_s:
            for one in job.nodes:
                one.kill()
        elif job.cancelled_at is None and now - job.since > limit_s:
            job.cancelled_at = now
            for one in job.nodes:
                one.process.terminate()

    def close(self) -> None:
        """Nothing is left running."""
        for job in self.jobs.values():
            for one in job.nodes:
                if one.ended() is None:
                    one.kill()


def _fixed(job: Document) -> Document:
    return {key: value for key, value in job.items() if key not in CHANGEABLE}


def _schemas() -> Any:
    return recorded_schemas("tonnage.places.azure", "job_schema.json")
