"""SageMaker training jobs: one job for each submission, which SageMaker starts again where spot takes its machine.

`CheckpointConfig` is not used: SageMaker copies files while they are written, and knows no submission that is newer.
Sources: botocore's model of the service; AWS, «Managed Spot Training», «DescribeTrainingJob», «Managed warm pools».
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from tonnage.errors import TonnageError
from tonnage.http.aws_shapes import check_request
from tonnage.places.aws.calls import AwsError, AWSJobs
from tonnage.places.aws.place import SageMakerPlace
from tonnage.places.bucket.cloud import Body, Request, TaggedCloudJob, Work, refused
from tonnage.places.bucket.executor import NO_EXEC
from tonnage.places.contract import DeclaredGap, PlaceFinding
from tonnage.places.states import JobView, Phase
from tonnage.places.terms import merged
from tonnage.values import dataclass

SERVICE: Final = "sagemaker"
CREATE: Final = "CreateTrainingJob"
DAY_S: Final = 86_400
LONGEST_S: Final = 28 * DAY_S  # of MaxRuntimeInSeconds
FAILURE_FILE: Final = "/opt/ml/output/failure"  # its first 1,024 bytes are the job's FailureReason
SECONDARY: Final[Mapping[str, Phase]] = {  # of a job in progress
    "Pending": Phase.QUEUED, "Interrupted": Phase.QUEUED, "Starting": Phase.PROVISIONING,
    "LaunchingMLInstances": Phase.PROVISIONING, "PreparingTrainingStack": Phase.PROVISIONING,
    "Downloading": Phase.PROVISIONING, "DownloadingTrainingImage": Phase.PROVISIONING,
    "Restarting": Phase.PROVISIONING, "Updating": Phase.RUNNING, "Training": Phase.RUNNING, "Uploading": Phase.ENDING,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SageMaker(AWSJobs):
    """One place of the kind `sagemaker`."""

    gaps: ClassVar[tuple[DeclaredGap, ...]] = (
        NO_EXEC,
        DeclaredGap(verb="check", reason="whether there is capacity is known when SageMaker looks for it"),
    )
    notices: ClassVar[tuple[str, ...]] = ()
    place: SageMakerPlace

    def requests(self, work: Work) -> tuple[Request, ...]:
        body = merged(training_job(self.place, work), self.place.patch.get(CREATE, {}))
        check_request(SERVICE, CREATE, body)
        return (Request(service=SERVICE, operation=CREATE, body=body),)

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """The job's name has the token: one that is there already is this submission's, or another's and refused."""
        [request] = requests
        name = str(request.body["TrainingJobName"])
        try:
            self.account.call(SERVICE, CREATE, request.body)
        except AwsError as error:
            if error.code == "ResourceInUse":
                there = self._described(name)
                if there is not None and there.get("Environment", {}).get("TONNAGE_TOKEN") == token:
                    return name
                hint = "--name NAME gives the run another"
                message = f"a training job {name} is there already and is not this run's"
                raise TonnageError(message, hint=hint) from error
            if error.code == "ResourceLimitExceeded":
                hint = f"`tonnage places check {self.name}` says how to ask for more"
                raise TonnageError(error.message, hint=hint) from error
            raise
        return name

    def find(self, token: str) -> str | None:
        found = self.account.call(SERVICE, "ListTrainingJobs", {"NameContains": token})["TrainingJobSummaries"]
        return str(found[0]["TrainingJobName"]) if found else None

    def view(self, job_id: str) -> JobView:
        found = self._described(job_id)
        return JobView(phase=Phase.GONE, job_id=job_id) if found is None else view_of(found)

    def end(self, job_id: str, token: str) -> None:  # noqa: ARG002 - the name has the token
        """Asked to end; and an instance that is kept warm after it is given back."""
        found = self._described(job_id)
        if found is None:
            return
        if found["TrainingJobStatus"] == "InProgress":
            try:
                self.account.call(SERVICE, "StopTrainingJob", {"TrainingJobName": job_id})
            except AwsError as error:
                if error.code != "ValidationException":  # it has ended in between
                    raise
        if (found.get("WarmPoolStatus") or {}).get("Status") == "Available":
            body = {"TrainingJobName": job_id, "ResourceConfig": {"KeepAlivePeriodInSeconds": 0}}
            self.account.call(SERVICE, "UpdateTrainingJob", body)

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        """By name, and each by its own words: a search by tags lags behind."""
        found: list[TaggedCloudJob] = []
        for status in ("InProgress", "Stopping"):
            token: str | None = None
            while True:
                body: Body = {"NameContains": home, "StatusEquals": status, "MaxResults": 100}
                answer = self.account.call(SERVICE, "ListTrainingJobs", body | ({"NextToken": token} if token else {}))
                for one in answer["TrainingJobSummaries"]:
                    job = self._described(one["TrainingJobName"])
                    if job is not None:
                        tag = job.get("Environment", {}).get("TONNAGE_TAG", "")
                        found.append(TaggedCloudJob(job_id=one["TrainingJobName"], tag=tag, view=view_of(job)))
                token = answer.get("NextToken")
                if token is None:
                    break
        return found

    def _described(self, name: str) -> dict[str, Any] | None:
        try:
            return self.account.call(SERVICE, "DescribeTrainingJob", {"TrainingJobName": name})
        except AwsError as error:
            if error.code in {"ValidationException", "ResourceNotFound"} and "not found" in error.message:
                return None
            raise

    def questions(self) -> Iterator[PlaceFinding]:
        """Credentials first: without them nothing else can be asked."""
        against = list(self.account.identity())
        yield from against
        if against:
            return
        yield from self.account.role(self.place.role, "sagemaker.amazonaws.com")
        yield from self.account.image(self.place.image)
        yield from self.account.secret(self.place.secret)
        kinds = "spot training job usage" if self.place.spot else "training job usage"
        yield from self.account.quota(SERVICE, self.place.nodes, named=f"{self.place.instance_type} for {kinds}")
        if self.place.keep_warm_s:
            named = f"{self.place.instance_type} for training warm pool usage"
            yield from self.account.quota(SERVICE, self.place.nodes, named=named)
        if self.place.time_limit_minutes * 60 > LONGEST_S:
            yield refused("a training job takes 28 days at most", f"places.{self.name}.time_limit_minutes = 40320")


def training_job(place: SageMakerPlace, work: Work) -> Body:
    """The whole request. Nothing of it is public; secrets are named alone."""
    longest_s = place.time_limit_minutes * 60
    stop: Body = {"MaxRuntimeInSeconds": longest_s}
    if place.spot:
        wait_s = longest_s + DAY_S if place.max_wait_minutes is None else place.max_wait_minutes * 60
        stop["MaxWaitTimeInSeconds"] = wait_s
    resources: Body = {
        "InstanceType": place.instance_type, "InstanceCount": place.nodes, "VolumeSizeInGB": place.disk_gib,
    }  # fmt: skip
    if place.keep_warm_s:
        resources["KeepAlivePeriodInSeconds"] = place.keep_warm_s
    if place.kms_key is not None:
        resources["VolumeKmsKeyId"] = place.kms_key
    if place.training_plan is not None:
        resources["TrainingPlanArn"] = place.training_plan
    body: Body = {
        "TrainingJobName": work.name,
        "AlgorithmSpecification": {
            "TrainingImage": place.image, "TrainingInputMode": "File",
            "ContainerEntrypoint": list(work.command[:3]),
            "ContainerArguments": [*work.command[3:], "--failure-file", FAILURE_FILE],
        },
        "RoleArn": place.role,
        "OutputDataConfig": {"S3OutputPath": f"{place.bucket}/sagemaker-output"},
        "ResourceConfig": resources,
        "StoppingCondition": stop,
        "Environment": {**work.env, "TONNAGE_TOKEN": work.token, "TONNAGE_TAG": work.tag},
        "Tags": [{"Key": key, "Value": value} for key, value in work.tags.items()],
        "EnableManagedSpotTraining": place.spot,
        "EnableNetworkIsolation": False,
    }  # fmt: skip
    if place.subnets:
        body["VpcConfig"] = {"Subnets": list(place.subnets), "SecurityGroupIds": list(place.security_groups)}
    return body


def view_of(job: Mapping[str, Any]) -> JobView:
    """A job as DescribeTrainingJob tells of it.

    >>> view_of({"TrainingJobName": "t", "TrainingJobStatus": "InProgress", "SecondaryStatus": "Interrupted"}).phase
    <Phase.QUEUED: 'queued'>
    """
    status, second = str(job["TrainingJobStatus"]), str(job.get("SecondaryStatus", ""))
    steps = job.get("SecondaryStatusTransitions") or []
    message = str(steps[-1].get("StatusMessage") or "") if steps else ""
    reason = str(job.get("FailureReason") or "") or (f"{second}: {message}" if message else second)
    if status in {"InProgress", "Stopping"}:
        phase = Phase.ENDING if status == "Stopping" else SECONDARY.get(second, Phase.PROVISIONING)
    elif status == "Stopped" and second == "Stopped":
        phase = Phase.CANCELLED
    else:
        phase = Phase.ENDED  # Completed, Failed, and Stopped at a limit of time
    return JobView(phase=phase, job_id=str(job["TrainingJobName"]), word=status, reason=reason)
