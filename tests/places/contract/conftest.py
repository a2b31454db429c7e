"""The places that the contract suite holds, each as it can be had here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.local_place import this_machine
from tonnage.places.aws.batch import BatchJobs
from tonnage.places.aws.batch_place import BatchPlace
from tonnage.places.aws.ec2 import EC2
from tonnage.places.aws.ec2_place import EC2Place
from tonnage.places.aws.sagemaker import SageMaker
from tonnage.places.aws.sagemaker_place import SageMakerPlace
from tonnage.places.azure.job_place import AzureMLPlace
from tonnage.places.azure.jobs import AzureMLJobs
from tonnage.places.azure.place import AzurePlace
from tonnage.places.azure.scale_sets import AzureScaleSets
from tonnage.places.bucket.executor import BucketRuns
from tonnage.places.contract import Executor
from tonnage.places.databricks.jobs import DatabricksJobs
from tonnage.places.databricks.place import DatabricksPlace
from tonnage.places.digitalocean.droplets import Droplets
from tonnage.places.digitalocean.place import DigitalOceanPlace
from tonnage.places.file import SlurmPlace, SSHPlace
from tonnage.places.google import compute, machine
from tonnage.places.google.place import GCEPlace
from tonnage.places.google.vertex import VertexJobs
from tonnage.places.google.vertex_place import VertexPlace
from tonnage.places.kubernetes.client import KubernetesClient
from tonnage.places.kubernetes.executor import Kubernetes
from tonnage.places.kubernetes.kubeconfig import read_cluster
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.places.ray.executor import RayRuns
from tonnage.places.ray.jobs import RayJobs
from tonnage.places.ray.place import RayPlace
from tonnage.places.skypilot.jobs import SkyPilotJobs
from tonnage.places.skypilot.place import SkyPilotPlace
from tonnage.places.slurm.executor import Slurm
from tonnage.places.spark.executor import SparkRuns
from tonnage.places.spark.jobs import SparkJobs
from tonnage.places.spark.place import SparkPlace
from tonnage.places.ssh.executor import SSHMachine
from tonnage.runs import RunFolder
from tonnage.runs.liveness import is_held
from tonnage.testing import sshd
from tonnage.testing.aws.batch import ENDS as BATCH_ENDS
from tonnage.testing.aws.batch import FakeBatch
from tonnage.testing.aws.ec2 import FakeEC2
from tonnage.testing.aws.sagemaker import FakeSageMaker
from tonnage.testing.azure import machine_learning
from tonnage.testing.azure.cloud import IDENTITY, SUBSCRIPTION, FakeAzure
from tonnage.testing.databricks import FakeWorkspace
from tonnage.testing.digitalocean import SSH_KEY, FakeDigitalOcean
from tonnage.testing.google.cloud import FakeGoogle
from tonnage.testing.kubernetes.server import FakeCluster, fake_cluster
from tonnage.testing.places import PlaceTrial
from tonnage.testing.ray import StartedRayCluster, ray_cluster, ray_python
from tonnage.testing.skypilot import LIVE, FakeSkyPilot
from tonnage.testing.slurm import SlurmCluster, free_ports, missing_binaries, slurm_cluster
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
SAGEMAKER = {
    "kind": "sagemaker", "region": "us-east-1", "bucket": "s3://runs/tonnage", "cores": 1, "memory_gib": 1,
    "image": f"123456789012.dkr.ecr.us-east-1.amazonaws.com/tonnage@sha256:{'0' * 64}", "spot": True,
    "role": "arn:aws:iam::123456789012:role/tonnage-run", "instance_type": "ml.g5.2xlarge", "python": sys.executable,
    "time_limit_minutes": 5, "grace_s": 8, "exchange_s": 0.2,
}  # fmt: skip


def local_trial(home: Path) -> PlaceTrial:
    """This machine itself."""
    return PlaceTrial(executor=this_machine(), home=home, alive=lambda folder: int(is_held(folder.pid_file)))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), grace_s=10) as found:
        yield found


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.SSHServer]:
    with sshd.ssh_server(tmp_path_factory.mktemp("sshd")) as found:
        yield found


def ssh_trial(home: Path, server: sshd.SSHServer) -> PlaceTrial:
    """This machine behind a real SSH server, in a folder that shares nothing with the client's."""

    def place(port: int) -> SSHMachine:
        terms = SSHPlace(
            kind="ssh", host="127.0.0.1", port=port, key=str(server.key), known_hosts=str(server.known_hosts),
            folder=str(home / "there"), python=sys.executable, cores=1, memory_gib=1, share=True,
        )  # fmt: skip
        return SSHMachine(name="box", place=terms)

    def alive(folder: RunFolder) -> int:
        return int(is_held(place(server.port).folder_there(folder).pid_file))

    return PlaceTrial(
        executor=place(server.port), home=home / "here", alive=alive, out_of_reach=lambda: place(free_ports(1)[0])
    )


def slurm_trial(home: Path, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """A real Slurm of two nodes."""
    monkeypatch.setenv("SLURM_CONF", cluster.environ["SLURM_CONF"])
    place = SlurmPlace(kind="slurm", cores=1, memory_gib=1, gpus=1, gpu="h100", time_limit_minutes=5, grace_s=8)

    def preempt(_: RunFolder) -> None:
        words = ("-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 2")
        cluster.command("sbatch", "--parsable", *words)

    def alive(folder: RunFolder) -> int:
        lines = cluster.command("squeue", "-h", "-t", "PENDING,CONFIGURING,RUNNING", "-o", "%k").splitlines()
        return sum(line.endswith(f":{folder.path.name}") for line in lines)

    def out_of_reach() -> Executor:
        gone = home / "gone.conf"
        text = (cluster.folder / "slurm.conf").read_text()
        old = next(line for line in text.splitlines() if line.startswith("SlurmctldPort="))
        gone.write_text(text.replace(old, "SlurmctldPort=1\nMessageTimeout=2"))
        monkeypatch.setenv("SLURM_CONF", str(gone))
        return Slurm(name="cluster", place=place)

    return PlaceTrial(
        executor=Slurm(name="cluster", place=place), home=home, preempt=preempt, alive=alive, out_of_reach=out_of_reach
    )


def kubernetes_trial(home: Path, cluster: FakeCluster) -> PlaceTrial:
    """A pretended API server; its pods are processes of this machine, in a folder of their own."""
    cluster.lay(
        "/api/v1/namespaces/ml/persistentvolumeclaims",
        "ml",
        {"metadata": {"name": "runs"}, "spec": {"accessModes": ["ReadWriteMany"]}, "status": {"phase": "Bound"}},
    )
    cluster.lay("/api/v1/nodes", "", {
        "metadata": {"name": "node-a"}, "status": {"allocatable": {"cpu": "8", "memory": "64Gi"}}})  # fmt: skip

    def place(context: Path) -> Kubernetes:
        terms = KubernetesPlace(
            kind="kubernetes", context="fake", kubeconfig=str(context), namespace="ml", cores=1, memory_gib=1,
            image="registry.example/tonnage@sha256:" + "0" * 64, python=sys.executable, time_limit_minutes=5, grace_s=8,
            volume="runs", mount=str(home),
        )  # fmt: skip
        return Kubernetes(name="cluster", place=terms)

    def pods(folder: RunFolder) -> list[str]:
        label = f"tonnage.dev/run={folder.path.name}"
        found = cluster.store.find("/api/v1/namespaces/ml/pods", labels=label)
        return [one["metadata"]["name"] for one in found if one["status"]["phase"] in {"Pending", "Running"}]

    def preempt(folder: RunFolder) -> None:
        for name in pods(folder):
            cluster.controller.evict(f"/api/v1/namespaces/ml/pods/{name}")

    def out_of_reach() -> Executor:
        gone = home / "gone"
        gone.write_text(cluster.kubeconfig.read_text().replace(cluster.url, f"http://127.0.0.1:{free_ports(1)[0]}"))
        cut = place(gone)
        cluster_of = read_cluster("fake", (gone,))
        return replace(cut, client=KubernetesClient(cluster_of, sleep=lambda _: None))

    return PlaceTrial(
        executor=place(cluster.kubeconfig),
        home=home / "here",
        preempt=preempt,
        alive=lambda folder: len(pods(folder)),
        out_of_reach=out_of_reach,
    )


def sagemaker_trial(home: Path, service: FakeSageMaker, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """SageMaker's documented life cycle, S3 by moto; containers are processes of this machine."""

    def place(**more: int) -> BucketRuns:
        terms = SageMakerPlace(**SAGEMAKER, mount=str(home / "there"))
        return BucketRuns(kind="sagemaker", name="sm", place=terms, cloud=SageMaker(name="sm", place=terms, **more))

    def alive(folder: RunFolder) -> int:
        live = [name for name, job in service.jobs.items() if job.status in {"InProgress", "Stopping"}]
        return sum(f"t-{folder.path.name}-" in name for name in live)

    def preempt(folder: RunFolder) -> None:
        [name] = [name for name in service.jobs if f"t-{folder.path.name}-" in name]
        service.interrupt(name)

    def out_of_reach() -> Executor:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(attempts=1)

    return PlaceTrial(
        executor=place(), home=home / "here", preempt=preempt, alive=alive, out_of_reach=out_of_reach,
    )  # fmt: skip


EC2_TERMS: dict[str, Any] = {
    "kind": "ec2", "region": "us-east-1", "bucket": "s3://runs/tonnage", "cores": 1, "memory_gib": 1, "spot": True,
    "image": "registry.example/tonnage@sha256:" + "0" * 64, "ami": "ami-0123456789abcdef0", "grace_s": 8,
    "instance_profile": "tonnage-run", "instance_type": "m5.large", "time_limit_minutes": 240, "exchange_s": 0.5,
    "python": sys.executable,
}  # fmt: skip


def ec2_trial(home: Path, service: FakeEC2, network: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """EC2's instant fleets and the life of an instance, the rest by moto; instances are processes of this machine."""

    def place(**more: Any) -> BucketRuns:
        terms = EC2Place(
            **EC2_TERMS | {"ami": network["ami"]}, mount=str(home / "there"), subnets=[network["subnet"]],
            security_groups=[network["group"]],
        )  # fmt: skip
        return BucketRuns(kind="ec2", name="vm", place=terms, cloud=EC2(name="vm", place=terms, **more))

    def alive(folder: RunFolder) -> int:
        live = [one for one in service.instances.values() if one.state != "terminated"]
        return sum(one.tags["tonnage-run"] == folder.path.name for one in live)

    def out_of_reach() -> Executor:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(attempts=1)

    return PlaceTrial(executor=place(), home=home / "here", alive=alive, out_of_reach=out_of_reach)


BATCH_TERMS: dict[str, Any] = {
    "kind": "aws-batch", "region": "us-east-1", "bucket": "s3://runs/tonnage", "cores": 1, "memory_gib": 1,
    "image": SAGEMAKER["image"], "spot": True, "role": SAGEMAKER["role"], "queue": "gpus", "grace_s": 8,
    "instance_type": "m5.large", "time_limit_minutes": 240, "exchange_s": 0.3, "python": sys.executable,
}  # fmt: skip


def batch_trial(home: Path, service: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """AWS Batch's documented states, S3 by moto; containers are processes of this machine."""

    def place(**more: Any) -> BucketRuns:
        terms = BatchPlace(**BATCH_TERMS, mount=str(home / "there"))
        return BucketRuns(kind="aws-batch", name="jobs", place=terms, cloud=BatchJobs(name="jobs", place=terms, **more))

    def live(folder: RunFolder) -> list[str]:
        return [name for name, job in service.jobs.items()
                if job.status not in BATCH_ENDS and job.asked["tags"]["tonnage-run"] == folder.path.name]  # fmt: skip

    def out_of_reach() -> Executor:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BATCH", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(attempts=1)

    return PlaceTrial(
        executor=place(), home=home / "here", alive=lambda folder: len(live(folder)),
        preempt=lambda folder: service.interrupt(live(folder)[0]), out_of_reach=out_of_reach,
    )  # fmt: skip


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


AZURE_TERMS: dict[str, Any] = {
    "kind": "azure", "subscription": SUBSCRIPTION, "resource_group": "ml", "region": "eastus", "cores": 1,
    "memory_gib": 1, "bucket": "az://runs@account.blob.core.windows.net/tonnage", "instance_type": "Standard_D2s_v5",
    "boot_image": "canonical:ubuntu:server:latest", "identity": IDENTITY, "subnet": "net/runs", "spot": True,
    "ssh_public_key": "ssh-ed25519 AAAA", "grace_s": 8, "time_limit_minutes": 240, "exchange_s": 0.3,
    "python": sys.executable, "image": "registry.example/tonnage@sha256:" + "0" * 64,
}  # fmt: skip


def azure_trial(home: Path, service: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """Azure's machines and Blob Storage; machines are processes of this one."""

    def place(**more: Any) -> BucketRuns:
        terms = AzurePlace(**AZURE_TERMS, mount=str(home / "there"))
        return BucketRuns(kind="azure", name="vm", place=terms, cloud=AzureScaleSets(name="vm", place=terms, **more))

    def alive(folder: RunFolder) -> int:
        return sum(one.body["tags"]["tonnage-run"] == folder.path.name for one in service.machines.values())

    def out_of_reach() -> Executor:
        monkeypatch.setenv("TONNAGE_AZURE_MANAGEMENT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(attempts=1)

    return PlaceTrial(executor=place(), home=home / "here", alive=alive, out_of_reach=out_of_reach)


AZUREML_TERMS: dict[str, Any] = {
    "kind": "azureml", "subscription": SUBSCRIPTION, "resource_group": "ml", "region": "eastus", "workspace": "team",
    "compute": "gpus", "cores": 1, "memory_gib": 1, "bucket": "az://runs@account.blob.core.windows.net/tonnage",
    "instance_type": "Standard_NC24ads_A100_v4", "identity": machine_learning.CLIENT_ID, "spot": True, "grace_s": 8,
    "time_limit_minutes": 240, "exchange_s": 0.3, "python": sys.executable, "image": AZURE_TERMS["image"],
}  # fmt: skip


def azureml_trial(home: Path, service: FakeAzure, monkeypatch: pytest.MonkeyPatch) -> PlaceTrial:
    """Azure ML's command jobs and Blob Storage; nodes are processes of this machine."""

    def place(**more: Any) -> BucketRuns:
        terms = AzureMLPlace(**AZUREML_TERMS, mount=str(home / "there"))
        return BucketRuns(kind="azureml", name="ml", place=terms, cloud=AzureMLJobs(name="ml", place=terms, **more))

    def live(folder: RunFolder) -> list[str]:
        return [name for name, one in service.ml.jobs.items() if one.status not in machine_learning.ENDS
                and one.body["properties"]["tags"]["tonnage-run"] == folder.path.name]  # fmt: skip

    def out_of_reach() -> Executor:
        monkeypatch.setenv("TONNAGE_AZURE_MANAGEMENT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
        return place(attempts=1)

    return PlaceTrial(
        executor=place(), home=home / "here", alive=lambda folder: len(live(folder)),
        preempt=lambda folder: service.ml.preempt(live(folder)[0]), out_of_reach=out_of_reach,
    )  # fmt: skip


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


@pytest.fixture(scope="session")
def ray_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedRayCluster]:
    with ray_cluster(tmp_path_factory.mktemp("ray"), nodes=2) as found:
        yield found


def ray_trial(home: Path, cluster: StartedRayCluster) -> PlaceTrial:
    """A real Ray of a head and two nodes, which meet the client in a folder."""
    python = ray_python()
    assert python is not None

    def place(address: str) -> RayRuns:
        terms = RayPlace(
            kind="ray", address=address, bucket=f"file://{home / 'bucket'}", python=python, cores=1, memory_gib=1,
            gpus=1, time_limit_minutes=5, grace_s=8, exchange_s=0.2, mount=str(home / "there"),
        )  # fmt: skip
        return RayRuns(kind="ray", name="ray", place=terms, cloud=RayJobs(name="ray", place=terms, tries=2))

    def jobs(folder: RunFolder) -> list[dict[str, Any]]:
        return [one for one in cluster.ask("/api/jobs/") if one["status"] in {"PENDING", "RUNNING"}
                and (one["metadata"] or {}).get("tonnage-run") == folder.path.name]  # fmt: skip

    def preempt(folder: RunFolder) -> None:
        """Its node is shut down, which gives it the time to save; the other node is there."""
        there = place(cluster.address).folder_there(folder)
        cluster.shut_down(cluster.node_of(int(there.pid_file.read_text())))

    return PlaceTrial(
        executor=place(cluster.address), home=home / "here", preempt=preempt, alive=lambda folder: len(jobs(folder)),
        out_of_reach=lambda: place(f"http://127.0.0.1:{free_ports(1)[0]}"), longest_s=120.0,
    )  # fmt: skip


@pytest.fixture(scope="session")
def spark_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    workers = {
        "edge": {"cores": 8, "memory_gib": 8 * DRIVER_GIB, "gpus": 0},
        "first": {"cores": 2, "memory_gib": 3, "gpus": 8},
        "second": {"cores": 2, "memory_gib": 3, "gpus": 8},
    }
    with spark_cluster(tmp_path_factory.mktemp("spark"), workers=workers) as found:
        yield found


def spark_trial(home: Path, cluster: SparkCluster) -> PlaceTrial:
    """A real Spark of a master and three workers, which meet the client in a folder; one is for drivers."""

    def place(rest: str, web: str) -> SparkRuns:
        terms = SparkPlace(
            kind="spark", address=cluster.address, rest=rest, web=web, bucket=f"file://{home / 'bucket'}",
            python=sys.executable, cores=1, memory_gib=1, gpus=1, driver_memory_gib=DRIVER_GIB, time_limit_minutes=5,
            grace_s=8, exchange_s=0.2, mount=str(home / "there"),
        )  # fmt: skip
        return SparkRuns(
            kind="spark", name="spark", place=terms, cloud=SparkJobs(name="spark", place=terms, attempts=2)
        )

    def preempt(folder: RunFolder) -> None:
        """Its worker is shut down, which gives it the time to save; another worker is there."""
        there = place(cluster.rest, cluster.web).folder_there(folder)
        name = cluster.worker_of(int(there.pid_file.read_text()))
        cluster.shut_down(name)
        cluster.add_worker(f"{name}-again", cores=2, memory_gib=3, gpus=8)

    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    return PlaceTrial(
        executor=place(cluster.rest, cluster.web), home=home / "here", preempt=preempt,
        alive=lambda folder: len(cluster.drivers(run=folder.path.name)), out_of_reach=lambda: place(nowhere, nowhere),
        longest_s=120.0,
    )  # fmt: skip


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
