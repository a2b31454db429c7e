"""Vertex AI's custom jobs: one for each submission, without Vertex AI's own retries, which would know no fence.

Sources: the discovery document of aiplatform v1; Google, «CustomJobSpec», «Use Spot VMs with training»,
«Use reservations with training», «Schedule training jobs based on resource availability».
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.api_client import ATTEMPTS
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work, google_labels, refused
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.bucket.google import GoogleClient, GoogleError, endpoint_of
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.google.checks import account_questions, image_questions, secret_questions
from tonnage.places.google.place import VertexPlace
from tonnage.places.google.schema import check_custom_job
from tonnage.places.states import JobView, Phase
from tonnage.places.terms import merged
from tonnage.values import dataclass

CREATE: Final = "customJobs.create"
RIGHTS: Final = ("aiplatform.customJobs.create", "aiplatform.customJobs.get", "aiplatform.customJobs.list",
                 "aiplatform.customJobs.cancel")  # fmt: skip
PHASES: Final[Mapping[str, Phase]] = {
    "JOB_STATE_QUEUED": Phase.QUEUED, "JOB_STATE_PENDING": Phase.PROVISIONING, "JOB_STATE_PAUSED": Phase.QUEUED,
    "JOB_STATE_RUNNING": Phase.RUNNING, "JOB_STATE_UPDATING": Phase.RUNNING, "JOB_STATE_CANCELLING": Phase.ENDING,
    "JOB_STATE_CANCELLED": Phase.CANCELLED, "JOB_STATE_SUCCEEDED": Phase.ENDED, "JOB_STATE_FAILED": Phase.ENDED,
    "JOB_STATE_EXPIRED": Phase.ENDED, "JOB_STATE_PARTIALLY_SUCCEEDED": Phase.ENDED,
}  # fmt: skip
LIVE: Final = ("JOB_STATE_QUEUED", "JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_CANCELLING", "JOB_STATE_PAUSED",
               "JOB_STATE_UPDATING")  # fmt: skip
PAGE: Final = 100


@dataclass(frozen=True, kw_only=True)
class VertexJobs:
    """One place of the kind `vertex`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        NO_EXEC,
        DeclaredGap(verb="check", reason="quota and capacity are known when Vertex AI looks for a machine"),
        DeclaredGap(
            verb="preemption", whole=True,
            reason="Vertex AI's own retries know no fence and are off: `resume` goes on, or `--on any`",
        ),
        DeclaredGap(
            verb="submit", reason="Vertex AI knows no token: of two clients in one instant each makes a job; one waits"
        ),
    )  # fmt: skip
    notices: ClassVar[tuple[str, ...]] = ()  # SIGTERM is the notice
    name: str
    place: VertexPlace
    attempts: int = ATTEMPTS  # of each call
    sleep: Callable[[float], None] = time.sleep

    @cached_property
    def client(self) -> GoogleClient:
        return GoogleClient(attempts=self.attempts, sleep=self.sleep)

    @cached_property
    def once(self) -> GoogleClient:
        """For what must not be sent twice."""
        return GoogleClient(attempts=1, sleep=self.sleep)

    def call(self, method: str, path: str, *, service: str = "", **more: Any) -> dict[str, Any]:
        """The answer of an API of the project; without a service, of Vertex AI in the region."""
        base = endpoint_of(service) if service else self._endpoint
        return self.client.call(method, f"{base}{path}", **more)

    @property
    def _endpoint(self) -> str:
        changed = endpoint_of("aiplatform")
        regional = f"https://{self.place.region}-aiplatform.googleapis.com/"
        return regional if changed == "https://aiplatform.googleapis.com/" else changed

    @property
    def _jobs(self) -> str:
        return f"v1/projects/{self.place.project}/locations/{self.place.region}/customJobs"

    def requests(self, work: Work) -> tuple[Request, ...]:
        body = merged(custom_job(self.place, work), self.place.patch.get(CREATE, {}))
        check_custom_job(body)
        return (Request(service=f"POST aiplatform/{self._jobs}", operation=CREATE, body=body),)

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """The job's resource name. It is looked for by its token before, and after an answer that did not come."""
        [request] = requests
        there = self.find(token)
        if there is not None:
            return there
        try:
            return str(self.once.call("POST", f"{self._endpoint}{self._jobs}", body=request.body)["name"])
        except (GoogleError, InputError):
            raise
        except TonnageError:
            there = self.find(token)
            if there is None:
                raise
            return there

    def find(self, token: str) -> str | None:
        return next((str(one["name"]) for one in self._listed(f'labels.tonnage-token="{token}"')), None)

    def view(self, job_id: str) -> JobView:
        try:
            return view_of(self.call("GET", f"v1/{job_id}"))
        except GoogleError as error:
            if error.status == 404:
                return JobView(phase=Phase.GONE, job_id=job_id)
            raise

    def end(self, job_id: str, token: str) -> None:  # noqa: ARG002 - the name is enough
        if self.view(job_id).word in LIVE:
            self.call("POST", f"v1/{job_id}:cancel", body={})

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        states = " OR ".join(f'state="{one}"' for one in LIVE)
        found = []
        for one in self._listed(f'labels.tonnage-home="{home}" AND ({states})'):
            pools = (one.get("jobSpec") or {}).get("workerPoolSpecs") or [{}]
            env = {each["name"]: each["value"] for each in (pools[0].get("containerSpec") or {}).get("env") or ()}
            found.append(
                TaggedCloudJob(job_id=str(one["name"]), tag=env.get("TONNAGE_TAG", ""), view=view_of(one))
            )  # fmt: skip
        return found

    def _listed(self, wanted: str) -> Iterator[dict[str, Any]]:
        token: str | None = None
        while True:
            params = {"filter": wanted, "pageSize": PAGE, **({"pageToken": token} if token else {})}
            answer = self.call("GET", self._jobs, params=params)
            yield from answer.get("customJobs") or ()
            token = answer.get("nextPageToken")
            if not token:
                return

    def questions(self) -> Iterator[PlaceFinding]:
        """Rights first: they need the sign-in, the project and the API."""
        path = f"v1/projects/{self.place.project}:testIamPermissions"
        try:
            answer = self.call("POST", path, service="cloudresourcemanager", body={"permissions": list(RIGHTS)})
            next(self._listed('labels.tonnage-token="check"'), None)
        except TonnageError as error:
            yield refused(error.message, error.hint or "")
            return
        lacking = sorted(set(RIGHTS) - set(answer.get("permissions") or ()))
        if lacking:
            role = "--member user:YOU --role roles/aiplatform.user"
            hint = f"`gcloud projects add-iam-policy-binding {self.place.project} {role}`"
            yield refused(f"you may not: {', '.join(lacking)}", hint)
        yield from account_questions(self.call, self.place)
        yield from image_questions(self.call, self.place)
        yield from secret_questions(self.call, self.place)


def custom_job(place: VertexPlace, work: Work) -> Body:
    """The whole request. Nothing reaches into the container, and secrets are named alone."""
    machine: Body = {"machineType": place.instance_type}
    if place.accelerator is not None:
        machine |= {"acceleratorType": place.accelerator, "acceleratorCount": place.gpus}
    if place.reservation is not None:
        machine["reservationAffinity"] = {
            "reservationAffinityType": "SPECIFIC_RESERVATION", "values": [place.reservation],
            "key": "compute.googleapis.com/reservation-name",
        }  # fmt: skip
    variables = {**work.env, "TONNAGE_TAG": work.tag}
    scheduling: Body = {
        "timeout": f"{place.time_limit_minutes * 60}s", "disableRetries": True, "restartJobOnWorkerRestart": False,
        "strategy": "SPOT" if place.spot else "FLEX_START" if place.flex_start else "STANDARD",
    }  # fmt: skip
    if place.flex_start:
        scheduling["maxWaitDuration"] = f"{place.max_wait_minutes * 60}s"
    pool: Body = {
        "machineSpec": machine,
        "diskSpec": {"bootDiskType": place.disk_type, "bootDiskSizeGb": place.disk_gib},
        "containerSpec": {
            "imageUri": place.image, "command": list(work.command[:1]), "args": list(work.command[1:]),
            "env": [{"name": key, "value": value} for key, value in variables.items()],
        },
    }  # fmt: skip
    others = [{**pool, "replicaCount": str(place.nodes - 1)}] if place.nodes > 1 else []
    spec: Body = {
        "workerPoolSpecs": [{**pool, "replicaCount": "1"}, *others],  # the first pool has one machine, by Vertex's rule
        "scheduling": scheduling,
        "serviceAccount": place.service_account,
        "baseOutputDirectory": {"outputUriPrefix": f"{place.bucket}/vertex-output/{work.name}"},
        "enableWebAccess": False,
    }  # fmt: skip
    if place.network is not None:
        spec["network"] = place.network
    body: Body = {
        "displayName": work.name, "jobSpec": spec, "labels": google_labels({"name": work.run, **work.tags}),
    }  # fmt: skip
    if place.kms_key is not None:
        body["encryptionSpec"] = {"kmsKeyName": place.kms_key}
    return body


def view_of(job: Mapping[str, Any]) -> JobView:
    """A job as customJobs.get tells of it.

    >>> view_of({"name": "projects/1/locations/r/customJobs/2", "state": "JOB_STATE_PENDING"}).phase
    <Phase.PROVISIONING: 'provisioning'>
    """
    word = str(job.get("state") or "")
    reason = str((job.get("error") or {}).get("message") or "")
    return JobView(phase=PHASES.get(word, Phase.PROVISIONING), job_id=str(job["name"]), word=word, reason=reason)
