"""A pretended cluster on which nothing starts, and runs that are sent to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tonnage.places.contract import Submission
from tonnage.places.kubernetes.client import KubernetesClient
from tonnage.places.kubernetes.executor import Kubernetes
from tonnage.places.kubernetes.kubeconfig import read_cluster
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.runs import RunFolder
from tonnage.runs.job import Job
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import DataSource, DataSpec, RunSpec
from tonnage.testing.kubernetes.server import FakeCluster

JOBS, PODS = "/apis/batch/v1/namespaces/ml/jobs", "/api/v1/namespaces/ml/pods"
CLAIMS = "/api/v1/namespaces/ml/persistentvolumeclaims"


def place(server: FakeCluster, **given: Any) -> KubernetesPlace:
    terms: dict[str, Any] = {
        "kind": "kubernetes", "context": "fake", "kubeconfig": str(server.kubeconfig), "namespace": "ml",
        "image": "registry.example/tonnage@sha256:" + "0" * 64, "cores": 1, "memory_gib": 1, "time_limit_minutes": 5,
        "volume": "runs", "python": sys.executable,
    }  # fmt: skip
    return KubernetesPlace(**(terms | given))


def client_of(cluster: FakeCluster, waits: list[float] | None = None) -> KubernetesClient:
    seen = [] if waits is None else waits
    return KubernetesClient(read_cluster("fake", (cluster.kubeconfig,)), sleep=seen.append, chance=lambda: 1.0)


def executor(server: FakeCluster, **given: Any) -> Kubernetes:
    return Kubernetes(name="train", place=place(server, **given), owner="me", client=client_of(server))


def written(tmp_path: Path, name: str = "a") -> RunFolder:
    folder = RunFolder(tmp_path / "home" / "runs" / name)
    data = DataSpec(train=DataSource(location="s3://b/rows.csv", format="csv"))
    folder.create(RunSpec(name=name, task="mlp", data=data))
    folder.record(EventKind.SUBMITTED, who="cli", name=name, place="train")
    return folder


def submission(run: Kubernetes, folder: RunFolder, number: int = 1) -> Submission:
    return run.render(folder.spec(), Job(runner="local", argv=("python", "-m", "work")), folder, number=number)
