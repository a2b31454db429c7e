"""A real Ray: the command line at it, a node without power, clients that die, and a run that moves between places."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tonnage.places.contract import home_mark
from tonnage.runs import RunFolder
from tonnage.testing import slurm
from tonnage.testing.ray import StartedRayCluster, ray_cluster, ray_python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(ray_python() is None, reason="pip install 'tonnage[ray]', or TONNAGE_RAY_PYTHON"),
]
PLACE = """[places.nodes]
kind = "ray"
address = "{address}"
bucket = "file://{folder}/bucket"
mount = "{folder}/there"
python = "{python}"
cores = 1
gpus = {gpus}
gpu_memory_gib = 80
memory_gib = 2
time_limit_minutes = 10
grace_s = 20
exchange_s = 0.5
usd_per_hour = 6.0

[places.nodes.patch.jobs.runtime_env.env_vars]
TONNAGE_FAKE = '{fake}'
"""
LONGEST_S = 240.0  # of one thing that is waited for: Ray and torch take their time to start
NEEDED = ("torch", "transformers", "pyarrow")
FILE = "sequence-classification.tonnage.yaml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedRayCluster]:
    with ray_cluster(tmp_path_factory.mktemp("ray"), nodes=2) as found:
        yield found


def terms(cluster: StartedRayCluster, folder: Path, *, gpus: int = 8) -> str:
    return PLACE.format(address=cluster.address, folder=folder, python=ray_python(), gpus=gpus, fake="{}")


def pretend(desk: Any, **pretence: Any) -> None:
    """What workers do from now on, wherever they are."""
    desk.pretend(**pretence)
    file = desk.home / "places.toml"
    told = f"TONNAGE_FAKE = '{json.dumps(pretence)}'"
    file.write_text(re.sub(r"^TONNAGE_FAKE = .*$", lambda _: told, file.read_text(), flags=re.MULTILINE))


def wait(true: Callable[[], bool]) -> None:
    until = time.monotonic() + LONGEST_S
    while not true():
        assert time.monotonic() < until, "it did not come so far in time"
        time.sleep(0.2)


def wait_for_step(folder: RunFolder, step: int) -> None:
    """Until it is saved; a run that has ended before says why."""
    wait(lambda: (folder.state().checkpoint_step or 0) >= step or folder.state().state.ended)
    assert (folder.state().checkpoint_step or 0) >= step, folder.state()


def lacking() -> str:
    """What a real run needs and Ray's Python does not have."""
    return next((name for name in NEEDED if subprocess.run(
        [str(ray_python()), "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec('{name}') is None)"],
        check=False,
    ).returncode), "")  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path, cluster: StartedRayCluster, desk_at: Callable[..., Any]) -> Any:
    return desk_at(tmp_path / "here", terms(cluster, tmp_path))


def there(desk: Any, name: str) -> RunFolder:
    """The run's folder on the node."""
    return RunFolder(desk.home.parent / "there" / "runs" / home_mark(desk.home / "runs") / name)


def losses(folder: RunFolder) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


def jobs(cluster: StartedRayCluster) -> list[str]:
    """Jobs of ours that live."""
    return [one["submission_id"] for one in cluster.ask("/api/jobs/") if one["status"] in {"PENDING", "RUNNING"}
            and "tonnage" in (one["metadata"] or {})]  # fmt: skip


def test_a_node_without_power(desk: Any, cluster: StartedRayCluster) -> None:
    """Everything on it dies in one instant: the run goes on at another from its newest checkpoint, the same losses."""
    if len(cluster.nodes) < 2:
        cluster.add_node()
    pretend(desk, steps=300, step_s=0.03, checkpoint_every=10)
    following = desk.begin("run", desk.spec("struck"), "--on", "nodes")
    folder = desk.folder("struck")
    wait(lambda: following.poll() is not None or (folder.state().checkpoint_step or 0) >= 30)
    assert following.poll() is None, following.communicate()
    cluster.lose_node(cluster.node_of(int(there(desk, "struck").pid_file.read_text())))
    said = following.communicate(timeout=240)[1]
    assert following.returncode == 0, said
    state = folder.state()
    assert (state.state.value, state.attempt) == ("succeeded", 2)
    assert losses(folder) == {step: 1 / step for step in range(1, 301)}
    resumed = [one for one in map(json.loads, folder.journal_file.read_text().splitlines()) if one["kind"] == "resumed"]
    assert [one["lost_steps"] <= 20 for one in resumed] == [True]  # a checkpoint more may have been on its way
    assert jobs(cluster) == []


def test_clients_that_die(desk: Any, cluster: StartedRayCluster) -> None:
    """Killed at moments of a submission: resending makes no second job, and what no run waits for is ended."""
    pretend(desk, steps=4000, step_s=0.02)
    desk.kill_clients("nodes", (0.9, 1.3, 1.8, 2.4))
    desk.tonnage("places", "orphans", "--end")
    wait(lambda: jobs(cluster) == [])
    assert json.loads(desk.tonnage("places", "orphans", "-o", "json"))["orphans"] == []


def test_two_nodes_train_one_is_lost_and_they_go_on(
    tmp_path: Path, cluster: StartedRayCluster, desk_at: Callable[..., Any]
) -> None:
    """A real model over two nodes apart: one loses its power, two go on from the checkpoint, losses as undisturbed."""
    if missing := lacking():
        pytest.skip(f"{ray_python()} has no {missing}: pip install 'tonnage[train]' there")
    while len(cluster.nodes) < 3:
        cluster.add_node()
    place = terms(cluster, tmp_path, gpus=0).replace('kind = "ray"', 'kind = "ray"\nnodes = 2')
    desk = desk_at(tmp_path / "here", place)
    del desk.environ["TONNAGE_WORKER"]
    desk.tonnage("init", "sequence-classification", "--out", str(tmp_path / "st"))
    file = tmp_path / "st" / FILE
    text = file.read_text().replace("log_every: 5", "log_every: 1").replace("epochs: 3", "epochs: 25")
    file.write_text(text.replace("every_steps: 50", "every_steps: 10"))
    words = ["--on", "nodes", "--runner", "torchrun", "--processes", "2", "-y"]
    following = desk.begin("run", str(file), "--name", "struck", *words)
    folder = desk.folder("struck")
    wait(lambda: following.poll() is not None or (folder.state().checkpoint_step or 0) >= 10)
    assert following.poll() is None, following.communicate()
    cluster.lose_node(cluster.node_of(int(there(desk, "struck").pid_file.read_text())))
    said = following.communicate(timeout=LONGEST_S)[1]
    assert following.returncode == 0, said
    assert (folder.state().state.value, folder.state().attempt) == ("succeeded", 2)
    assert (folder.path / "log-machine-2.txt").exists()
    desk.tonnage("run", str(file), "--name", "plain", *words)
    assert losses(folder) == losses(desk.folder("plain"))
    wait(lambda: jobs(cluster) == [])  # the driver of a job ends a moment after its run


@pytest.mark.skipif(bool(slurm.missing_binaries()), reason="apt-get install --no-install-recommends slurm-wlm munge")
def test_slurm_then_ray_then_here(tmp_path: Path, cluster: StartedRayCluster, desk_at: Callable[..., Any]) -> None:
    """A real model: killed on Slurm, gone on with on Ray, killed there, finished here: every loss as undisturbed."""
    pytest.importorskip("torch")
    if missing := lacking():
        pytest.skip(f"{ray_python()} has no {missing}: pip install 'tonnage[train]' there")
    with slurm.slurm_cluster(tmp_path / "slurm") as batch:
        on_slurm = '[places.batch]\nkind = "slurm"\ncores = 1\nmemory_gib = 2\ntime_limit_minutes = 10\ngrace_s = 20\n'
        desk = desk_at(tmp_path / "here", on_slurm + terms(cluster, tmp_path, gpus=0), batch.environ)
        del desk.environ["TONNAGE_WORKER"]
        desk.tonnage("init", "sequence-classification", "--out", str(tmp_path / "st"))
        file = tmp_path / "st" / FILE
        text = file.read_text().replace("log_every: 5", "log_every: 1").replace("epochs: 3", "epochs: 60")
        text = text.replace("  # device: cuda", "  threads: 1\n  # device: cuda")  # others sum in another order
        file.write_text(text.replace("every_steps: 50", "every_steps: 20"))
        desk.tonnage("run", str(file), "--name", "plain")
        plain, folder = desk.folder("plain"), desk.folder("moved")
        desk.tonnage("run", str(file), "--name", "moved", "--on", "batch", "-d")
        wait_for_step(folder, 100)
        [job] = batch.command("squeue", "-h", "-o", "%A").splitlines()
        batch.command("scancel", job)
        wait(lambda: "cancelled" in desk.tonnage("ps", "-a"))
        desk.tonnage("resume", "moved", "--on", "nodes", "-d")
        wait(lambda: there(desk, "moved").spec_file.exists())
        wait_for_step(there(desk, "moved"), 400)
        [job] = jobs(cluster)
        httpx.post(f"{cluster.address}/api/jobs/{job}/stop", trust_env=False).raise_for_status()
        wait(lambda: jobs(cluster) == [])
        desk.tonnage("ps")
        desk.tonnage("resume", "moved", "--on", "local")
    assert folder.state().state.value == "succeeded"
    assert folder.state().attempt == 3
    assert folder.state().lost_steps <= 20
    assert losses(folder) == losses(plain)
    first, last = (json.loads(one.result_file.read_text())["metrics"] for one in (plain, folder))
    assert first == last
