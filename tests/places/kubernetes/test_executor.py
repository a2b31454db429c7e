"""Runs that are sent, found, checked and ended, against an API server that forgets and refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.places.kubernetes.pretended import CLAIMS, JOBS, PODS, executor, submission, written

from tonnage.errors import TonnageError
from tonnage.places.kubernetes.manifest import read_manifest
from tonnage.places.record import read_record, write_record
from tonnage.places.states import PlaceStatus
from tonnage.testing.kubernetes.server import FakeCluster


def but_pods(cluster: FakeCluster) -> int:
    """How many objects there are beside pods: those come and go when their controller gets to it."""
    with cluster.store.lock:
        return cluster.store.count() - sum(1 for _ in cluster.store.of_kind("pods"))


def test_a_submission_is_one_however_often_it_is_sent(cluster: FakeCluster, tmp_path: Path) -> None:
    """The client dies after each request in turn; the next one finishes what it began, and there is one Job."""
    run, folder = executor(cluster), written(tmp_path)
    sent, before = submission(run, folder), but_pods(cluster)

    class Died(Exception):
        pass

    def die(_: float) -> None:
        raise Died

    for number in range(len(sent.commands)):
        cluster.after[:] = [lambda method, _: 500 if method == "POST" else None]  # done, and the answer is lost
        dying = executor(cluster)
        dying.api._sleep = die
        with pytest.raises(Died):
            dying.submit(sent, folder)
        assert but_pods(cluster) == before + number + 1
    cluster.after.clear()
    assert run.submit(sent, folder) == run.submit(sent, folder)
    assert len(cluster.store.find(JOBS)) == 1
    record = read_record(folder)
    assert record is not None
    assert record.job_id == cluster.store.find(JOBS)[0]["metadata"]["name"]


def test_a_newer_submission_takes_the_older_ones_place(cluster: FakeCluster, tmp_path: Path) -> None:
    """Never two Jobs of one run; what was beside the older one goes with it, its storage stays."""
    run, folder = executor(cluster, volume=None, storage_gib=10), written(tmp_path)
    run.submit(submission(run, folder), folder)
    before = but_pods(cluster)
    run.submit(submission(run, folder, number=2), folder)
    [job] = cluster.store.find(JOBS)
    assert job["metadata"]["labels"]["tonnage.dev/token"] == submission(run, folder, number=2).token
    assert but_pods(cluster) == before
    assert len([one for one in cluster.store.find(CLAIMS) if one["metadata"]["name"] != "runs"]) == 1


def test_a_name_that_another_has(cluster: FakeCluster, tmp_path: Path) -> None:
    """Refused, and left alone."""
    run, folder = executor(cluster), written(tmp_path)
    sent = submission(run, folder)
    name = read_manifest(sent.script)[-1]["metadata"]["name"]
    cluster.lay(JOBS, "ml", {"metadata": {"name": name, "labels": {}}, "spec": {"completions": 0}})
    with pytest.raises(TonnageError, match="is not this run's") as refused:
        run.submit(sent, folder)
    assert "kubectl -n ml delete job" in (refused.value.hint or "")


def test_a_job_that_vanishes(cluster: FakeCluster, tmp_path: Path) -> None:
    """Somebody deleted it: lost, and can go on; nothing of it is an orphan's."""
    run, folder = executor(cluster), written(tmp_path)
    name = run.submit(submission(run, folder), folder)
    assert run.status(folder).status is PlaceStatus.QUEUED
    cluster.controller.delete(f"{JOBS}/{name}", grace_s=None)
    assert run.status(folder).status is PlaceStatus.LOST


def test_found_without_its_name(cluster: FakeCluster, tmp_path: Path) -> None:
    """The client died before it had written the name down: the label tells which Job it is."""
    run, folder = executor(cluster), written(tmp_path)
    run.submit(submission(run, folder), folder)
    record = read_record(folder)
    assert record is not None
    write_record(folder, replace(record, job_id=None))
    cluster.wait_for_pod(PODS)
    found = run.status(folder)
    assert (found.status, found.view.word) == (PlaceStatus.QUEUED, "Pending")
    assert "Insufficient nvidia.com/gpu" in found.message


def test_a_queued_run_is_taken_out(cluster: FakeCluster, tmp_path: Path) -> None:
    """Stopped before it began: nothing of it is left, and its journal says so."""
    run, folder = executor(cluster), written(tmp_path)
    run.submit(submission(run, folder), folder)
    run.stop(folder, by="me", reason="")
    assert cluster.store.find(JOBS) == []
    assert folder.state().state.value == "stopped"
    assert run.orphans(folder.path.parent, end=False) == ()


@pytest.mark.parametrize(
    ("given", "lay", "said", "mended"),
    [
        ({"volume": "nope"}, None, "no claim 'nope'", "volume"),
        ({"queue": "research"}, None, "no LocalQueue 'research'", "kubectl get localqueues"),
        ({"secret": "keys"}, None, "no secret 'keys'", "create secret generic keys"),
        ({"priority_class": "high"}, None, "no priority class 'high'", "priority_class"),
        ({"form": "jobset", "namespace": "ml"}, "no jobset", "has no jobsets", "jobset.sigs.k8s.io"),
        ({"gpus": 1, "gpu": "a100", "gpu_memory_gib": 40}, None, "gpu.product=a100", "nodes have h100"),
        ({"gpus": 16, "gpu": "h100", "gpu_memory_gib": 80}, None, "0 nodes have", "kubectl get nodes"),
        ({}, "quota", "has 0.5 of requests.cpu left", "describe quota"),
        ({}, "rights", "may not create pods/exec", "create role"),
        ({}, "two nodes", "cannot share", "ReadWriteMany"),
        ({"namespace": "elsewhere"}, None, "no namespace 'elsewhere'", "create namespace"),
    ],
)  # fmt: skip
def test_check_refuses(
    given: dict[str, Any], lay: str | None, said: str, mended: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    """What a Job would wait for without a word is refused before, with what mends it; nothing is created."""
    if lay == "no jobset":
        del cluster.groups["jobset.x-k8s.io/v1alpha2"]
    if lay == "quota":
        cluster.lay("/api/v1/namespaces/ml/resourcequotas", "ml", {"metadata": {"name": "q"}, "spec": {},
                    "status": {"hard": {"requests.cpu": "500m"}, "used": {}}})  # fmt: skip
    if lay == "rights":
        cluster.denied.add(("create", "pods/exec"))
    if lay == "two nodes":
        given = {"volume": "one", "nodes": 2}
        cluster.lay(CLAIMS, "ml", {"metadata": {"name": "one"}, "spec": {"accessModes": ["ReadWriteOnce"]},
                                   "status": {"phase": "Bound"}})  # fmt: skip
    before = cluster.store.count()
    found = [one for one in executor(cluster, **given).check(written(tmp_path)) if one.kind == "refused"]
    assert any(said in one.message and mended in one.hint for one in found), found
    assert cluster.store.count() == before


@pytest.mark.parametrize(
    ("label", "cuda", "kind", "said"),
    [
        ("570.26", "13.0", "refused", "CUDA 13.0 on driver 570.26"), ("580.95.05", "13.0", None, ""),
        (None, "13.0", "unchecked", "not known which driver they have"),
        ("580.95.05", None, "unchecked", "not known which CUDA"),
    ],
)  # fmt: skip
def test_nodes_say_their_driver_by_a_label(
    label: str | None, cuda: str | None, kind: str | None, said: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Of NVIDIA's feature discovery, the oldest of the nodes that fit; without it that is said."""
    more = {} if label is None else {"nvidia.com/cuda.driver-version.full": label}
    for name, labels in (("node-a", more), ("node-b", more | ({"nvidia.com/cuda.driver-version.full": "610.43.02"}
                                                              if label else {}))):  # fmt: skip
        cluster.lay("/api/v1/nodes", "", {
            "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "h100", **labels}},
            "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}}})  # fmt: skip
    run = executor(cluster, gpus=1, gpu="h100", gpu_memory_gib=80, cuda=cuda)
    found = [one for one in run.check(written(tmp_path)) if "CUDA" in one.message]
    assert [one.kind for one in found] == ([] if kind is None else [kind])
    assert all(said in one.message for one in found)


def test_what_may_not_be_asked_is_unchecked(cluster: FakeCluster, tmp_path: Path) -> None:
    """A user who may not list nodes is told that they were not looked at."""
    cluster.denied.add(("list", "nodes"))
    found = executor(cluster).check(written(tmp_path))
    assert [(one.kind, one.message.split(":")[0]) for one in found] == [("unchecked", "nodes")]
    grows = executor(cluster, gpus=1, gpu="a100", gpu_memory_gib=40, cluster="karpenter")
    cluster.denied.clear()
    assert [one.kind for one in grows.check(written(tmp_path, "b"))] == ["doubtful"]
