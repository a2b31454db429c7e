"""The places that the contract suite holds, each as it can be had here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.places.contract.of_amazon import batch_trial, ec2_trial, sagemaker_trial
from tests.places.contract.of_azure import azure_trial, azureml_trial
from tests.places.contract.of_clusters import (
    kubernetes_trial,
    local_trial,
    ray_trial,
    slurm_trial,
    spark_trial,
    ssh_trial,
)
from tests.places.contract.of_google import gce_trial, vertex_trial
from tests.places.contract.of_other_clouds import databricks_trial, digitalocean_trial, skypilot_trial

from tonnage.runs import RunFolder
from tonnage.testing import sshd
from tonnage.testing.kubernetes.server import FakeCluster, fake_cluster
from tonnage.testing.places import PlaceTrial
from tonnage.testing.ray import StartedRayCluster, ray_cluster, ray_python
from tonnage.testing.slurm import SlurmCluster, missing_binaries, slurm_cluster
from tonnage.testing.spark import DRIVER_GIB, SparkCluster, spark_cluster, spark_home

ROOT = Path(__file__).parents[3]
NEEDS_SLURM = pytest.mark.skipif(
    bool(missing_binaries()), reason="apt-get install --no-install-recommends slurm-wlm munge"
)
NEEDS_SSHD = pytest.mark.skipif(bool(sshd.missing_binaries()), reason="apt-get install openssh-server")
NEEDS_MOTO = pytest.mark.skipif(find_spec("moto") is None, reason="pip install 'moto[server]'")
NEEDS_AZURE = pytest.mark.skipif(find_spec("msal") is None, reason="pip install 'tonnage[azure]'")
NEEDS_RAY = pytest.mark.skipif(ray_python() is None, reason="pip install 'tonnage[ray]', or TONNAGE_RAY_PYTHON")
NEEDS_SPARK = pytest.mark.skipif(
    spark_home() is None, reason="pip install 'tonnage[spark]' and Java 17, or TONNAGE_SPARK_HOME"
)
MEMBERS = [
    "local",
    "kubernetes",
    pytest.param("sagemaker", marks=[NEEDS_MOTO]),
    pytest.param("ec2", marks=[NEEDS_MOTO]),
    pytest.param("aws-batch", marks=[NEEDS_MOTO]),
    "databricks",
    "gce",
    "vertex",
    pytest.param("azure", marks=[NEEDS_AZURE]),
    pytest.param("azureml", marks=[NEEDS_AZURE]),
    pytest.param("digitalocean", marks=[NEEDS_MOTO]),
    pytest.param("ray", marks=[pytest.mark.slow, NEEDS_RAY]),
    pytest.param("spark", marks=[pytest.mark.slow, NEEDS_SPARK]),
    "skypilot",
    pytest.param("ssh", marks=[pytest.mark.slow, NEEDS_SSHD]),
    pytest.param("slurm", marks=[pytest.mark.slow, NEEDS_SLURM]),
]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), grace_s=10) as found:
        yield found


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.SSHServer]:
    with sshd.ssh_server(tmp_path_factory.mktemp("sshd")) as found:
        yield found


@pytest.fixture(scope="session")
def ray_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedRayCluster]:
    with ray_cluster(tmp_path_factory.mktemp("ray"), nodes=2) as found:
        yield found


@pytest.fixture(scope="session")
def spark_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    workers = {
        "edge": {"cores": 8, "memory_gib": 8 * DRIVER_GIB, "gpus": 0},
        "first": {"cores": 2, "memory_gib": 3, "gpus": 8},
        "second": {"cores": 2, "memory_gib": 3, "gpus": 8},
    }
    with spark_cluster(tmp_path_factory.mktemp("spark"), workers=workers) as found:
        yield found


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")  # of pods, which have this environment
    with fake_cluster(tmp_path / "cluster") as found:
        yield found


@pytest.fixture(params=MEMBERS)
def trial(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlaceTrial]:
    """A place, and nothing of ours at it afterwards."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    makers: dict[str, Callable[[], PlaceTrial]] = {
        "local": lambda: local_trial(tmp_path),
        "kubernetes": lambda: kubernetes_trial(tmp_path, request.getfixturevalue("kubernetes")),
        "sagemaker": lambda: sagemaker_trial(tmp_path, request.getfixturevalue("sagemaker"), monkeypatch),
        "ec2": lambda: ec2_trial(
            tmp_path, request.getfixturevalue("ec2"), request.getfixturevalue("aws_network"), monkeypatch
        ),
        "aws-batch": lambda: batch_trial(tmp_path, request.getfixturevalue("batch"), monkeypatch),
        "databricks": lambda: databricks_trial(tmp_path, request.getfixturevalue("workspace"), monkeypatch),
        "vertex": lambda: vertex_trial(tmp_path, request.getfixturevalue("google"), monkeypatch),
        "gce": lambda: gce_trial(tmp_path, request.getfixturevalue("google"), monkeypatch),
        "azure": lambda: azure_trial(tmp_path, request.getfixturevalue("azure"), monkeypatch),
        "azureml": lambda: azureml_trial(tmp_path, request.getfixturevalue("azure"), monkeypatch),
        "digitalocean": lambda: digitalocean_trial(
            tmp_path, request.getfixturevalue("digitalocean"), request.getfixturevalue("aws"), monkeypatch
        ),
        "ray": lambda: ray_trial(tmp_path, request.getfixturevalue("ray_nodes")),
        "spark": lambda: spark_trial(tmp_path, request.getfixturevalue("spark_workers")),
        "skypilot": lambda: skypilot_trial(
            tmp_path, request.getfixturevalue("skypilot"), request.getfixturevalue("google")
        ),
        "ssh": lambda: ssh_trial(tmp_path, request.getfixturevalue("server")),
        "slurm": lambda: slurm_trial(tmp_path, request.getfixturevalue("cluster"), monkeypatch),
    }
    found = makers[request.param]()
    kept = os.environ.copy()
    yield found
    os.environ.update(kept)  # a test may have lost the place
    runs = found.home / "runs"
    for folder in runs.iterdir() if runs.exists() else ():
        found.executor.teardown(RunFolder(folder))
