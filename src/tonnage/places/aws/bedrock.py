"""Jobs, imports and throughput of Bedrock that bear a home's mark: begun, listed, ended."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, Literal

from tonnage.errors import InputError, TonnageError
from tonnage.places.aws.bedrock_requests import CUSTOMISE, IMPORT, PROVISION, SCHEDULER, SERVICE, UNTIL
from tonnage.places.aws.calls import AWSAccount, AwsError
from tonnage.places.bucket.cloud import Request
from tonnage.values import dataclass

Kind = Literal["customisation", "import", "throughput"]
LISTS: Final[dict[Kind, tuple[str, str, str, str]]] = {  # operation, the list's key, a name's, an ARN's
    "customisation": ("ListModelCustomizationJobs", "modelCustomizationJobSummaries", "jobName", "jobArn"),
    "import": ("ListModelImportJobs", "modelImportJobSummaries", "jobName", "jobArn"),
    "throughput": ("ListProvisionedModelThroughputs", "provisionedModelSummaries", "provisionedModelName",
                   "provisionedModelArn"),
}  # fmt: skip
MADE_BY: Final[dict[str, tuple[Kind, str]]] = {
    CUSTOMISE: ("customisation", "jobArn"), IMPORT: ("import", "jobArn"),
    PROVISION: ("throughput", "provisionedModelArn"),
}  # fmt: skip
TAKEN: Final = frozenset({"ConflictException", "ValidationException"})  # codes of a name that is in use


@dataclass(frozen=True, slots=True, kw_only=True)
class BedrockResource:
    """One of them, as Bedrock lists it."""

    kind: Kind
    name: str
    arn: str
    status: str
    created: datetime
    units: int | None = None  # of throughput
    model: str = ""  # what it is of, or has made
    until: datetime | None = None  # when throughput is deleted; None: by nobody

    def due(self, now: datetime) -> bool:
        """Whether it is billed though its time is over, or has none."""
        return self.kind == "throughput" and (self.until is None or self.until <= now)


@dataclass(frozen=True, kw_only=True)
class Bedrock:
    """One region of an account, and the mark of a home."""

    account: AWSAccount
    home: str

    def begin(self, *requests: Request) -> str:
        """Make the requests in their order, and give the ARN of what the last one made; what is there already is taken.

        Where the last one fails, what was made before it is removed again.
        """
        *before, last = requests
        there = self._there(last)
        if there is not None:
            return there
        for one in before:
            self._scheduled(one)
        kind, key = MADE_BY[last.operation]
        try:
            return str(self.account.call(last.service, last.operation, last.body)[key])
        except AwsError as error:
            there = self._there(last) if error.code in TAKEN else None
            if there is not None:
                return there
            for one in before:
                self._unschedule(str(one.body["Name"]))
            hint = f"an administrator: a quota of Bedrock for {kind}" if "Quota" in error.code else error.hint or ""
            raise TonnageError(error.message, hint=hint) from error

    def _scheduled(self, request: Request) -> None:
        """Of two with one name the newer: the older was of something that was never made."""
        try:
            self.account.call(request.service, request.operation, request.body)
        except AwsError as error:
            if error.code != "ConflictException":
                raise
            self._unschedule(str(request.body["Name"]))
            self.account.call(request.service, request.operation, request.body)

    def _there(self, request: Request) -> str | None:
        """What has the name already. TonnageError where its tags are not of this home."""
        kind, _ = MADE_BY[request.operation]
        name = str(request.body.get("jobName") or request.body["provisionedModelName"])
        found = next((one for one in self._listed(kind, name) if one.name == name), None)
        if found is None:
            return None
        if self._tags(found.arn).get("tonnage-home") != self.home:
            raise TonnageError(f"{name} is at Bedrock already and is not this home's", hint="--name NAME gives another")
        return found.arn

    def listed(self) -> list[BedrockResource]:
        """All that bears the mark of the home, the newest first."""
        found = [one for kind in LISTS for one in self._listed(kind, self.home)]
        return sorted(found, key=lambda one: (one.created, one.name), reverse=True)

    def _listed(self, kind: Kind, part: str) -> Iterator[BedrockResource]:
        operation, key, name, arn = LISTS[kind]
        token: str | None = None
        while True:
            more = {"nextToken": token} if token else {}
            answer = self.account.call(SERVICE, operation, {"nameContains": part, "maxResults": 100, **more})
            for one in answer.get(key) or ():
                yield self._resource(kind, one, str(one[name]), str(one[arn]))
            token = answer.get("nextToken")
            if token is None:
                return

    def _resource(self, kind: Kind, description: dict[str, Any], name: str, arn: str) -> BedrockResource:
        model = str(
            description.get("customModelArn")
            or description.get("importedModelArn")
            or description.get("modelArn")
            or ""
        )
        until = self._tags(arn).get(UNTIL) if kind == "throughput" else None
        return BedrockResource(
            kind=kind, name=name, arn=arn, status=str(description["status"]),
            created=description["creationTime"].astimezone(UTC),
            units=description.get("modelUnits"), model=model, until=None if until is None else _moment(until),
        )  # fmt: skip

    def _tags(self, arn: str) -> dict[str, str]:
        answer = self.account.call(SERVICE, "ListTagsForResource", {"resourceARN": arn})
        return {str(one["key"]): str(one["value"]) for one in answer.get("tags") or ()}

    def why(self, resource: BedrockResource) -> str:
        """What Bedrock says of a failure; empty where there is none."""
        if resource.status != "Failed":
            return ""
        operation, key = {
            "customisation": ("GetModelCustomizationJob", "jobIdentifier"),
            "import": ("GetModelImportJob", "jobIdentifier"),
            "throughput": ("GetProvisionedModelThroughput", "provisionedModelId"),
        }[resource.kind]  # fmt: skip
        return str(self.account.call(SERVICE, operation, {key: resource.arn}).get("failureMessage") or "")

    def end(self, resource: BedrockResource) -> None:
        """Stop a job, or delete throughput and its schedule. InputError where Bedrock cannot end it."""
        if resource.kind == "throughput":
            try:
                self.account.call(SERVICE, "DeleteProvisionedModelThroughput", {"provisionedModelId": resource.arn})
            except AwsError as error:
                if error.code != "ResourceNotFoundException":
                    raise
            self._unschedule(resource.name)
        elif resource.status != "InProgress":
            raise InputError(
                f"{resource.name} has ended: {resource.status}", hint="`tonnage bedrock list` shows what works"
            )
        elif resource.kind == "import":
            raise InputError("Bedrock stops no import", hint="it ends by itself; nothing is billed for it")
        else:
            self.account.call(SERVICE, "StopModelCustomizationJob", {"jobIdentifier": resource.arn})

    def _unschedule(self, name: str) -> None:
        try:
            self.account.call(SCHEDULER, "DeleteSchedule", {"Name": name})
        except AwsError as error:
            if error.code != "ResourceNotFoundException":
                raise


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
