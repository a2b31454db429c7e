"""The keys of a gateway file that say how requests are repeated, wait and are asked twice, how files and batches are
taken, what is recorded of requests, where it is sent and how it is encrypted.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tonnage.comparison.door import Reference
from tonnage.workload.file.fields import Count, Duration, Flag, Percent, Positive, Spelled, StrictModel, Word, as_names
from tonnage.workload.file.fields import key as entry


def _p95(value: object) -> object:
    return None if value == "p95" else value


Share = Annotated[float, Field(gt=0, le=100), Spelled("number above 0, at most 100")]
HedgeAfter = Annotated[Duration | None, BeforeValidator(_p95), Spelled("p95 or duration")]


class SemanticEntry(StrictModel):
    """Answers are given again to questions that mean the same: all else of the request must be equal, and the
    numbers in the question. `tonnage gateway similar` measures which similarity is safe."""

    deployment: Word = entry("Who makes embeddings: OpenAI's /embeddings, as `tonnage serve` and TEI speak it.")
    at_least: Annotated[float, Field(gt=0, le=1), Spelled("number above 0, at most 1")] = entry(
        "The cosine of both questions from which they mean the same.", default=0.97
    )
    most_chars: Count = entry(
        "Longer questions are not compared: models of embeddings read the beginning alone.", default=600
    )


class IdempotencyEntry(StrictModel):
    """Requests with an `Idempotency-Key`: a repeat of the same key and body gets the first one's answer."""

    on: Flag = entry("Whether the header is followed; false: it is ignored.", default=True)
    ttl: Duration = entry("How long an answer is kept in the store.", default=86_400.0, shown="1d")
    largest_mb: Positive = entry("The largest answer that is kept; a repeat of a larger one gets 409.", default=4.0)


class QueueEntry(StrictModel):
    """Requests wait for a place where a limit of requests at a time is reached, in place of a refusal."""

    places: Count = entry("How many may wait at one limit, in each worker.", default=100)
    longest: Duration = entry("How long a request may wait, where its client does not say less.", default=10.0,
                              shown="10s")  # fmt: skip


class HedgeEntry(StrictModel):
    """A second deployment is asked where the first is slow to begin; who begins first answers, both are paid."""

    after: HedgeAfter = entry(
        "Without a first byte for so long; p95: the 95th percentile of the deployment's own, once 20 are known.",
        default=None, shown="p95",
    )  # fmt: skip
    share_percent: Percent = entry("Hedges may be so many of the route's requests of the last minute.", default=5.0)


class CanaryEntry(StrictModel):
    """A share of the requests goes to a new deployment first; the route's own follow where it fails."""

    deployment: Word = entry("The new one, which the route does not name otherwise.")
    percent: Share = entry("The share of conversations that try it.", default=5.0)
    stop_percent: Percent = entry(
        "It gets no more where more of its last 200 attempts fail, once there are 20.", default=10.0
    )


class ShadowEntry(StrictModel):
    """Requests are asked of another deployment too, whose answers are compared and go nowhere."""

    deployment: Word = entry("The other one.")
    percent: Share = entry("The share of requests.", default=10.0)
    at_once: Count = entry("At most so many at a time in a worker; others are skipped.", default=8)


class EncryptEntry(StrictModel):
    """Answers that are kept for repeats, in the store and in Redis, and bodies of the request log are encrypted: by a
    data key that lies in the store, wrapped with this key, which lies elsewhere."""

    key: Reference = entry("The key that wraps, of at least 20 characters; not in the home, nor beside the log.")
    plain: Annotated[tuple[Literal["batches"], ...], BeforeValidator(as_names), Spelled("`batches`")] = entry(
        "What stays readable on the disk all the same, to be said where `batches` are taken: their files.", default=()
    )


class BatchesEntry(StrictModel):
    """/v1/files and /v1/batches: requests that are carried when there is time, through the file's own routes."""

    file_mb: Positive = entry("The largest file, in MB; no more than `listen.body_mb`.", default=20.0)
    key_mb: Positive = entry("All files of one key together, in MB.", default=1000.0)
    rows: Count = entry("The most requests of a batch.", default=50_000)
    longest: Duration = entry("The longest `completion_window`.", default=7 * 86_400.0, shown="7d")
    at_once: Count = entry("Batches that run at a time; others wait in their order.", default=2)
    concurrency: Count = entry("Requests of one batch at a time.", default=16)
    keep: Duration = entry("Files and batches that have ended are kept so long.", default=30 * 86_400.0, shown="30d")


class RequestLogEntry(StrictModel):
    """A line of JSON for each request, in files that only the gateway's user reads."""

    folder: Word | None = entry("Where its files lie, from this file on. Default: in the home.", default=None)
    sample_percent: Share = entry("So many of the requests that went well; all that failed are kept.", default=100.0)
    bodies: Flag = entry("Requests and answers too, not only their figures.", default=False)
    redact: Flag = entry("Keys, tokens, e-mail addresses and such are taken out of bodies.", default=True)
    body_kb: Positive = entry("The most that is kept of a body, in kB.", default=16.0)
    file_mb: Positive = entry("A file ends with this size, in MB ...", default=64.0)
    file_age: Duration = entry("... or with this age.", default=3600.0, shown="1h")
    keep_mb: Positive = entry("The most on the disk, in MB, all workers together; the oldest files go.", default=1024.0)
    keep: Duration = entry("Files older than this go.", default=30 * 86_400.0, shown="30d")


class SpansEntry(StrictModel):
    """OpenTelemetry: spans in the GenAI conventions, by OTLP over HTTP."""

    endpoint: Word = entry("The receiver's base URL, such as http://127.0.0.1:4318.")
    headers: dict[str, Reference] = entry("What it asks for, each by reference.", default={})
    sample_percent: Share = entry("So many of the requests whose client has no trace of its own.", default=100.0)
    service: Word = entry("The `service.name` of the spans.", default="tonnage-gateway")
