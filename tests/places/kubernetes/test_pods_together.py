"""Two pods of one run as processes that share a folder: how many workers there are, with which ranks, their end, and
what happens where one of them is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tonnage.places.record import PlaceRecord
from tonnage.runs import RunFolder
from tonnage.runs.job import Job, across_by_environment, dump_job
from tonnage.runs.spec import DataSource, DataSpec, RunSpec, dump_spec
from tonnage.supervisor.meeting import free_port
from tonnage.testing.kubernetes.controller import INDEX
from tonnage.testing.kubernetes.server import FakeCluster, fake_cluster

pytestmark = pytest.mark.slow
LONGEST_S = 180.0
WORKER = """
import json, os, sys
from pathlib import Path
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
told = {name: int(os.environ[name]) for name in names}
Path(sys.argv[1], f"rank-{told['RANK']}.json").write_text(json.dumps(told))
"""


def test_the_processes_of_a_run_are_shared_out_over_its_pods(tmp_path: Path) -> None:
    """Four in all and not four in each: ranks from 0 to 3, two of them in each pod. Both pods end with the run."""
    there, told = tmp_path / "there", tmp_path / "told"
    told.mkdir()
    (tmp_path / "worker.py").write_text(WORKER)
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes", "1", "--nproc-per-node", "4",
                "--max-restarts", "0", str(tmp_path / "worker.py"), str(told))  # fmt: skip
    job = across_by_environment(Job(runner="torchrun", argv=launcher, processes=4), nodes=2)
    spec = RunSpec(name="run", task="mlp", data=DataSpec(train=DataSource(location="/r.csv", format="csv")))
    record = PlaceRecord(place="p", kind="kubernetes", token="t", tag="tonnage:h:t:run", number=1)
    sent = tmp_path / "sent"
    sent.mkdir()
    texts = {"spec.json": dump_spec(spec), "job.json": dump_job(job), "place.json": json.dumps(asdict(record))}
    for name, text in texts.items():
        (sent / name).write_text(text)
    words = [sys.executable, "-m", "tonnage.supervisor.pod", "--run", str(there), "--sent", str(sent), "--nodes", "2",
             "--host", "127.0.0.1", "--port", str(free_port()), "--token", "t"]  # fmt: skip
    pods = []
    for index in range(2):
        env = {**os.environ, "JOB_COMPLETION_INDEX": str(index), "MLFLOW_TRACKING_URI": "none"}
        pods.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    said = [pod.communicate(timeout=LONGEST_S)[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], said
    assert RunFolder(there).state().state.value == "succeeded", said
    ranks = [json.loads(file.read_text()) for file in sorted(told.iterdir())]
    assert [one["RANK"] for one in ranks] == [0, 1, 2, 3]
    assert {one["WORLD_SIZE"] for one in ranks} == {4}
    assert {one["LOCAL_WORLD_SIZE"] for one in ranks} == {2}
    assert sorted((one["GROUP_RANK"], one["LOCAL_RANK"]) for one in ranks) == [(0, 0), (0, 1), (1, 0), (1, 1)]


RUNS = """[places.pods]
kind = "kubernetes"
context = "fake"
namespace = "ml"
image = "registry.example/tonnage@sha256:%s"
cores = 1
memory_gib = 1
nodes = 2
time_limit_minutes = 30
grace_s = 20
volume = "runs"
usd_per_hour = 1.0
""" % ("0" * 64)
PODS = "/api/v1/namespaces/ml/pods"
FILE = "sequence-classification.tonnage.yaml"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """Two nodes and a volume that both see."""
    with fake_cluster(tmp_path / "cluster") as found:
        found.lay(
            "/api/v1/namespaces/ml/persistentvolumeclaims",
            "ml",
            {"metadata": {"name": "runs"}, "spec": {"accessModes": ["ReadWriteMany"]}, "status": {"phase": "Bound"}},
        )
        for name in ("node-a", "node-b"):
            found.lay(
                "/api/v1/nodes",
                "",
                {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", "memory": "64Gi"}}},
            )
        yield found  # fmt: skip


def losses(folder: RunFolder) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


def pod_of(cluster: FakeCluster, run: str, index: int) -> str:
    """The name of the pod that works as this index of a run."""
    [found] = [one["metadata"]["name"] for one in cluster.store.find(PODS, labels=f"tonnage.dev/run={run}")
               if one["metadata"]["labels"][INDEX] == str(index) and one["status"]["phase"] == "Running"]  # fmt: skip
    return str(found)


def test_two_pods_train_one_is_lost_and_they_go_on(
    tmp_path: Path, cluster: FakeCluster, desk_at: Callable[..., Any]
) -> None:
    """A real model over two pods of an Indexed Job: one loses its power, both go on, losses as undisturbed."""
    mount = tmp_path / "volume"
    place = f'{RUNS}kubeconfig = "{cluster.kubeconfig}"\npython = "{sys.executable}"\nmount = "{mount}"\n'
    desk = desk_at(tmp_path / "here", place)
    del desk.environ["TONNAGE_WORKER"]
    desk.tonnage("init", "sequence-classification", "--out", str(mount / "st"))
    file = mount / "st" / FILE
    text = file.read_text().replace("log_every: 5", "log_every: 1").replace("epochs: 3", "epochs: 12")
    file.write_text(text.replace("every_steps: 50", "every_steps: 10"))
    words = ["--on", "pods", "--runner", "torchrun", "--processes", "2", "-y"]
    following = desk.begin("run", str(file), "--name", "struck", *words)
    folder = desk.folder("struck")
    until = time.monotonic() + LONGEST_S
    while following.poll() is None and (folder.state().checkpoint_step or 0) < 10:
        assert time.monotonic() < until, "it saves nothing"
        time.sleep(0.3)
    assert following.poll() is None, following.communicate()
    cluster.controller.lose(f"{PODS}/{pod_of(cluster, 'struck', 1)}")
    said = following.communicate(timeout=LONGEST_S)[1]
    assert following.returncode == 0, said
    assert folder.state().state.value == "succeeded", said
    followed = {path.split("/")[-2] for _, path in cluster.requests if path.endswith("/log")}
    assert len([name for name in followed if name.startswith("struck-") and name.split("-")[-2] == "1"]) > 1, followed
    assert '"kind": "resumed"' in folder.journal_file.read_text()
    assert folder.state().lost_steps <= 20
    assert (folder.path / "log-machine-2.txt").exists()
    desk.tonnage("run", str(file), "--name", "plain", *words)
    assert losses(folder) == losses(desk.folder("plain"))
    assert len(losses(folder)) > 100
    assert cluster.store.find(PODS) == []
