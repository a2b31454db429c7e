"""Azure Machine Learning's command jobs: one for each submission, which Azure ML starts again where it takes a node.

Sources: the REST API 2025-12-01 and azure-ai-ml's models of it; Azure, «CLI (v2) command job YAML schema», «Distributed
GPU training guide» (its launcher starts the command once on each node and says NODE_RANK), «Model training on
serverless compute», «Manage and increase quotas and limits»; a PUT of a job that is there changes its tags alone, and
is refused where anything else differs: github.com/Azure/azure-sdk-for-python/pull/47389.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final

from tonnage.errors import TonnageError
from tonnage.http.body_shapes import check_body, recorded_schemas
from tonnage.places.azure.job_checks import V_ML, questions_of
from tonnage.places.azure.place import AzureMLPlace
from tonnage.places.bucket.api_client import ATTEMPTS
from tonnage.places.bucket.azure import MANAGEMENT, AzureClient, AzureError, management_url
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.states import JobView, Phase
from tonnage.places.terms import merged
from tonnage.values import dataclass

ENVIRONMENT: Final = "EnvironmentVersions_CreateOrUpdate"
CREATE: Final = "Jobs_CreateOrUpdate"
ROOTS: Final = {ENVIRONMENT: "EnvironmentVersion", CREATE: "JobBase"}
PHASES: Final[Mapping[str, Phase]] = {
    "NotStarted": Phase.QUEUED, "Queued": Phase.QUEUED, "Paused": Phase.QUEUED, "Starting": Phase.PROVISIONING,
    "Provisioning": Phase.PROVISIONING, "Preparing": Phase.PROVISIONING, "Running": Phase.RUNNING,
    "NotResponding": Phase.RUNNING, "Finalizing": Phase.ENDING, "CancelRequested": Phase.ENDING,
    "Completed": Phase.ENDED, "Failed": Phase.ENDED, "Canceled": Phase.CANCELLED,
}  # fmt: skip
OVER: Final = frozenset({Phase.ENDED, Phase.CANCELLED, Phase.GONE})
MOST_TAG: Final = 256  # characters of a tag's value


@dataclass(frozen=True, kw_only=True)
class AzureMLJobs:
    """One place of the kind `azureml`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        NO_EXEC,
        DeclaredGap(verb="check", reason="whether there is capacity is known when Azure ML looks for it"),
        DeclaredGap(
            verb="preemption",
            reason="Azure documents no notice for nodes of its own clusters: where none comes, the work since the last "
            "checkpoint is lost",
        ),
    )
    notices: ClassVar[tuple[str, ...]] = ("azure",)
    name: str
    place: AzureMLPlace
    attempts: int = ATTEMPTS  # of each call
    sleep: Callable[[float], None] = time.sleep

    @cached_property
    def client(self) -> AzureClient:
        return AzureClient(attempts=self.attempts, sleep=self.sleep)

    def call(self, method: str, path: str, *, version: str = V_ML, **more: Any) -> dict[str, Any]:
        """The answer of the Resource Manager. AzureError where it refuses."""
        params = {"api-version": version, **more.pop("params", {})}
        return self.client.call(method, management_url(path), params=params, **more)

    def requests(self, work: Work) -> tuple[Request, ...]:
        """The image as a version of an environment, which a job has to name, and the job."""
        place = self.place
        bodies = {environment_path(place): (ENVIRONMENT, environment(place)),
                  f"{place.workspace_path}/jobs/{work.name}": (CREATE, command_job(place, work))}  # fmt: skip
        made = []
        for path, (operation, plain) in bodies.items():
            body = merged(plain, place.patch.get(operation, {}))
            check_body(body, recorded_schemas(__package__, "job_schema.json"), ROOTS[operation], operation)
            address = f"PUT {MANAGEMENT}{path}?api-version={V_ML}"
            made.append(Request(service=address, operation=operation, body=body))
        return tuple(made)

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """The job's name, which has the token: one that is there is this submission's, or another's and refused."""
        asked, job = requests
        self._lay_environment(asked)
        name = job.service.partition("?")[0].rpartition("/")[2]
        try:
            self.call("PUT", _path(job), body=job.body)
        except AzureError as error:
            there = self._job_or_none(name) if error.status in {400, 409} else None
            if there is None:
                raise
            if _marks(there).get("tonnage-token") != token:
                message = f"a job {name} is there already and is not this run's"
                raise TonnageError(message, hint="--name NAME gives the run another") from error
        return name

    def _lay_environment(self, asked: Request) -> None:
        """A version is never changed: that of an image's digest is the one that is wanted, whoever made it."""
        path = _path(asked)
        try:
            self.call("GET", path)
        except AzureError as error:
            if error.status != 404:
                raise
            self.call("PUT", path, body=asked.body)

    def find(self, token: str) -> str | None:
        return next((name for name, one in self._listed("tonnage-token", token)), None)

    def view(self, job_id: str) -> JobView:
        found = self._job_or_none(job_id)
        return JobView(phase=Phase.GONE, job_id=job_id) if found is None else view_of(job_id, found)

    def end(self, job_id: str, token: str) -> None:  # noqa: ARG002 - the name has the token
        """Asked to end: Azure ML gives the nodes back."""
        if self.view(job_id).phase in OVER:
            return
        path = f"{self.place.workspace_path}/jobs/{job_id}/cancel"
        try:
            self.call("POST", path)
        except AzureError as error:
            if self.view(job_id).phase not in OVER:  # it has ended in between
                raise error

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        found = []
        for name, one in self._listed("tonnage-home", home):
            tag = str((one["properties"].get("tags") or {}).get("tonnage", ""))
            found.append(TaggedCloudJob(job_id=name, tag=tag, view=view_of(name, one)))
        return [one for one in found if one.view.phase not in OVER]

    def questions(self) -> Iterator[PlaceFinding]:
        yield from questions_of(self.call, self.place, name=self.name)

    def _job_or_none(self, name: str) -> dict[str, Any] | None:
        try:
            return self.call("GET", f"{self.place.workspace_path}/jobs/{name}")
        except AzureError as error:
            if error.status == 404:
                return None
            raise

    def _listed(self, mark: str, value: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Jobs with one of our marks; Azure is asked for them, and each is looked at once more."""
        params = {"properties": f"{mark}={value}", "listViewType": "All"}
        answer = self.call("GET", f"{self.place.workspace_path}/jobs", params=params)
        while True:
            yield from ((str(one["name"]), one) for one in answer.get("value") or () if _marks(one).get(mark) == value)
            if not answer.get("nextLink"):
                return
            answer = self.client.call("GET", answer["nextLink"])


def environment_path(place: AzureMLPlace) -> str:
    """The environment of the place's image: its version is the image's digest."""
    version = place.image.rpartition(":")[2]
    return f"{place.workspace_path}/environments/tonnage/versions/{version}"


def environment(place: AzureMLPlace) -> Body:
    """The image as it is: nothing is built into it."""
    return {"properties": {"image": place.image, "osType": "Linux"}}


def command_job(place: AzureMLPlace, work: Work) -> Body:
    """The whole request. Nothing reaches into the container, and secrets are named alone."""
    resources: Body = {
        "instanceCount": place.nodes,
        "shmSize": f"{place.shm_gib or max(1, int(place.memory_gib / 4))}g",
    }
    job: Body = {
        "jobType": "Command", "displayName": work.run, "experimentName": place.experiment,
        "command": shlex.join(work.command),
        "environmentId": environment_path(place),
        "environmentVariables": {**work.env, "AZURE_CLIENT_ID": place.identity},
        "identity": {"identityType": "Managed", "clientId": place.identity},
        "limits": {"jobLimitsType": "Command", "timeout": f"PT{place.time_limit_minutes}M"},
        "resources": resources,
        "tags": {key: value[:MOST_TAG] for key, value in work.tags.items()},
        "properties": {"tonnage-token": work.token, "tonnage-home": work.home},
    }  # fmt: skip
    if place.compute is not None:
        job["computeId"] = f"{place.workspace_path}/computes/{place.compute}"
    else:
        resources["instanceType"] = place.instance_type
        job["queueSettings"] = {"jobTier": "Spot" if place.spot else "Standard"}
    if place.nodes > 1:
        job["distribution"] = {"distributionType": "PyTorch", "processCountPerInstance": 1}
    return {"properties": job}


def view_of(job_id: str, job: Mapping[str, Any]) -> JobView:
    """A job as Azure ML tells of it; why one failed the studio alone says.

    >>> view_of("t", {"properties": {"status": "Preparing"}}).phase
    <Phase.PROVISIONING: 'provisioning'>
    """
    properties = job.get("properties") or {}
    word = str(properties.get("status") or "")
    studio = ((properties.get("services") or {}).get("Studio") or {}).get("endpoint")
    reason = f"see {studio}" if studio and word in {"Failed", "Canceled", "NotResponding"} else ""
    return JobView(phase=PHASES.get(word, Phase.PROVISIONING), job_id=job_id, word=word, reason=reason)


def _path(request: Request) -> str:
    return request.service.partition("?")[0].removeprefix(f"PUT {MANAGEMENT}")


def _marks(job: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = (job.get("properties") or {}).get("properties") or {}
    return found
