"""Trials of DigitalOcean, SkyPilot and Databricks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.contract import Executor
from tonnage.places.databricks.jobs import DatabricksJobs
from tonnage.places.databricks.place import DatabricksPlace
from tonnage.places.digitalocean.droplets import Droplets
from tonnage.places.digitalocean.place import DigitalOceanPlace
from tonnage.places.skypilot.jobs import SkyPilotJobs
from tonnage.places.skypilot.place import SkyPilotPlace
from tonnage.runs import RunFolder
from tonnage.testing.databricks import FakeWorkspace
from tonnage.testing.digitalocean import SSH_KEY, FakeDigitalOcean
from tonnage.testing.google.cloud import FakeGoogle
from tonnage.testing.places import PlaceTrial
from tonnage.testing.skypilot import LIVE, FakeSkyPilot
from tonnage.testing.slurm import free_ports


def digitalocean_trial(
    home: Path, service: FakeDigitalOcean, aws: str, monkeypatch: pytest.MonkeyPatch
) -> PlaceTrial:  # fmt: skip
    """Droplets of the documented API, Spaces by moto's S3; droplets are processes of this machine."""

    def place(**more: Any) -> BucketRuns:
        terms = DigitalOceanPlace(
            kind="digitalocean", region="tor1", bucket="s3://runs/tonnage", cores=1, memory_gib=1, endpoint=aws,
            image="registry.digitalocean.com/team/tonnage@sha256:" + "0" * 64, instance_type="s-4vcpu-8gb",
            boot_image="gpu-h100x8-base", ssh_keys=(SSH_KEY,), time_limit_minutes=240, exchange_s=0.3, grace_s=8,
            python=sys.executable, mount=str(home / "there"),
        )  # fmt: skip
        cloud = Droplets(name="drop", place=terms, **more)
        return BucketRuns(kind="digitalocean", name="drop", place=terms, cloud=cloud)

    def alive(folder: RunFolder) -> int:
        begins = f"t-{folder.path.name}-"
        return sum(one.body["name"].startswith(begins) for one in service.droplets.values())

    def out_of_reach() -> Executor:
        monkeypatch.setenv("DIGITALOCEAN_API_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(attempts=1)

    return PlaceTrial(executor=place(), home=home / "here", alive=alive, out_of_reach=out_of_reach)


def skypilot_trial(home: Path, service: FakeSkyPilot, google: FakeGoogle) -> PlaceTrial:
    """The command `sky` with the documented states of managed jobs, a bucket of Cloud Storage between."""
    assert google.storage.buckets

    def place(command: str) -> BucketRuns:
        terms = SkyPilotPlace(
            kind="skypilot", bucket="gs://runs/tonnage", image="registry.example/tonnage@sha256:" + "0" * 64, spot=True,
            candidates=("aws/us-east-1/m5.large", "gcp/us-central1/n2-standard-2"), cores=1, memory_gib=1, grace_s=8,
            time_limit_minutes=240, exchange_s=0.3, python=sys.executable, mount=str(home / "there"), command=command,
        )  # fmt: skip
        return BucketRuns(kind="skypilot", name="sky", place=terms, cloud=SkyPilotJobs(name="sky", place=terms))

    def live(folder: RunFolder) -> list[int]:
        begins = f"t-{folder.path.name}-"
        return [
            one.number for one in service.jobs.values() if one.status in LIVE and one.task["name"].startswith(begins)
        ]

    return PlaceTrial(
        executor=place(service.command), home=home / "here", alive=lambda folder: len(live(folder)),
        preempt=lambda folder: service.preempt(live(folder)[0]),
        out_of_reach=lambda: place(service.elsewhere(free_ports(1)[0])),
    )  # fmt: skip


DATABRICKS_TERMS: dict[str, Any] = {
    "kind": "databricks", "cloud": "aws", "region": "us-east-1", "bucket": "/Volumes/main/ml/runs/tonnage", "cores": 1,
    "memory_gib": 1, "spot": True, "runtime": "16.4.x-cpu-ml-scala2.12", "instance_type": "i3.xlarge", "grace_s": 8,
    "wheels": ["/Volumes/main/ml/runs/tonnage-1.0-py3-none-any.whl"], "time_limit_minutes": 240, "exchange_s": 0.3,
    "python": sys.executable,
}  # fmt: skip


def databricks_trial(home: Path, service: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """The Jobs API's one-time runs and the Files API's volume; clusters are processes of this machine."""

    def place(**more: Any) -> BucketRuns:
        terms = DatabricksPlace(**DATABRICKS_TERMS, mount=str(home / "there"))
        cloud = DatabricksJobs(name="db", place=terms, **more)
        return BucketRuns(kind="databricks", name="db", place=terms, cloud=cloud)

    def alive(folder: RunFolder) -> int:
        live = [one for one in service.runs.values() if one.state != "TERMINATED"]
        return sum(one.asked["run_name"].startswith(f"t-{folder.path.name}-") for one in live)

    def out_of_reach() -> Executor:
        monkeypatch.setenv("DATABRICKS_HOST", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(patience_s=1)

    return PlaceTrial(executor=place(), home=home / "here", alive=alive, out_of_reach=out_of_reach)
