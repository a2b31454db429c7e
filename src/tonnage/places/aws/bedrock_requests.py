"""What Amazon Bedrock is asked to do to models: customise one, import one, hold throughput for one. Pure.

Throughput is billed by the hour until it is deleted. A schedule of EventBridge that deletes it is made first: what
happens to this machine then does not matter. A commitment cannot be deleted, so none is made.
Sources: botocore's models of bedrock and scheduler; AWS, «Custom model hyperparameters», «Universal targets».
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from glob import has_magic
from typing import Final

from tonnage.http.aws_shapes import check_request
from tonnage.places.bucket.cloud import RUN_LENGTH, Body, Request
from tonnage.values import dataclass

SERVICE: Final = "bedrock"
SCHEDULER: Final = "scheduler"
CUSTOMISE: Final = "CreateModelCustomizationJob"
IMPORT: Final = "CreateModelImportJob"
PROVISION: Final = "CreateProvisionedModelThroughput"
SCHEDULE: Final = "CreateSchedule"
DELETES: Final = "arn:aws:scheduler:::aws-sdk:bedrock:deleteProvisionedModelThroughput"
UNTIL: Final = "tonnage-until"  # a tag: when throughput is deleted
TASKS: Final = frozenset({"causal-lm", "sequence-to-sequence"})  # that are prompts and completions


@dataclass(frozen=True, slots=True)
class HyperRange:
    """The least and the most that a hyper-parameter may be."""

    least: float
    most: float
    whole: bool = False


_NOVA: Final = {
    "epochCount": HyperRange(1, 5, whole=True), "learningRate": HyperRange(1e-6, 1e-4),
    "learningRateWarmupSteps": HyperRange(0, 100, whole=True),
}  # fmt: skip
_LLAMA: Final = {
    "epochCount": HyperRange(1, 10, whole=True), "batchSize": HyperRange(1, 1, whole=True),
    "learningRate": HyperRange(5e-6, 0.1),
}  # fmt: skip
HYPER: Final[Mapping[str, Mapping[str, HyperRange]]] = {  # by the beginning of a model's name
    "amazon.nova-micro": _NOVA, "amazon.nova-lite": _NOVA, "amazon.nova-pro": _NOVA,
    "meta.llama3-1-8b": _LLAMA, "meta.llama3-1-70b": _LLAMA,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BedrockOwner:
    """Who owns a resource: what its name and its tags are made of."""

    name: str
    home: str  # 8 digits of the folder of runs
    owner: str

    @property
    def plain(self) -> str:
        """The name of everything that is made: the same name is the same thing.

        >>> BedrockOwner(name="BERT base.2", home="0a1b2c3d", owner="me").plain
        't-bert-base-2-0a1b2c3d'
        """
        plain = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:RUN_LENGTH].strip("-") or "run"
        return f"t-{plain}-{self.home}"

    def tags(self, **more: str) -> list[Body]:
        own = {"tonnage-home": self.home, "tonnage-run": self.name, "tonnage-owner": self.owner}
        named = {key.replace("_", "-"): value for key, value in more.items()}
        return [
            {"key": key, "value": re.sub(r"[^a-zA-Z0-9\s._:/=+@-]", "-", value)[:256]}
            for key, value in (own | named).items()
        ]


def is_one_file(location: str) -> bool:
    """Whether a location is what Bedrock takes rows from.

    >>> is_one_file("s3://rows/train.jsonl"), is_one_file("s3://rows/*.jsonl"), is_one_file("rows.jsonl")
    (True, False, False)
    """
    return location.startswith("s3://") and location.endswith(".jsonl") and not has_magic(location)


def family_of(model: str) -> Mapping[str, HyperRange] | None:
    """The hyper-parameters of a model; None where they are not known here."""
    return next((ranges for begins, ranges in HYPER.items() if model.startswith(begins)), None)


def hyper_faults(model: str, given: Mapping[str, str]) -> Iterator[str]:
    """What the documented ranges of a model do not allow; nothing of a model that is not known here."""
    ranges = family_of(model)
    if ranges is None:
        return
    for name, text in given.items():
        if name not in ranges:
            yield f"{model} has no {name}: it has {', '.join(ranges)}"
            continue
        limits = ranges[name]
        try:
            value = int(text) if limits.whole else float(text)
        except ValueError:
            yield f"{name} = {text}: {'a whole number' if limits.whole else 'a number'} is expected"
            continue
        if not limits.least <= value <= limits.most:
            yield f"{name} = {text} is outside {limits.least:g} to {limits.most:g}"


def customisation(
    owned: BedrockOwner, *, model: str, role: str, data: str, validation: str | None, output: str,
    hyper: Mapping[str, str],
) -> Request:  # fmt: skip
    """A job that fine-tunes a model. InputError where the service's model forbids it."""
    body: Body = {
        "jobName": owned.plain, "customModelName": owned.plain, "roleArn": role, "baseModelIdentifier": model,
        "customizationType": "FINE_TUNING", "trainingDataConfig": {"s3Uri": data},
        "outputDataConfig": {"s3Uri": output}, "hyperParameters": dict(hyper),
        "jobTags": owned.tags(), "customModelTags": owned.tags(),
    }  # fmt: skip
    if validation is not None:
        body["validationDataConfig"] = {"validators": [{"s3Uri": validation}]}
    return _with_token(CUSTOMISE, body)


def model_import(owned: BedrockOwner, *, weights: str, role: str) -> Request:
    """A job that imports weights in the format of Hugging Face from a folder of S3."""
    body: Body = {
        "jobName": owned.plain, "importedModelName": owned.plain, "roleArn": role,
        "modelDataSource": {"s3DataSource": {"s3Uri": weights}},
        "jobTags": owned.tags(), "importedModelTags": owned.tags(),
    }  # fmt: skip
    return _with_token(IMPORT, body)


def throughput(
    owned: BedrockOwner, *, model: str, units: int, until: datetime, end_role: str
) -> tuple[Request, Request]:
    """The schedule that ends it, then the throughput. `until`: in UTC."""
    ends = until.strftime("%Y-%m-%dT%H:%M:%S")
    name = owned.plain
    schedule: Body = {
        "Name": name, "ScheduleExpression": f"at({ends})", "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"}, "ActionAfterCompletion": "DELETE",
        "Description": "deletes throughput of Bedrock when its time is over",
        "Target": {
            "Arn": DELETES, "RoleArn": end_role, "Input": json.dumps({"ProvisionedModelId": name}),
            "RetryPolicy": {"MaximumEventAgeInSeconds": 86_400, "MaximumRetryAttempts": 185},
        },
    }  # fmt: skip
    check_request(SCHEDULER, SCHEDULE, schedule)
    body: Body = {
        "modelUnits": units, "provisionedModelName": name, "modelId": model,
        "tags": owned.tags(tonnage_until=f"{ends}Z"),
    }  # fmt: skip
    return Request(service=SCHEDULER, operation=SCHEDULE, body=schedule), _with_token(PROVISION, body)


def _with_token(operation: str, body: Body) -> Request:
    """Of the same body the same token: Bedrock carries a request that is sent again out once."""
    token = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:32]
    whole = {**body, "clientRequestToken": token}
    check_request(SERVICE, operation, whole)
    return Request(service=SERVICE, operation=operation, body=whole)
