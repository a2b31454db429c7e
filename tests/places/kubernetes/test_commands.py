"""A run in a cluster by the commands a user has: followed, stopped, gone on with, and nothing left behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs.liveness import read_heartbeat
from tonnage.testing.kubernetes.server import FakeCluster, fake_cluster

pytestmark = pytest.mark.slow
ROOM = "/api/v1/namespaces/ml"
OF_A_RUN = ("jobs", "pods", "configmaps", "services", "networkpolicies")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "none")  # of pods, which have this environment
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3] / "src"))
    monkeypatch.setenv("TONNAGE_WORKER", "tonnage.testing.worker")
    with fake_cluster(tmp_path / "cluster") as found:
        claim = {"metadata": {"name": "runs"}, "spec": {"accessModes": ["ReadWriteMany"]}, "status": {"phase": "Bound"}}
        found.lay(f"{ROOM}/persistentvolumeclaims", "ml", claim)
        found.lay("/api/v1/nodes", "", {
            "metadata": {"name": "node-a"}, "status": {"allocatable": {"cpu": "8", "memory": "64Gi"}}})  # fmt: skip
        yield found


@pytest.fixture
def desk(tmp_path: Path, cluster: FakeCluster, desk_at: Callable[..., Any]) -> Any:
    values = {
        "kind": "kubernetes", "context": "fake", "kubeconfig": str(cluster.kubeconfig), "namespace": "ml", "cores": 1,
        "memory_gib": 1, "image": "registry.example/tonnage@sha256:" + "0" * 64, "python": sys.executable,
        "time_limit_minutes": 5, "grace_s": 8, "volume": "runs", "mount": str(tmp_path), "usd_per_hour": 3.6,
    }  # fmt: skip
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    return desk_at(tmp_path / "here", f"[places.cluster]\n{lines}")


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What the workers of pods that start from now on do: pods are processes with this environment."""
    return lambda **pretence: monkeypatch.setenv("TONNAGE_FAKE", json.dumps(pretence))


def left(cluster: FakeCluster) -> list[str]:
    """What of a run is in the cluster."""
    return [path for kind in OF_A_RUN for path, _ in cluster.store.of_kind(kind)]


def test_a_run_that_has_ended_leaves_its_volume_alone(
    desk: Any, cluster: FakeCluster, pretend: Callable[..., None]
) -> None:
    """Followed to its end nothing that it was sent as stays; its log can be read and its files brought again."""
    pretend(steps=30, step_s=0.02)
    desk.tonnage("run", desk.spec("whole"), "--on", "cluster")
    folder = desk.folder("whole")
    assert json.loads(folder.result_file.read_text())["steps"] == 30
    desk.wait(lambda: left(cluster) == [])
    assert [path.rsplit("/", 1)[1] for path, _ in cluster.store.of_kind("persistentvolumeclaims")] == ["runs"]
    assert "step 30" in desk.tonnage("logs", "whole")
    desk.tonnage("places", "collect", "whole")
    desk.wait(lambda: left(cluster) == [])
    assert json.loads(desk.tonnage("places", "orphans", "-o", "json"))["orphans"] == []


def test_stop_waits_until_the_run_has_saved(desk: Any, cluster: FakeCluster, pretend: Callable[..., None]) -> None:
    """`ps` shows what it has cost so far; `stop` ends once the pod has saved; `resume` goes on from there."""
    pretend(steps=4000, step_s=0.02)
    desk.tonnage("run", desk.spec("halted"), "--on", "cluster", "-d")

    def listed() -> dict[str, Any]:
        [found] = json.loads(desk.tonnage("ps", "-o", "json"))["runs"]
        return dict(found)

    desk.wait(lambda: bool(listed().get("spent_usd")), "no dollars in ps")
    desk.wait(lambda: bool(listed()) and (desk.folder("halted").state().checkpoint_step or 0) > 0)
    desk.tonnage("stop", "halted")
    state = desk.folder("halted").state()
    assert (state.state.value, state.checkpoint_step) == ("stopped", state.step)
    beat = read_heartbeat(desk.folder("halted"))
    assert beat is not None
    assert beat.held_s < 60.0
    assert beat.spent_usd == pytest.approx(0.06)  # of a machine by the second that is billed for a minute at least
    pretend(steps=(state.step or 0) + 5, step_s=0.001)
    desk.tonnage("resume", "halted")
    assert desk.folder("halted").state().state.value == "succeeded"
    desk.wait(lambda: left(cluster) == [])
