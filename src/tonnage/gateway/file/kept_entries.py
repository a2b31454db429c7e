"""The keys of a gateway file that say what it keeps: files and batches, a line of each request, spans; and how what
lies on the disk is encrypted.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from tonnage.comparison.user_files import Reference
from tonnage.gateway.file.conduct_entries import Share
from tonnage.workload.file.fields import Count, Duration, Flag, Positive, Spelled, StrictModel, Word, as_names
from tonnage.workload.file.fields import key as entry


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
