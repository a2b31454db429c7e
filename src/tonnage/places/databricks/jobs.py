"""One-time runs of Databricks' Jobs API 2.2: one for each submission, on a cluster that is made for it.

Databricks starts a one-time run no second time and repairs none: `resume` submits the next one, from the checkpoint.
Sources: databricks-sdk 0.156 (its models of requests); Databricks, «Jobs API 2.2», «Single-node compute», «Secrets».
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final

from tonnage.errors import InputError
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work, google_labels
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.bucket.volume import PATIENCE_S, Existing, Missing, WorkspaceError, translated, workspace_of
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.databricks.checks import questions_of
from tonnage.places.databricks.place import DatabricksPlace
from tonnage.places.states import JobView, Phase
from tonnage.places.terms import merged
from tonnage.values import dataclass

SUBMIT: Final = "SubmitRun"
RUNS: Final = "/api/2.2/jobs/runs"
PACKAGE: Final = "tonnage"
ENTRY_POINT: Final = "tonnage-run"  # of the package: pyproject.toml
TASK: Final = "run"
PAGE: Final = 24  # runs in one answer: fewer than 25 are given
PHASES: Final[Mapping[str, Phase]] = {
    "BLOCKED": Phase.QUEUED, "WAITING": Phase.QUEUED, "QUEUED": Phase.QUEUED, "PENDING": Phase.PROVISIONING,
    "RUNNING": Phase.RUNNING, "TERMINATING": Phase.ENDING, "TERMINATED": Phase.ENDED,
}  # fmt: skip
BY_A_USER: Final = "USER_CANCELED"  # CANCELED is Databricks itself: the time limit
BY_ITS_TASK: Final = "RUN_EXECUTION_ERROR"


@dataclass(frozen=True, kw_only=True)
class DatabricksJobs:
    """One place of the kind `databricks`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        NO_EXEC,
        DeclaredGap(verb="check", reason="the cloud's quota and capacity are known when Databricks asks for machines"),
        DeclaredGap(
            verb="preemption", whole=True,
            reason="Databricks starts a one-time run no second time and repairs none: `resume` does, or `--on any`",
        ),
        DeclaredGap(
            verb="submit", reason="a volume knows no condition: of two clients that resume in one instant one may wait"
        ),
    )  # fmt: skip
    name: str
    place: DatabricksPlace
    patience_s: int = PATIENCE_S  # of each call

    @property
    def notices(self) -> tuple[str, ...]:
        return (self.place.cloud,)

    @cached_property
    def workspace(self) -> Any:
        return workspace_of(profile=self.place.profile, patience_s=self.patience_s)

    def call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        """The answer of the workspace. Missing where there is nothing, WorkspaceError with its code."""
        workspace = self.workspace
        with translated(f"Databricks {path.removeprefix('/api/')}", self.place.profile):
            answer: dict[str, Any] = workspace.api_client.do(method, path, **more)
        return answer

    def requests(self, work: Work) -> tuple[Request, ...]:
        body = merged(submit_run(self.place, work), self.place.patch.get(SUBMIT, {}))
        return (Request(service=f"POST {RUNS}/submit", operation=SUBMIT, body=body),)

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """The run's id: of one idempotency token Databricks makes one run, however often it is asked."""
        [request] = requests
        try:
            return str(self.call("POST", f"{RUNS}/submit", body=request.body)["run_id"])
        except Existing as error:
            found = self.find(token)
            if found is None:
                raise
            del error
            return found
        except WorkspaceError as error:
            hint = f"`tonnage places check {self.name}`"
            raise WorkspaceError(error.code, error.message, hint=hint) from error

    def find(self, token: str) -> str | None:
        """By the end of its name, which is the token; runs that work first, then those of the last 60 days."""
        for wanted in ({"active_only": True}, {"completed_only": True}):
            for one in self._listed(wanted):
                if str(one.get("run_name", "")).endswith(token):
                    return str(one["run_id"])
        return None

    def view(self, job_id: str) -> JobView:
        try:
            found = self.call("GET", f"{RUNS}/get", query={"run_id": job_id})
        except Missing:
            return JobView(phase=Phase.GONE, job_id=job_id)
        view = view_of(found)
        if view.word == BY_ITS_TASK and (said := self._error_of(found)):
            return JobView(phase=view.phase, job_id=job_id, word=view.word, reason=said)
        return view

    def _error_of(self, run: Mapping[str, Any]) -> str:
        """What its task said last; empty where Databricks has nothing of it."""
        task = next((one["run_id"] for one in run.get("tasks") or () if "run_id" in one), None)
        if task is None:
            return ""
        try:
            return str(self.call("GET", f"{RUNS}/get-output", query={"run_id": task}).get("error") or "")
        except WorkspaceError:
            return ""

    def end(self, job_id: str, token: str) -> None:  # noqa: ARG002 - the run's id is enough
        """Cancelled; its cluster goes with it."""
        try:
            if view_of(self.call("GET", f"{RUNS}/get", query={"run_id": job_id})).phase is not Phase.ENDED:
                self.call("POST", f"{RUNS}/cancel", body={"run_id": int(job_id)})
        except Missing:
            return

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        found = []
        for one in self._listed({"active_only": True, "expand_tasks": True}):
            clusters = [task.get("new_cluster") or {} for task in one.get("tasks") or ()]
            tags = [(cluster.get("spark_env_vars") or {}).get("TONNAGE_TAG", "") for cluster in clusters]
            tag = next((tag for tag in tags if tag.split(":")[1:2] == [home]), None)
            if tag is not None:
                found.append(TaggedCloudJob(job_id=str(one["run_id"]), tag=tag, view=view_of(one)))
        return found

    def _listed(self, wanted: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        token: str | None = None
        while True:
            more = {"page_token": token} if token else {}
            query = {"run_type": "SUBMIT_RUN", "limit": PAGE, **wanted, **more}
            answer = self.call("GET", f"{RUNS}/list", query=query)
            yield from answer.get("runs") or ()
            token = answer.get("next_page_token")
            if not token or not answer.get("has_more", True):
                return

    def questions(self) -> Iterator[PlaceFinding]:
        yield from questions_of(self.call, self.place, name=self.name, body=self._example().body)

    def _example(self) -> Request:
        """A run of this place that is never sent."""
        work = Work(name="t-check", run="check", token="check", home="", tag="", owner="", command=("python", "-m", ""),
                    env={}, tags={}, max_cost_usd=None)  # fmt: skip
        return self.requests(work)[0]


def submit_run(place: DatabricksPlace, work: Work) -> Body:
    """The whole request. Secrets are references, which Databricks fills in on the machine alone."""
    body: Body = {
        "run_name": work.name,
        "idempotency_token": work.token,
        "timeout_seconds": place.time_limit_minutes * 60,
        "queue": {"enabled": True},
        "tasks": [{
            "task_key": TASK,
            "new_cluster": cluster(place, work),
            "python_wheel_task": {
                "package_name": PACKAGE, "entry_point": ENTRY_POINT, "parameters": list(work.command[3:]),
            },
            "libraries": [
                *({"whl": one} for one in place.wheels), *({"pypi": {"package": one}} for one in place.packages),
            ],
            "timeout_seconds": place.time_limit_minutes * 60,
        }],
    }  # fmt: skip
    if place.run_as is not None:
        body["run_as"] = {"service_principal_name": place.run_as}
    return body


def cluster(place: DatabricksPlace, work: Work) -> Body:
    """One node that is driver and worker at once, of a single user; it ends with the run."""
    tags = dict(google_labels(work.tags) if place.cloud == "gcp" else work.tags)
    body: Body = {
        "spark_version": place.runtime, "node_type_id": place.instance_type, "num_workers": 0,
        "spark_conf": {
            "spark.databricks.cluster.profile": "singleNode", "spark.master": "local[*]", **place.spark_conf,
        },
        "custom_tags": {"ResourceClass": "SingleNode", **tags},
        "spark_env_vars": {**work.env, **_secrets(place, work), **place.env, "TONNAGE_TAG": work.tag},
        "data_security_mode": "SINGLE_USER", "enable_local_disk_encryption": True,
        **_attributes(place),
    }  # fmt: skip
    if place.policy is not None:
        body["policy_id"] = place.policy
    if place.image is not None:
        body["docker_image"] = {"url": place.image}
    if place.init_scripts:
        body["init_scripts"] = [_init_script(one, place) for one in place.init_scripts]
    return body


def _attributes(place: DatabricksPlace) -> Body:
    """What is the cloud's own."""
    zone = {} if place.zone is None else {"zone_id": place.zone}
    if place.cloud == "aws":
        profile = {} if place.instance_profile is None else {"instance_profile_arn": place.instance_profile}
        disk = {} if place.ebs_gib is None else {
            "ebs_volume_type": "GENERAL_PURPOSE_SSD", "ebs_volume_count": 1, "ebs_volume_size": place.ebs_gib,
        }  # fmt: skip
        bought = "SPOT_WITH_FALLBACK" if place.spot else "ON_DEMAND"
        return {"aws_attributes": {
            "availability": bought, "first_on_demand": 0 if place.spot else 1, "zone_id": "auto",
            **zone, **profile, **disk,
        }}  # fmt: skip
    if place.cloud == "azure":
        return {"azure_attributes": {"availability": "ON_DEMAND_AZURE", "first_on_demand": 1}}
    account = {} if place.service_account is None else {"google_service_account": place.service_account}
    return {"gcp_attributes": {"availability": "ON_DEMAND_GCP", "first_on_demand": 1, **zone, **account}}


def _secrets(place: DatabricksPlace, work: Work) -> dict[str, str]:
    return {name: f"{{{{secrets/{place.secret}/{name}}}}}" for name in work.secrets}


def _init_script(path: str, place: DatabricksPlace) -> Body:
    """A script by where it lies. InputError where Databricks takes none from there."""
    for begins, kind in (("/Volumes/", "volumes"), ("s3://", "s3"), ("gs://", "gcs"), ("abfss://", "abfss")):
        if path.startswith(begins):
            return {kind: {"destination": path, **({"region": place.region} if kind == "s3" else {})}}
    if path.startswith("/"):
        return {"workspace": {"destination": path}}
    raise InputError(
        f"'{path}' is not an init script that a cluster takes", hint="/Volumes/..., /Workspace/..., s3://..."
    )


def view_of(run: Mapping[str, Any]) -> JobView:
    """A run as `runs/get` tells of it.

    >>> view_of({"run_id": 7, "status": {"state": "PENDING"}}).phase
    <Phase.PROVISIONING: 'provisioning'>
    """
    status = run.get("status") or {}
    word, details = str(status.get("state") or ""), status.get("termination_details") or {}
    phase, code = PHASES.get(word, Phase.PROVISIONING), str(details.get("code") or "")
    if phase is Phase.ENDED and code == BY_A_USER:
        phase = Phase.CANCELLED
    queued = (status.get("queue_details") or {}).get("message")
    reason = str(details.get("message") or queued or (run.get("state") or {}).get("state_message") or "")
    return JobView(
        phase=phase, job_id=str(run["run_id"]), word=code or word, reason=re.sub(r"\s+", " ", reason).strip()
    )
