"""Trials of Google's places: Compute Engine and Vertex AI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.contract import Executor
from tonnage.places.google import compute, machine
from tonnage.places.google.place import GCEPlace, VertexPlace
from tonnage.places.google.vertex import VertexJobs
from tonnage.runs import RunFolder
from tonnage.testing.google.cloud import FakeGoogle
from tonnage.testing.places import PlaceTrial
from tonnage.testing.slurm import free_ports

GCE_TERMS: dict[str, Any] = {
    "kind": "gce", "project": "my-project", "region": "us-central1", "zones": ["us-central1-a"], "cores": 1,
    "memory_gib": 1, "bucket": "gs://runs/tonnage", "instance_type": "n2-standard-2", "spot": True, "grace_s": 8,
    "boot_image": "projects/ml/global/images/family/gpu", "time_limit_minutes": 240, "exchange_s": 0.3,
    "service_account": "tonnage-run@my-project.iam.gserviceaccount.com", "python": sys.executable,
    "image": "us-central1-docker.pkg.dev/my-project/runs/tonnage@sha256:" + "0" * 64,
}  # fmt: skip


def gce_trial(home: Path, service: FakeGoogle, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """Compute Engine's instances and Cloud Storage; machines are processes of this one, which sign in nowhere."""
    monkeypatch.setattr(machine, "login", lambda _: ())

    def place(**more: Any) -> BucketRuns:
        terms = GCEPlace(**GCE_TERMS, mount=str(home / "there"))
        return BucketRuns(kind="gce", name="vm", place=terms, cloud=compute.Compute(name="vm", place=terms, **more))

    def alive(folder: RunFolder) -> int:
        return sum(one.body["labels"]["tonnage-run"] == folder.path.name for one in service.instances.values())

    def out_of_reach() -> Executor:
        nowhere = f"http://127.0.0.1:{free_ports(1)[0]}/compute/v1/"
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", nowhere)
        return place(attempts=1)

    return PlaceTrial(executor=place(), home=home / "here", alive=alive, out_of_reach=out_of_reach)


VERTEX_TERMS: dict[str, Any] = {
    "kind": "vertex", "project": "my-project", "region": "us-central1", "cores": 1, "memory_gib": 1,
    "bucket": "gs://runs/tonnage", "instance_type": "n2-standard-2", "service_account": GCE_TERMS["service_account"],
    "image": GCE_TERMS["image"], "time_limit_minutes": 5, "grace_s": 8, "exchange_s": 0.3, "python": sys.executable,
}  # fmt: skip


def vertex_trial(home: Path, service: FakeGoogle, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """Vertex AI's custom jobs and Cloud Storage; machines are processes of this one."""

    def place(**more: Any) -> BucketRuns:
        terms = VertexPlace(**VERTEX_TERMS, mount=str(home / "there"))
        return BucketRuns(
            kind="vertex", name="vertex", place=terms, cloud=VertexJobs(name="vertex", place=terms, **more)
        )

    def alive(folder: RunFolder) -> int:
        ended = {"JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"}
        return sum(one.body["labels"]["tonnage-run"] == folder.path.name and one.state not in ended
                   for one in service.vertex.jobs.values())  # fmt: skip

    def out_of_reach() -> Executor:
        nowhere = f"http://127.0.0.1:{free_ports(1)[0]}/"
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM", nowhere)
        return place(attempts=1)

    return PlaceTrial(executor=place(), home=home / "here", alive=alive, out_of_reach=out_of_reach)
