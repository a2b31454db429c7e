"""Batch jobs of Amazon Bedrock: records on S3, CreateModelInvocationJob, its states, its output on S3.

Sources: AWS, «Process multiple prompts with batch inference» and its quotas; botocore's service model, whose enums,
patterns and lengths are checked here, since the client checks none of them. Read 2026-11.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import IO, Any, Final

from tonnage.batches.job_notes import JobNote
from tonnage.batches.job_records import invocation_of, model_input, openai_body
from tonnage.batches.jobs import JobResult, JobState, record_name
from tonnage.batches.objects import ObjectStore, open_object
from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.http.aws_shapes import check_shape
from tonnage.traffic.batch import BatchRow

BLOCK_BYTES: Final = 2**20
_RUNS: Final = frozenset({"Submitted", "Validating", "Scheduled", "InProgress", "Stopping"})
_ENDINGS: Final[Mapping[str, Any]] = {"Completed": "done", "PartiallyCompleted": "done", "Failed": "failed",
                                      "Stopped": "ended early", "Expired": "ended early"}  # fmt: skip


def make_client(region: str | None = None) -> Any:
    """A client by boto3's own chain; AWS_ENDPOINT_URL_BEDROCK for another address."""
    try:
        session, config = import_module("boto3.session"), import_module("botocore.config")
        exceptions = import_module("botocore.exceptions")
    except ImportError as error:
        raise MissingExtra("--on bedrock", "fetch") from error
    try:
        return session.Session(region_name=region).client(
            "bedrock", config=config.Config(retries={"mode": "standard", "total_max_attempts": 8})
        )
    except exceptions.BotoCoreError as error:
        raise InputError(f"Bedrock: {error}", hint="set AWS_PROFILE or AWS_REGION") from error


class BedrockJobs:
    """Jobs under one role, with their files below `s3://BUCKET/PREFIX`."""

    shown = "Bedrock"
    least_rows = 100
    most_rows = 50_000
    most_bytes = 10**9
    most_jobs = 10

    def __init__(self, client: Any, store: ObjectStore, *, bucket: str, prefix: str, role: str) -> None:
        self._client, self._store, self._bucket, self._prefix, self._role = client, store, bucket, prefix, role

    def record(self, row: BatchRow) -> bytes:
        body = json.loads(row.body)
        asked = model_input(row.path, str(body.get("model")), body)
        said = {"recordId": record_name(row.line), "modelInput": asked}
        return json.dumps(said, separators=(",", ":")).encode()

    def submit(self, note: JobNote, records: IO[bytes]) -> str:
        key = self._input(note)
        state = self._store.look(key)
        self._store.replace(key, iter(lambda: records.read(BLOCK_BYTES), b""), None if state is None else state.version)
        asked = {
            "jobName": f"tonnage-{note.token}", "roleArn": self._role, "clientRequestToken": note.token,
            "modelId": note.model, "modelInvocationType": invocation_of(note.path),
            "inputDataConfig": {"s3InputDataConfig": {"s3InputFormat": "JSONL", "s3Uri": f"s3://{self._bucket}/{key}"}},
            "outputDataConfig": {"s3OutputDataConfig": {"s3Uri": f"s3://{self._bucket}/{self._output(note)}"}},
        }  # fmt: skip
        model = self._client.meta.service_model.operation_model("CreateModelInvocationJob")
        check_shape(asked, model.input_shape, service="Bedrock")
        return str(self._call("create_model_invocation_job", asked)["jobArn"])

    def look(self, note: JobNote) -> JobState:
        found = self._call("get_model_invocation_job", {"jobIdentifier": note.job})
        status, said = str(found["status"]), str(found.get("message") or found["status"])
        processed = int(found.get("processedRecordCount") or 0)
        if status in _RUNS:
            return JobState(status="runs", said=said, processed=processed)
        if status not in _ENDINGS:
            raise TonnageError(f"Bedrock says {status!r} of {note.job}, which is not known here")
        return JobState(status=_ENDINGS[status], said=said, processed=processed)

    def results(self, note: JobNote) -> Iterator[JobResult]:
        """All `.jsonl.out` of the job's folder: records in any order, some of them with an error."""
        for key in self._store.sizes(self._output(note)):
            state = self._store.look(key) if key.endswith(".jsonl.out") else None
            if state is None:
                continue
            with open_object(self._store, key, state, shown=f"s3://{self._bucket}/{key}") as stream:
                yield from (_result(note, json.loads(line)) for line in stream if line.strip())

    def _input(self, note: JobNote) -> str:
        return f"{self._prefix}/{note.token}/in.jsonl"

    def _output(self, note: JobNote) -> str:
        return f"{self._prefix}/{note.token}/out/"

    def _call(self, name: str, asked: Mapping[str, Any]) -> Any:
        exceptions = import_module("botocore.exceptions")
        try:
            return getattr(self._client, name)(**asked)
        except exceptions.ClientError as error:
            code, said = error.response["Error"].get("Code"), error.response["Error"].get("Message")
            kind = InputError if code in ("ValidationException", "AccessDeniedException") else TonnageError
            raise kind(f"Bedrock answers {code}: {said}", hint="the same command goes on with its jobs") from error
        except exceptions.BotoCoreError as error:
            raise TonnageError(f"Bedrock: {error}", hint="the same command goes on with its jobs") from error


def _result(note: JobNote, found: Mapping[str, Any]) -> JobResult:
    name = str(found.get("recordId"))
    error = found.get("error")
    if error:
        return JobResult(
            record=name, code=f"http {error.get('errorCode')}", message=str(error.get("errorMessage"))
        )  # fmt: skip
    try:
        body = openai_body(note.path, note.model, found["modelOutput"])
    except (ValueError, KeyError) as fault:
        return JobResult(record=name, code="rubbish", message=str(fault))
    return JobResult(record=name, body=json.dumps(body, separators=(",", ":")).encode())
