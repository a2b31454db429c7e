"""SageMaker's training jobs with their documented life cycle: requests are held to botocore's model, work is done.

with fake_sagemaker(folder) as service: ...      # AWS_ENDPOINT_URL_SAGEMAKER (and _ECR, _SERVICE_QUOTAS) = service.url
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from tonnage.http.aws_shapes import request_shape, shape_faults
from tonnage.testing.http_service import QuietHandler, running
from tonnage.testing.machines import FakeMachine, start_machine
from tonnage.values import dataclass

Document = dict[str, Any]
Fault = Callable[[str, Document], "FakeServiceError | None"]
ACCOUNT: Final = "123456789012"
OTHERS: Final = {"ListServiceQuotas": "service-quotas", "DescribeImages": "ecr"}  # operations: their services


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeServiceError:
    """An error answer."""

    code: str
    message: str
    status: int = 400


@dataclass(slots=True, kw_only=True)
class FakeTrainingJob:
    """One training job."""

    asked: Document
    status: str = "InProgress"
    second: str = "Starting"
    since: float = 0.0  # of the secondary status
    began: float | None = None  # work of this start
    machine: FakeMachine | None = None
    reason: str = ""
    warm: str = ""
    taken: bool = False  # its machine is being taken away


class FakeSageMaker:
    """A running one. `before`: faults instead of an answer; `after`: the request is carried out, its answer is lost."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.jobs = folder, dict[str, FakeTrainingJob]()
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.requests: list[tuple[str, Document]] = []
        self.quotas: dict[str, float] = {}  # by name, of SageMaker
        self.images: set[str] = set()  # digests that the registry has
        self.page = 100  # jobs of one answer
        self.start_s, self.gap_s, self.stop_s = 0.1, 1.0, 10.0
        self.lock = threading.RLock()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_SageMakerHandler,), {"service": self}))
        self.http.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, operation: str, body: Document) -> Document | FakeServiceError:
        """What the service says."""
        service = OTHERS.get(operation, "sagemaker")
        found = list(shape_faults(body, request_shape(service, operation)))
        if found:
            return FakeServiceError(
                code="ValidationException", message=f"{len(found)} validation error: {'; '.join(found)}"
            )
        verbs = {
            "CreateTrainingJob": self._create, "DescribeTrainingJob": self._describe, "StopTrainingJob": self._stop,
            "ListTrainingJobs": self._list, "UpdateTrainingJob": self._update,
            "ListServiceQuotas": self._quotas, "DescribeImages": self._images,
        }  # fmt: skip
        with self.lock:
            return verbs[operation](body)

    def interrupt(self, name: str) -> None:
        """Spot takes the job's machine: its work gets a notice, ends, and is started again on another."""
        with self.lock:
            job = self.jobs[name]
            machine, job.taken = job.machine, True
        assert machine is not None
        machine.take_away(self.stop_s)
        with self.lock:
            self._move(job, "Interrupted")
            job.machine, job.taken = None, False

    def vanish(self, name: str) -> None:
        """The service no longer knows the job."""
        with self.lock:
            job = self.jobs.pop(name)
        if job.machine is not None:
            job.machine.kill()

    # verbs

    def _create(self, body: Document) -> Document | FakeServiceError:
        name = body["TrainingJobName"]
        if name in self.jobs:
            return FakeServiceError(
                code="ResourceInUse", message=f"Training job names must be unique: {name} is in use"
            )
        if "TrainingImage" not in body["AlgorithmSpecification"]:
            return FakeServiceError(
                code="ValidationException", message="You must specify TrainingImage or AlgorithmName"
            )
        limits = body["StoppingCondition"]
        spot = body.get("EnableManagedSpotTraining")
        if spot and limits.get("MaxWaitTimeInSeconds", 0) < limits["MaxRuntimeInSeconds"]:
            return FakeServiceError(
                code="ValidationException", message="MaxWaitTimeInSeconds must be at least MaxRuntimeInSeconds"
            )
        if not spot and "MaxWaitTimeInSeconds" in limits:
            return FakeServiceError(code="ValidationException", message="MaxWaitTimeInSeconds is for Spot training")
        self.jobs[name] = FakeTrainingJob(asked=body, since=time.monotonic())
        return {"TrainingJobArn": f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/{name}"}

    def _describe(self, body: Document) -> Document | FakeServiceError:
        name = body["TrainingJobName"]
        if name not in self.jobs:
            return FakeServiceError(code="ValidationException", message="Requested resource not found.")
        job = self.jobs[name]
        made = {
            key: job.asked[key] for key in ("TrainingJobName", "ResourceConfig", "StoppingCondition", "Environment")
        }
        found: Document = {
            **made, "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/{name}",
            "TrainingJobStatus": job.status, "SecondaryStatus": job.second, "CreationTime": time.time(),
            "ModelArtifacts": {"S3ModelArtifacts": "s3://b/o"},
            "AlgorithmSpecification": {"TrainingInputMode": "File"},
        }  # fmt: skip
        if job.reason:
            found["FailureReason"] = job.reason
        if job.warm:
            found["WarmPoolStatus"] = {"Status": job.warm}
        return found

    def _stop(self, body: Document) -> Document | FakeServiceError:
        job = self.jobs.get(body["TrainingJobName"])
        if job is None:
            return FakeServiceError(code="ValidationException", message="Requested resource not found.")
        if job.status != "InProgress":
            return FakeServiceError(
                code="ValidationException", message=f"The request was rejected: the job is {job.status}"
            )
        job.status = "Stopping"
        self._move(job, "Stopping")
        threading.Thread(target=self._end, args=(job, "Stopped"), daemon=True).start()
        return {}

    def _list(self, body: Document) -> Document:
        found = [
            {"TrainingJobName": name, "TrainingJobArn": f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/{name}",
             "CreationTime": time.time(), "TrainingJobStatus": job.status}
            for name, job in self.jobs.items()
            if body.get("NameContains", "") in name and body.get("StatusEquals", job.status) == job.status
        ]  # fmt: skip
        at, most = int(body.get("NextToken", 0)), min(self.page, body.get("MaxResults", 10))
        more = {"NextToken": str(at + most)} if at + most < len(found) else {}
        return {"TrainingJobSummaries": found[at : at + most], **more}

    def _update(self, body: Document) -> Document | FakeServiceError:
        job = self.jobs[body["TrainingJobName"]]
        if not job.warm:
            return FakeServiceError(code="ValidationException", message="there is no warm pool")
        job.warm = "Terminated"
        return {"TrainingJobArn": f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/{body['TrainingJobName']}"}

    # what moto does not answer

    def _quotas(self, body: Document) -> Document:
        found = [{"QuotaName": name, "QuotaCode": f"L-{number:08X}", "ServiceCode": body["ServiceCode"], "Value": value}
                 for number, (name, value) in enumerate(self.quotas.items())]  # fmt: skip
        return {"Quotas": found}

    def _images(self, body: Document) -> Document | FakeServiceError:
        digest = body["imageIds"][0]["imageDigest"]
        if digest not in self.images:
            return FakeServiceError(
                code="ImageNotFoundException", message=f"The image with imageId {digest} does not exist"
            )
        return {"imageDetails": [{"imageDigest": digest, "repositoryName": body["repositoryName"]}]}

    # time

    def tick(self) -> None:
        """What happens by itself."""
        with self.lock:
            for name, job in list(self.jobs.items()):
                if job.status == "InProgress" and not job.taken:
                    self._advance(name, job)

    def _advance(self, name: str, job: FakeTrainingJob) -> None:
        waited = time.monotonic() - job.since
        if job.second == "Interrupted" and waited > self.gap_s:
            self._move(job, "Starting")
        elif job.second == "Starting" and waited > self.start_s:
            algorithm = job.asked["AlgorithmSpecification"]
            words = [*algorithm["ContainerEntrypoint"], *algorithm["ContainerArguments"]]
            job.machine = start_machine(words, job.asked["Environment"], self.folder / f"{name}.log")
            self._move(job, "Training")
            job.began = time.monotonic()
        elif job.second == "Training" and job.machine is not None:
            code = job.machine.ended()
            if code is not None:
                job.machine.kill()
                job.status = "Completed" if code == 0 else "Failed"
                job.reason = "" if code == 0 else f"AlgorithmError: , exit code: {code}"
                if code == 0 and job.asked["ResourceConfig"].get("KeepAlivePeriodInSeconds"):
                    job.warm = "Available"
                self._move(job, job.status)
            elif job.began is not None and (
                time.monotonic() - job.began > job.asked["StoppingCondition"]["MaxRuntimeInSeconds"]
            ):
                job.taken = True
                threading.Thread(target=self._end, args=(job, "MaxRuntimeExceeded"), daemon=True).start()

    def _end(self, job: FakeTrainingJob, second: str) -> None:
        if job.machine is not None:
            job.machine.take_away(self.stop_s)
        with self.lock:
            job.status = "Stopped"
            self._move(job, second)

    def _move(self, job: FakeTrainingJob, second: str) -> None:
        job.second, job.since = second, time.monotonic()

    def close(self) -> None:
        """Nothing is left running."""
        for job in self.jobs.values():
            if job.machine is not None and job.machine.ended() is None:
                job.machine.kill()


class _SageMakerHandler(QuietHandler):
    service: FakeSageMaker

    def do_POST(self) -> None:
        """One request of the JSON protocol."""
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        service = self.service
        service.requests.append((operation, body))
        found: Document | FakeServiceError | None = next(
            (one for ask in service.before if (one := ask(operation, body))), None
        )
        if found is None:
            found = service.answer(operation, body)
            lost = next((one for ask in service.after if (one := ask(operation, body))), None)
            found = lost or found
        if isinstance(found, FakeServiceError):
            self._say(found.status, {"__type": found.code, "message": found.message})
        else:
            self._say(200, found)

    def _say(self, status: int, content: Document) -> None:
        self.say(status, json.dumps(content).encode(), "application/x-amz-json-1.1")


def fake_sagemaker(folder: Path) -> AbstractContextManager[FakeSageMaker]:
    """A running service; jobs are processes of this machine, with their output in the folder."""
    return running(FakeSageMaker(folder))
