"""AWS Batch with the documented states of its jobs: requests are held to botocore's model, work is done.

with fake_batch(folder) as service: ...      # AWS_ENDPOINT_URL_BATCH = service.url

What is not asked here, roles, types and images, other servers answer.
"""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tonnage.http.aws_shapes import request_shape, shape_faults
from tonnage.testing.http_service import Asked, Document, Fault, HTTPAnswer, running, server_of
from tonnage.testing.machines import FakeMachine, start_machine
from tonnage.values import dataclass

OPERATIONS: Final = {
    "/v1/submitjob": "SubmitJob", "/v1/registerjobdefinition": "RegisterJobDefinition", "/v1/listjobs": "ListJobs",
    "/v1/describejobs": "DescribeJobs", "/v1/terminatejob": "TerminateJob",
    "/v1/describejobdefinitions": "DescribeJobDefinitions", "/v1/describejobqueues": "DescribeJobQueues",
    "/v1/describecomputeenvironments": "DescribeComputeEnvironments",
}  # fmt: skip
ENDS: Final = frozenset({"SUCCEEDED", "FAILED"})
NEXT: Final = {"SUBMITTED": "RUNNABLE", "RUNNABLE": "STARTING", "STARTING": "RUNNING"}


@dataclass(slots=True, kw_only=True)
class FakeBatchJob:
    """One job."""

    asked: Document
    created: int
    status: str = "SUBMITTED"
    since: float = 0.0
    reason: str = ""
    attempts: list[str]  # the status reason of each attempt that has ended
    nodes: list[FakeMachine]
    terminated: bool = False
    taken: bool = False  # its nodes are being ended
    notice: datetime | None = None  # when spot takes its host


class FakeBatch:
    """A running one, with the queue `gpus` of one compute environment. `queues`, `environments`: what is described."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, FakeBatchJob] = {}
        self.definitions: dict[str, Document] = {}
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.asked: list[Asked] = []
        self.page, self.start_s, self.gap_s, self.grace_s, self.notice_s = 100, 0.05, 0.5, 10.0, 0.3
        self.queues: dict[str, Document] = {
            "gpus": {"jobQueueName": "gpus", "jobQueueArn": "arn:q", "state": "ENABLED", "priority": 1,
                     "computeEnvironmentOrder": [{"order": 1, "computeEnvironment": "here"}]},
        }  # fmt: skip
        self.resources: Document = {"type": "SPOT", "instanceTypes": ["m5.large"], "minvCpus": 0, "maxvCpus": 64}
        self.environment: Document = {
            "computeEnvironmentName": "here", "computeEnvironmentArn": "arn:c", "type": "MANAGED", "state": "ENABLED",
            "status": "VALID", "computeResources": self.resources,
        }  # fmt: skip
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)
        self.http = server_of(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, asked: Asked) -> HTTPAnswer:
        """What the service, or the metadata service of a job's host, says."""
        if asked.path.startswith("/host/"):
            return self._metadata(asked)
        operation = OPERATIONS[asked.path]
        found = list(shape_faults(asked.body, request_shape("batch", operation)))
        if found:
            return batch_fault(400, "ClientException", "; ".join(found))
        verbs = {
            "SubmitJob": self._submit, "RegisterJobDefinition": self._register, "ListJobs": self._list,
            "DescribeJobs": self._describe, "TerminateJob": self._terminate,
            "DescribeJobDefinitions": self._definitions, "DescribeJobQueues": self._queues,
            "DescribeComputeEnvironments": self._environments,
        }  # fmt: skip
        with self.lock:
            answer = verbs[operation](asked.body)
        return answer if isinstance(answer, HTTPAnswer) else HTTPAnswer(document=answer)

    def _metadata(self, asked: Asked) -> HTTPAnswer:
        """`/host/JOB/latest/meta-data/spot/instance-action`, with the token of IMDSv2 before."""
        if asked.method == "PUT":
            return HTTPAnswer(content=b"token")
        job = self.jobs.get(asked.path.split("/")[2])
        if job is None or job.notice is None or not asked.path.endswith("/spot/instance-action"):
            return HTTPAnswer(status=404)
        return HTTPAnswer(document={"action": "terminate", "time": job.notice.strftime("%Y-%m-%dT%H:%M:%SZ")})

    # verbs

    def _register(self, body: Document) -> Document | HTTPAnswer:
        if (body["type"] == "multinode") is not ("nodeProperties" in body):
            return batch_fault(400, "ClientException", "a multinode definition has nodeProperties")
        self.definitions[body["jobDefinitionName"]] = body
        name = body["jobDefinitionName"]
        return {"jobDefinitionName": name, "jobDefinitionArn": f"arn:d/{name}:1", "revision": 1}

    def _definitions(self, body: Document) -> Document:
        name = body["jobDefinitionName"]
        found = [self.definitions[name]] if name in self.definitions else []
        return {"jobDefinitions": [{**one, "jobDefinitionArn": "arn:d", "revision": 1, "status": "ACTIVE"}
                                   for one in found]}  # fmt: skip

    def _submit(self, body: Document) -> Document | HTTPAnswer:
        definition = self.definitions.get(body["jobDefinition"])
        if definition is None or body["jobQueue"] not in self.queues:
            return batch_fault(400, "ClientException", "JobDefinition or JobQueue does not exist")
        several = definition["type"] == "multinode"
        if several is not ("nodeOverrides" in body) or (several and self.resources["type"] == "SPOT"):
            return batch_fault(400, "ClientException", "the overrides or the compute environment do not fit the job")
        number = next(self._numbers)
        name = f"job-{number}"
        self.jobs[name] = FakeBatchJob(asked=body, created=number, since=time.monotonic(), attempts=[], nodes=[])
        return {"jobId": name, "jobName": body["jobName"], "jobArn": f"arn:j/{name}"}

    def _list(self, body: Document) -> Document:
        filters = body.get("filters") or []
        if filters:
            [pattern] = filters[0]["values"]
            found = [name for name, job in self.jobs.items()
                     if fnmatchcase(job.asked["jobName"].lower(), pattern.lower())]  # fmt: skip
        else:
            wanted = body.get("jobStatus", "RUNNING")
            found = [name for name, job in self.jobs.items() if job.status == wanted]
        at = int(body.get("nextToken", 0))
        more = {"nextToken": str(at + self.page)} if at + self.page < len(found) else {}
        summaries = [{"jobId": name, "jobName": self.jobs[name].asked["jobName"], "createdAt": self.jobs[name].created,
                 "status": self.jobs[name].status} for name in found[at : at + self.page]]  # fmt: skip
        return {"jobSummaryList": summaries, **more}

    def _describe(self, body: Document) -> Document:
        found = []
        for name in body["jobs"]:
            if (job := self.jobs.get(name)) is not None:
                found.append({
                    "jobId": name, "jobName": job.asked["jobName"], "jobQueue": job.asked["jobQueue"],
                    "jobDefinition": "arn:d", "startedAt": 0, "status": job.status, "tags": job.asked.get("tags", {}),
                    "attempts": [{"statusReason": one} for one in job.attempts], "isTerminated": job.terminated,
                    **({"statusReason": job.reason} if job.reason else {}),
                })  # fmt: skip
        return {"jobs": found}

    def _terminate(self, body: Document) -> Document:
        job = self.jobs.get(body["jobId"])
        if job is not None and job.status not in ENDS:
            job.terminated, job.reason = True, body["reason"]
            if not job.nodes:
                job.status = "FAILED"
            else:
                self._take(job, self.grace_s)
        return {}

    def _queues(self, body: Document) -> Document:
        return {"jobQueues": [self.queues[name] for name in body["jobQueues"] if name in self.queues]}

    def _environments(self, body: Document) -> Document:
        there = self.environment["computeEnvironmentName"] in body["computeEnvironments"]
        return {"computeEnvironments": [self.environment] if there else []}

    # time

    def interrupt(self, name: str) -> None:
        """Spot tells the job's host that it goes, and takes it when the notice is over."""
        self.jobs[name].notice = datetime.now(UTC) + timedelta(seconds=self.notice_s)

    def vanish(self, name: str) -> None:
        """The service no longer knows the job."""
        with self.lock:
            job = self.jobs.pop(name)
        for one in job.nodes:
            one.kill()

    def tick(self) -> None:
        """What happens by itself."""
        with self.lock:
            for name, job in list(self.jobs.items()):
                if job.status not in ENDS and not job.taken:
                    self._advance(name, job)

    def _advance(self, name: str, job: FakeBatchJob) -> None:
        now = time.monotonic()
        wait_s = self.gap_s if job.attempts and job.status == "RUNNABLE" else self.start_s
        if job.status in NEXT:
            if now - job.since > wait_s:
                job.status, job.since = NEXT[job.status], now
                if job.status == "RUNNING":
                    self._start(name, job)
        elif job.notice is not None and datetime.now(UTC) > job.notice:
            job.notice = None
            self._take(job, self.grace_s, host=True)  # the host shuts down, and its containers have SIGTERM
        elif (code := job.nodes[0].ended()) is not None:  # the main node's end is the job's
            for one in job.nodes:
                one.kill()
            job.nodes = []
            self._attempt_ended(job, code, "Essential container in task exited")
        elif now - job.since > job.asked["timeout"]["attemptDurationSeconds"]:
            job.reason, job.terminated = "Job attempt duration exceeded timeout", False
            self._take(job, self.grace_s)

    def _start(self, name: str, job: FakeBatchJob) -> None:
        override = (
            job.asked.get("containerOverrides")
            or (job.asked["nodeOverrides"]["nodePropertyOverrides"][0]["containerOverrides"])
        )
        definition = self.definitions[job.asked["jobDefinition"]]
        count = (definition.get("nodeProperties") or {}).get("numNodes", 0)
        given = {one["name"]: one["value"] for one in override["environment"]}
        for index in range(count or 1):
            several = {"AWS_BATCH_JOB_NODE_INDEX": str(index), "AWS_BATCH_JOB_MAIN_NODE_INDEX": "0",
                       "AWS_BATCH_JOB_NUM_NODES": str(count)} if count else {}  # fmt: skip
            env = {**given, **several, "AWS_BATCH_JOB_ID": f"{name}#{index}" if count else name,
                   "AWS_BATCH_JOB_ATTEMPT": str(len(job.attempts) + 1),
                   "TONNAGE_AWS_METADATA_URL": f"{self.url}/host/{name}"}  # fmt: skip
            job.nodes.append(start_machine(override["command"], env, self.folder / f"{name}.{index}.log"))

    def _take(self, job: FakeBatchJob, grace_s: float, *, host: bool = False) -> None:
        job.taken = True

        def end() -> None:
            for one in job.nodes:
                one.take_away(grace_s)
            with self.lock:
                job.nodes, job.taken = [], False
                if host:
                    self._attempt_ended(job, None, "Host EC2 (instance i-0123456789) terminated.")
                else:
                    job.status = "FAILED"

        threading.Thread(target=end, daemon=True).start()

    def _attempt_ended(self, job: FakeBatchJob, code: int | None, reason: str) -> None:
        job.attempts.append(reason)
        strategy = job.asked.get("retryStrategy") or {"attempts": 1}
        again = code != 0 and len(job.attempts) < strategy["attempts"]
        for rule in strategy.get("evaluateOnExit") or () if again else ():
            facts = {"onStatusReason": reason, "onReason": "" if code is None else "exited", "onExitCode": str(code)}
            if all(fnmatchcase(facts[key], rule[key]) for key in facts if key in rule):
                again = rule["action"] == "RETRY"
                break
        job.since, job.reason = time.monotonic(), "" if code == 0 else reason
        job.status = "RUNNABLE" if again else "SUCCEEDED" if code == 0 else "FAILED"

    def close(self) -> None:
        """Nothing is left running."""
        for job in self.jobs.values():
            for one in job.nodes:
                if one.ended() is None:
                    one.kill()


def batch_fault(status: int, code: str, message: str) -> HTTPAnswer:
    """An error as Batch writes it."""
    return HTTPAnswer(status=status, document={"message": message}, headers={"x-amzn-ErrorType": code})


def fake_batch(folder: Path) -> AbstractContextManager[FakeBatch]:
    """A running service; jobs are processes of this machine, with their output in the folder."""
    return running(FakeBatch(folder))
