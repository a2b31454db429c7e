"""The keys of a gateway file that say how files and batches are taken."""

from __future__ import annotations

from tonnage.workload.file.fields import Count, Duration, Positive, StrictModel
from tonnage.workload.file.fields import (
    key as entry,
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
