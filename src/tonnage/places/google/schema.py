"""What Compute Engine and Vertex AI would refuse, by the members, types and values of their discovery documents.

`instance_schema.json`, `disk_schema.json` and `custom_job_schema.json` have them; `benchmarks/record_google_schema.py`
wrote them. What the
services check beyond them (that a network is there, that two members agree) only they know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.http.body_shapes import Schemas, check_body, recorded_schemas

ROOT: Final = "Instance"
BULK_ROOT: Final = "BulkInsertInstanceResource"
DISK_ROOT, SNAPSHOT_ROOT = "Disk", "Snapshot"
JOB_ROOT: Final = "GoogleCloudAiplatformV1CustomJob"


def instance_schemas() -> Schemas:
    """The recorded ones."""
    return recorded_schemas(__package__, "instance_schema.json")


def check_instance(body: Mapping[str, Any]) -> None:
    """InputError with every fault."""
    check_body(body, instance_schemas(), ROOT, "instances.insert")


def check_instances(body: Mapping[str, Any]) -> None:
    """InputError with every fault of a request for several."""
    check_body(body, instance_schemas(), BULK_ROOT, "instances.bulkInsert")


def custom_job_schemas() -> Schemas:
    """The recorded ones of Vertex AI."""
    return recorded_schemas(__package__, "custom_job_schema.json")


def check_custom_job(body: Mapping[str, Any]) -> None:
    """InputError with every fault."""
    check_body(body, custom_job_schemas(), JOB_ROOT, "customJobs.create")


def disk_schemas() -> Schemas:
    """The recorded ones of disks and of snapshots."""
    return recorded_schemas(__package__, "disk_schema.json")


def check_disk(body: Mapping[str, Any]) -> None:
    """InputError with every fault."""
    check_body(body, disk_schemas(), DISK_ROOT, "disks.insert")


def check_snapshot(body: Mapping[str, Any]) -> None:
    """InputError with every fault."""
    check_body(body, disk_schemas(), SNAPSHOT_ROOT, "snapshots.insert")
