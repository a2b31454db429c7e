"""AWS Batch: a job for each submission, which Batch starts again where spot takes its host; several nodes as one job.

Sources: botocore's model of the service; AWS Batch user guide, «Automated job retries» (attempts, `evaluateOnExit`; a
job that is cancelled or terminated is not retried), «Multi-node parallel jobs», «Job states», «Timeouts»; its API
reference, `ListJobs` (the filter JOB_NAME). Batch has no client token: a job is looked for by its name before.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from tonnage.errors import TonnageError
from tonnage.http.aws_shapes import check_request
from tonnage.places.aws.batch_checks import questions_of
from tonnage.places.aws.calls import DENIED, EXPIRED, AwsError, AWSJobs
from tonnage.places.aws.place import BatchPlace
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.states import JobView, Phase
from tonnage.places.terms import merged
from tonnage.values import dataclass

SERVICE: Final = "batch"
REGISTER: Final = "RegisterJobDefinition"
SUBMIT: Final = "SubmitJob"
ALL_NODES: Final = "0:"  # of a multi-node job
ONCE: Final = ("sh", "-c", 'TONNAGE_MACHINE="$AWS_BATCH_JOB_ID" exec "$@"', "sh")  # of two jobs by mistake one works
HOST_IS_GONE: Final = "Host EC2*"  # the status reason of an attempt whose instance spot has taken
LIVE: Final = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING")
PHASES: Final[Mapping[str, Phase]] = {
    "SUBMITTED": Phase.QUEUED, "PENDING": Phase.QUEUED, "RUNNABLE": Phase.QUEUED, "STARTING": Phase.PROVISIONING,
    "RUNNING": Phase.RUNNING, "SUCCEEDED": Phase.ENDED, "FAILED": Phase.ENDED,
}  # fmt: skip
THROTTLED: Final = frozenset({"TooManyRequestsException", "ThrottlingException", "Throttling"})  # nothing was done
REFUSED: Final = frozenset({"ClientException", *DENIED, *EXPIRED})
SEEN_S: Final = 10.0  # a job that was made shows in lists
PAUSE_S: Final = 2.0
MOST_DESCRIBED: Final = 100  # jobs of one request


@dataclass(frozen=True, kw_only=True)
class BatchJobs(AWSJobs):
    """One place of the kind `aws-batch`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        NO_EXEC,
        DeclaredGap(verb="check", reason="whether there is capacity is known when EC2 looks for it"),
        DeclaredGap(
            verb="submit",
            reason="Batch knows no token: of two clients in one instant each makes a job; one of two single-node jobs "
            "does nothing",
        ),
    )  # fmt: skip
    notices: ClassVar[tuple[str, ...]] = ("aws",)
    place: BatchPlace
    sleep: Callable[[float], None] = time.sleep

    def requests(self, work: Work) -> tuple[Request, ...]:
        """The job definition of the place, whose name says what is in it, and the job."""
        definition = job_definition(self.place)
        bodies = {REGISTER: definition, SUBMIT: job_of(self.place, work, str(definition["jobDefinitionName"]))}
        made = {name: merged(body, self.place.patch.get(name, {})) for name, body in bodies.items()}
        renamed = named_definition(made[REGISTER])
        made = {REGISTER: renamed, SUBMIT: {**made[SUBMIT], "jobDefinition": renamed["jobDefinitionName"]}}
        for name, body in made.items():
            check_request(SERVICE, name, body)
        return tuple(Request(service=SERVICE, operation=name, body=body) for name, body in made.items())

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """The job's id. It is looked for before, and after an answer that does not say whether it was made."""
        definition, job = requests
        there = self.find(token)
        if there is not None:
            return there
        self._lay_definition(definition.body)
        for attempt in range(self.attempts):
            try:
                return str(self.once.call(SERVICE, SUBMIT, job.body)["jobId"])
            except AwsError as error:
                if error.code in THROTTLED and attempt + 1 < self.attempts:
                    self.sleep(PAUSE_S)
                    continue
                if error.code in REFUSED or error.code in THROTTLED:
                    raise
                return self._made_all_the_same(token, error)
            except TonnageError as error:
                return self._made_all_the_same(token, error)
        raise AssertionError("the last attempt returns or raises")

    def _made_all_the_same(self, token: str, error: TonnageError) -> str:
        """The job that a request has made whose answer was lost. The error where there is none."""
        until = time.monotonic() + SEEN_S
        while (there := self.find(token)) is None:
            if time.monotonic() > until:
                raise error
            self.sleep(PAUSE_S)
        return there

    def _lay_definition(self, body: Body) -> None:
        """One that is active is of the same content, by its name."""
        asked = {"jobDefinitionName": body["jobDefinitionName"], "status": "ACTIVE"}
        if not self.account.call(SERVICE, "DescribeJobDefinitions", asked).get("jobDefinitions"):
            self.account.call(SERVICE, REGISTER, body)

    def find(self, token: str) -> str | None:
        """The first that was made for a submission, in whatever state."""
        wanted = {"filters": [{"name": "JOB_NAME", "values": [f"t-{token}-*"]}]}
        found = sorted(self._listed(wanted), key=lambda one: int(one.get("createdAt") or 0))
        return str(found[0]["jobId"]) if found else None

    def view(self, job_id: str) -> JobView:
        found = self._described([job_id])
        return view_of(found[0]) if found else JobView(phase=Phase.GONE, job_id=job_id)

    def end(self, job_id: str, token: str) -> None:  # noqa: ARG002 - the id is enough
        """Taken out of the queue, or its container has SIGTERM and then ends; nothing where it has ended."""
        if self.view(job_id).word in LIVE:
            self.account.call(SERVICE, "TerminateJob", {"jobId": job_id, "reason": "tonnage ends it"})

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        names = [str(one["jobId"]) for status in LIVE for one in self._listed({"jobStatus": status})
                 if f"-{home}-" in str(one["jobName"])]  # fmt: skip
        found = []
        for at in range(0, len(names), MOST_DESCRIBED):
            for one in self._described(names[at : at + MOST_DESCRIBED]):
                tags = one.get("tags") or {}
                if tags.get("tonnage-home") == home and one["status"] in LIVE:
                    found.append(TaggedCloudJob(job_id=one["jobId"], tag=tags.get("tonnage", ""), view=view_of(one)))
        return found

    def questions(self) -> Iterator[PlaceFinding]:
        yield from questions_of(self.account, self.place)

    def _listed(self, wanted: Body) -> Iterator[dict[str, Any]]:
        token: str | None = None
        while True:
            more = {"nextToken": token} if token else {}
            answer = self.account.call(SERVICE, "ListJobs", {"jobQueue": self.place.queue, **wanted, **more})
            yield from answer["jobSummaryList"]
            token = answer.get("nextToken")
            if not token:
                return

    def _described(self, jobs: Sequence[str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.account.call(SERVICE, "DescribeJobs", {"jobs": list(jobs)})["jobs"]
        return found


def job_name(work: Work) -> str:
    """With the token first, by which Batch finds a job.

    >>> from types import SimpleNamespace as Some
    >>> job_name(Some(name="t-first-0a1b2c3d-0123456789ab", token="0123456789ab", home="0a1b2c3d"))
    't-0123456789ab-0a1b2c3d-first'
    """
    run = work.name.removeprefix("t-").removesuffix(f"-{work.home}-{work.token}")
    return f"t-{work.token}-{work.home}-{run}"


def named_definition(body: Body) -> Body:
    """Named by what is in it: whoever registers it registers the same."""
    content = {key: value for key, value in body.items() if key != "jobDefinitionName"}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return {"jobDefinitionName": f"tonnage-{digest}", **content}


def job_definition(place: BatchPlace) -> Body:
    """Image, role and size of a node. Nothing reaches into the container."""
    needs = {"VCPU": str(place.cores), "MEMORY": str(int(place.memory_gib * 1024))}
    needs |= {"GPU": str(place.gpus)} if place.gpus else {}
    shared_mib = 1024 * (place.shm_gib or max(1, int(place.memory_gib / 4)))
    container: Body = {
        "image": place.image, "jobRoleArn": place.role, "privileged": False,
        "resourceRequirements": [{"type": kind, "value": value} for kind, value in needs.items()],
        "linuxParameters": {"sharedMemorySize": shared_mib},
        "ulimits": [{"name": "memlock", "softLimit": -1, "hardLimit": -1},
                    {"name": "stack", "softLimit": 67108864, "hardLimit": 67108864}],
    }  # fmt: skip
    if place.nodes == 1:
        return named_definition({"type": "container", "containerProperties": container})
    node = {"targetNodes": ALL_NODES, "container": {**container, "instanceType": place.instance_type}}
    nodes = {"numNodes": place.nodes, "mainNode": 0, "nodeRangeProperties": [node]}
    return named_definition({"type": "multinode", "nodeProperties": nodes})


def job_of(place: BatchPlace, work: Work, definition: str) -> Body:
    """The job. Started again where its host is gone, and for nothing else: a second start knows no failure's reason."""
    given: Body = {
        "command": [*ONCE, *work.command],
        "environment": [{"name": key, "value": value} for key, value in work.env.items()],
    }  # fmt: skip
    body: Body = {
        "jobName": job_name(work), "jobQueue": place.queue, "jobDefinition": definition,
        "timeout": {"attemptDurationSeconds": place.time_limit_minutes * 60},
        "tags": dict(work.tags), "propagateTags": True,
    }  # fmt: skip
    if place.share is not None:
        body["shareIdentifier"] = place.share
    if place.nodes > 1:
        nodes = [{"targetNodes": ALL_NODES, "containerOverrides": given}]
        return {**body, "nodeOverrides": {"nodePropertyOverrides": nodes}, "retryStrategy": {"attempts": 1}}
    body["containerOverrides"] = given
    again = [{"onStatusReason": HOST_IS_GONE, "action": "RETRY"}, {"onReason": "*", "action": "EXIT"}]
    body["retryStrategy"] = {"attempts": place.attempts, **({"evaluateOnExit": again} if place.spot else {})}
    return body


def view_of(job: Mapping[str, Any]) -> JobView:
    """A job as DescribeJobs tells of it.

    >>> view_of({"jobId": "j", "status": "RUNNABLE", "attempts": [{"statusReason": "Host EC2 terminated."}]}).reason
    'Host EC2 terminated.'
    """
    status = str(job["status"])
    attempts: Sequence[Mapping[str, Any]] = job.get("attempts") or ()
    last = str(attempts[-1].get("statusReason") or "") if attempts else ""
    reason = str((job.get("container") or {}).get("reason") or job.get("statusReason") or last)
    asked_to_end = bool(job.get("isCancelled") or job.get("isTerminated"))
    phase = PHASES.get(status, Phase.QUEUED)
    if asked_to_end:
        phase = Phase.CANCELLED if status == "FAILED" else Phase.ENDING if status in LIVE else phase
    return JobView(phase=phase, job_id=str(job["jobId"]), word=status, reason=reason)
