"""Trials of machines and clusters that are there already: this one, SSH, Slurm, Kubernetes, Ray, Spark."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.local_place import this_machine
from tonnage.places.contract import Executor
from tonnage.places.file import SlurmPlace, SSHPlace
from tonnage.places.kubernetes.client import KubernetesClient
from tonnage.places.kubernetes.executor import Kubernetes
from tonnage.places.kubernetes.kubeconfig import read_cluster
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.places.ray.jobs import RayJobs, RayRuns
from tonnage.places.ray.place import RayPlace
from tonnage.places.slurm.executor import Slurm
from tonnage.places.spark.jobs import SparkJobs, SparkRuns
from tonnage.places.spark.place import SparkPlace
from tonnage.places.ssh.executor import SSHMachine
from tonnage.runs import RunFolder
from tonnage.runs.liveness import is_held
from tonnage.testing import sshd
from tonnage.testing.kubernetes.server import FakeCluster
from tonnage.testing.places import PlaceTrial
from tonnage.testing.ray import StartedRayCluster, ray_python
from tonnage.testing.slurm import SlurmCluster, free_ports
from tonnage.testing.spark import DRIVER_GIB, SparkCluster


def local_trial(home: Path) -> PlaceTrial:
    """This machine itself."""
    return PlaceTrial(executor=this_machine(), home=home, alive=lambda folder: int(is_held(folder.pid_file)))


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
