"""Bedrock's jobs, imports and throughput, and schedules that end it, with their documented life cycles.

with fake_bedrock() as service: ...      # AWS_ENDPOINT_URL_BEDROCK (and _SCHEDULER) = service.url
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Final

from tonnage.http.aws_shapes import request_shape, shape_faults
from tonnage.testing.http_service import Asked, Fault, HTTPAnswer, running, server_of
from tonnage.values import dataclass

Document = dict[str, Any]
ARN: Final = "arn:aws:bedrock:us-east-1:123456789012"
STEP_S: Final = 0.05  # between two states
KINDS: Final = {  # by path: create's operation, name, key of the answer, states
    "/model-customization-jobs": ("CreateModelCustomizationJob", "jobName", "jobArn", ("InProgress", "Completed")),
    "/model-import-jobs": ("CreateModelImportJob", "jobName", "jobArn", ("InProgress", "Completed")),
    "/provisioned-model-throughput": ("CreateProvisionedModelThroughput", "provisionedModelName", "provisionedModelArn",
                                      ("Creating", "InService")),
}  # fmt: skip
LISTED: Final = {  # by path: the list's key
    "/model-customization-jobs": ("modelCustomizationJobSummaries", "/model-customization-jobs"),
    "/model-import-jobs": ("modelImportJobSummaries", "/model-import-jobs"),
    "/provisioned-model-throughputs": ("provisionedModelSummaries", "/provisioned-model-throughput"),
}


@dataclass(slots=True, kw_only=True)
class FakeResource:
    """A job, an import or throughput."""

    path: str
    arn: str
    asked: Document
    created: float
    status: str
    since: float
    reason: str = ""


class FakeBedrock:
    """A running one. What the service's model forbids is refused; each token is carried out once."""

    def __init__(self) -> None:
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.asked: list[Asked] = []
        self.resources: dict[str, FakeResource] = {}  # by ARN
        self.schedules: dict[str, Document] = {}
        self.fails: str = ""  # why jobs fail; empty: they do not
        self.holds = False  # nothing moves by itself
        self.page = 100
        self.lock = threading.RLock()
        self.http = server_of(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def close(self) -> None:
        """Nothing is left running."""

    def tick(self) -> None:
        """Jobs end, throughput comes into service, and schedules whose time has come delete it."""
        now = time.time()
        with self.lock:
            for resource in self.resources.values():
                states = KINDS[resource.path][3]
                if resource.status == "Stopping":
                    resource.status = "Stopped"
                elif not self.holds and resource.status == states[0] and now - resource.since > STEP_S:
                    resource.status, resource.reason = ("Failed", self.fails) if self.fails else (states[1], "")
            for name, schedule in list(self.schedules.items()):
                at = datetime.strptime(schedule["ScheduleExpression"], "at(%Y-%m-%dT%H:%M:%S)").replace(tzinfo=UTC)
                if at.timestamp() <= now:
                    wanted = json.loads(schedule["Target"]["Input"])["ProvisionedModelId"]
                    self.resources = {arn: one for arn, one in self.resources.items() if self._name(one) != wanted}
                    del self.schedules[name]

    def answer(self, asked: Asked) -> HTTPAnswer:
        """What the services say."""
        with self.lock:
            path, rest = self._split(asked.path)
            if path == "/schedules":
                return self._schedule(asked.method, rest, asked.body)
            if asked.path == "/listTagsForResource":
                resource = self.resources.get(asked.body["resourceARN"])
                return _missing() if resource is None else HTTPAnswer(document={"tags": self._tags(resource)})
            if asked.method == "POST" and not rest and path in KINDS:
                return self._create(path, asked.body)
            if asked.method == "GET" and not rest and path in LISTED:
                return self._list(path, asked.query)
            name = rest.removesuffix("/stop")
            found = next((one for one in self.resources.values()
                          if one.path == path and name in (one.arn, self._name(one))), None)  # fmt: skip
            if found is None:
                return _missing()
            if asked.method == "DELETE":
                del self.resources[found.arn]
                return HTTPAnswer(document={})
            if rest.endswith("/stop"):
                found.status = "Stopping"
                return HTTPAnswer(document={})
            return HTTPAnswer(document={**self._summary(found), "failureMessage": found.reason})

    def _split(self, path: str) -> tuple[str, str]:
        first, _, rest = path.removeprefix("/").partition("/")
        return f"/{first}", rest

    def _create(self, path: str, body: Document) -> HTTPAnswer:
        operation, name, key, states = KINDS[path]
        faults = list(shape_faults(body, request_shape("bedrock", operation)))
        if faults:
            return _refused("ValidationException", "; ".join(faults))
        for one in self.resources.values():
            if one.path == path and one.asked[name] == body[name]:
                if one.asked["clientRequestToken"] == body["clientRequestToken"]:
                    return HTTPAnswer(status=201, document={key: one.arn})
                return _refused("ConflictException", f"{body[name]} is in use")
        number = f"{len(self.resources):012d}"
        kind = {
            "/model-customization-jobs": "model-customization-job/amazon.nova-micro-v1:0:128k",
            "/model-import-jobs": "model-import-job", "/provisioned-model-throughput": "provisioned-model",
        }[path]  # fmt: skip
        resource = FakeResource(
            path=path,
            arn=f"{ARN}:{kind}/{number}",
            asked=body,
            created=time.time(),
            status=states[0],
            since=time.time(),
        )
        self.resources[resource.arn] = resource
        return HTTPAnswer(status=201, document={key: resource.arn})

    def _list(self, path: str, query: Any) -> HTTPAnswer:
        key, kind = LISTED[path]
        wanted = query.get("nameContains", "")
        found = [
            self._summary(one) for one in self.resources.values() if one.path == kind and wanted in self._name(one)
        ]
        start = int(query.get("nextToken") or 0)
        more = {"nextToken": str(start + self.page)} if start + self.page < len(found) else {}
        return HTTPAnswer(document={key: found[start : start + self.page], **more})

    def _summary(self, one: FakeResource) -> Document:
        _, name, key, states = KINDS[one.path]
        summary = {name: one.asked[name], key: one.arn, "status": one.status,
                "creationTime": datetime.fromtimestamp(one.created, UTC).isoformat()}  # fmt: skip
        if one.path == "/provisioned-model-throughput":
            return {**summary, "modelUnits": one.asked["modelUnits"], "modelArn": one.asked["modelId"]}
        made = "customModelArn" if one.path == "/model-customization-jobs" else "importedModelArn"
        return summary | ({made: f"{ARN}:custom-model/x/{one.arn[-12:]}"} if one.status == states[1] else {})

    def _name(self, one: FakeResource) -> str:
        return str(one.asked[KINDS[one.path][1]])

    def _tags(self, one: FakeResource) -> list[Document]:
        found: list[Document] = one.asked.get("jobTags") or one.asked.get("tags") or []
        return found

    def _schedule(self, method: str, name: str, body: Document) -> HTTPAnswer:
        if method == "DELETE":
            return HTTPAnswer(document={}) if self.schedules.pop(name, None) else _missing()
        faults = list(shape_faults({"Name": name, **body}, request_shape("scheduler", "CreateSchedule")))
        if faults:
            return _refused("ValidationException", "; ".join(faults))
        if name in self.schedules:
            return _refused("ConflictException", f"{name} is there")
        self.schedules[name] = body
        return HTTPAnswer(document={"ScheduleArn": f"arn:aws:scheduler:us-east-1:123456789012:schedule/default/{name}"})


def fake_bedrock() -> AbstractContextManager[FakeBedrock]:
    """The services while they are used."""
    return running(FakeBedrock())


def _missing() -> HTTPAnswer:
    return _refused("ResourceNotFoundException", "there is no such thing", 404)


def _refused(code: str, message: str, status: int = 400) -> HTTPAnswer:
    return HTTPAnswer(status=status, document={"message": message}, headers={"x-amzn-ErrorType": code})
