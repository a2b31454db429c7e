"""A client that dies after any request of a submission: whoever submits again has one job, and no second."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.killed import Killed

from tonnage.places.azure.machines import AzureMachines
from tonnage.places.azure.place import AzurePlace
from tonnage.places.bucket.azure import AzureClient
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.bucket.google import GoogleClient
from tonnage.places.databricks.jobs import DatabricksJobs
from tonnage.places.databricks.place import DatabricksPlace
from tonnage.places.digitalocean.client import DigitalOceanClient
from tonnage.places.digitalocean.droplets import Droplets
from tonnage.places.digitalocean.place import DigitalOceanPlace
from tonnage.places.google.compute import Compute
from tonnage.places.google.place import GCEPlace, VertexPlace
from tonnage.places.google.vertex import VertexJobs
from tonnage.places.record import read_record
from tonnage.testing.azure.cloud import IDENTITY, SUBSCRIPTION, FakeAzure
from tonnage.testing.databricks import FakeWorkspace
from tonnage.testing.digitalocean import SSH_KEY, FakeDigitalOcean
from tonnage.testing.google.cloud import ACCOUNT, FakeGoogle
from tonnage.testing.places import PlaceTrial

pytestmark = pytest.mark.heavy
TERMS: dict[str, Any] = {"cores": 1, "memory_gib": 1, "time_limit_minutes": 60}


class Mortal:
    """Dies once so many of its requests have been carried out."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self.ask, self.left = ask, -1

    def method(self) -> Callable[..., Any]:
        def once(instance: Any, *args: Any, **more: Any) -> Any:
            answer = self.ask(instance, *args, **more)
            if self.left == 0:
                self.left = -1
                raise Killed
            self.left -= 1
            return answer

        return once


def dies_anywhere(mortal: Mortal, place: Callable[[], BucketRuns], home: Path, jobs: Callable[[], int]) -> None:
    """One run for each request of a submission, whose first client dies after it; the last one's outlives all."""
    at, died = 0, True
    while died:
        trial = PlaceTrial(executor=place(), home=home)
        folder = trial.write(f"run-{at}")
        mortal.left = at
        try:
            trial.start(folder)
            died = False
        except Killed:
            pass
        mortal.left = -1
        again = PlaceTrial(executor=place(), home=home)
        job = again.executor.submit(again.submission(folder), folder)
        record = read_record(folder)
        assert record is not None
        assert record.job_id == job
        assert again.executor.submit(again.submission(folder), folder) == job
        at += 1
        assert jobs() == at, f"after request {at}"
    assert at > 8
    assert place().orphans(home / "runs", end=False) == ()


@pytest.mark.slow
def test_at_compute_engine(google: FakeGoogle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    google.boot_s = 600
    terms = GCEPlace(
        **TERMS, kind="gce", project="my-project", region="us-central1", zones=("us-central1-a",), bucket="gs://runs/t",
        instance_type="n2-standard-2", boot_image="projects/ml/global/images/family/gpu", service_account=ACCOUNT,
        image=f"registry.example/t@sha256:{'0' * 64}",
    )  # fmt: skip
    mortal = Mortal(GoogleClient.once)
    monkeypatch.setattr(GoogleClient, "once", mortal.method())
    dies_anywhere(
        mortal, lambda: BucketRuns(kind="gce", name="vm", place=terms, cloud=Compute(name="vm", place=terms)), tmp_path,
        lambda: len(google.instances),
    )  # fmt: skip


@pytest.mark.slow
def test_at_vertex(google: FakeGoogle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which has no token of a request: the job's label stands in for it."""
    google.vertex.start_s = 600
    terms = VertexPlace(
        **TERMS, kind="vertex", project="my-project", region="us-central1", bucket="gs://runs/t",
        instance_type="n2-standard-2", service_account=ACCOUNT, image=f"registry.example/t@sha256:{'0' * 64}",
    )  # fmt: skip
    mortal = Mortal(GoogleClient.once)
    monkeypatch.setattr(GoogleClient, "once", mortal.method())
    dies_anywhere(
        mortal, lambda: BucketRuns(kind="vertex", name="ai", place=terms, cloud=VertexJobs(name="ai", place=terms)),
        tmp_path, lambda: len(google.vertex.jobs),
    )  # fmt: skip


@pytest.mark.slow
def test_at_azure(azure: FakeAzure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    azure.boot_s = 0.1
    terms = AzurePlace(
        **TERMS, kind="azure", subscription=SUBSCRIPTION, resource_group="ml", region="eastus", identity=IDENTITY,
        bucket="az://runs@account.blob.core.windows.net/t", instance_type="Standard_D2s_v5", subnet="net/runs",
        boot_image="canonical:ubuntu:server:latest", ssh_public_key="ssh-rsa AAAA", setup=("sleep 600",),
        image=f"registry.example/t@sha256:{'0' * 64}",
    )  # fmt: skip
    mortal = Mortal(AzureClient.once)
    monkeypatch.setattr(AzureClient, "once", mortal.method())
    cloud = AzureMachines(name="vm", place=terms, sleep=lambda _: time.sleep(0.02))
    dies_anywhere(
        mortal, lambda: BucketRuns(kind="azure", name="vm", place=terms, cloud=cloud), tmp_path,
        lambda: len(azure.machines),
    )  # fmt: skip


@pytest.mark.slow
def test_at_digitalocean(
    digitalocean: FakeDigitalOcean, aws: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which has no client token: lists of droplets and the machines' own claim stand in for it."""
    digitalocean.boot_s = 600
    terms = DigitalOceanPlace(
        **TERMS, kind="digitalocean", region="tor1", bucket="s3://runs/t", instance_type="s-4vcpu-8gb", endpoint=aws,
        boot_image="gpu-h100x8-base", ssh_keys=(SSH_KEY,), image=f"registry.digitalocean.com/team/t@sha256:{'0' * 64}",
    )  # fmt: skip
    mortal = Mortal(DigitalOceanClient.once)
    monkeypatch.setattr(DigitalOceanClient, "once", mortal.method())
    cloud = Droplets(name="drop", place=terms)
    dies_anywhere(
        mortal, lambda: BucketRuns(kind="digitalocean", name="drop", place=terms, cloud=cloud), tmp_path,
        lambda: len(digitalocean.droplets),
    )  # fmt: skip
    assert len(digitalocean.keys) == len(digitalocean.droplets)


@pytest.mark.slow
def test_at_databricks(workspace: FakeWorkspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.start_s = 600
    terms = DatabricksPlace(
        **TERMS, kind="databricks", cloud="aws", region="us-east-1", bucket="/Volumes/main/ml/runs/tonnage", env={},
        runtime="16.4.x-cpu-ml-scala2.12", instance_type="i3.xlarge", wheels=("/Volumes/main/ml/t.whl",), spark_conf={},
    )  # fmt: skip
    requests = pytest.importorskip("requests")
    mortal = Mortal(requests.Session.request)
    monkeypatch.setattr(requests.Session, "request", mortal.method())
    cloud = DatabricksJobs(name="db", place=terms)
    dies_anywhere(
        mortal, lambda: BucketRuns(kind="databricks", name="db", place=terms, cloud=cloud), tmp_path,
        lambda: len(workspace.runs),
    )  # fmt: skip
