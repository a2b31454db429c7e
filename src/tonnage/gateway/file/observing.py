"""The keys of a gateway file that say what the gateway records of requests and where it sends it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tonnage.comparison.door import Reference
from tonnage.workload.file.fields import Duration, Flag, Positive, Spelled, StrictModel, Word
from tonnage.workload.file.fields import (
    key as entry,
)

Share = Annotated[float, Field(gt=0, le=100), Spelled("number above 0, at most 100")]


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
