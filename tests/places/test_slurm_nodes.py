"""Real training over two nodes of a real Slurm: torchrun's agents meet through srun, a preemption changes no loss."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs import RunFolder
from tonnage.testing.slurm import SlurmCluster, missing_binaries, slurm_cluster

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_binaries()), reason="apt-get install --no-install-recommends slurm-wlm munge"),
]
PLACE = """[places.two]
kind = "slurm"
nodes = 2
cores = 1
memory_gib = 2
time_limit_minutes = 10
grace_s = 25
usd_per_hour = 3.0
"""
FILE = "sequence-classification.tonnage.yaml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), grace_s=30) as found:
        yield found


@pytest.fixture
def desk(tmp_path: Path, cluster: SlurmCluster, desk_at: Callable[..., Any]) -> Any:
    """A home with a starter, and its real worker."""
    found = desk_at(tmp_path / "home", PLACE, cluster.environ)
    del found.environ["TONNAGE_WORKER"]
    found.tonnage("init", "sequence-classification", "--out", str(tmp_path / "st"))
    file = tmp_path / "st" / FILE
    file.write_text(file.read_text().replace("log_every: 5", "log_every: 1").replace("epochs: 3", "epochs: 8"))
    found.file = str(file)
    return found


def losses(folder: RunFolder) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in map(json.loads, folder.metrics_file.read_text().splitlines())}


def start(desk: Any, name: str) -> RunFolder:
    words = ["--runner", "torchrun", "--processes", "2", "--name", name]
    desk.tonnage("run", desk.file, "--on", "two", "-d", "-y", *words)
    folder: RunFolder = desk.folder(name)
    return folder


def test_two_nodes_preempted_requeued_and_the_same_losses(desk: Any, cluster: SlurmCluster) -> None:
    """An agent on each node; a higher partition takes both nodes; the run saves, is requeued, and ends as it would."""
    plain = start(desk, "plain")
    desk.wait(lambda: plain.state().state.ended)
    assert plain.state().state.value == "succeeded", plain.log_file.read_text()[-2000:]
    folder = start(desk, "taken")
    job = cluster.command("squeue", "-h", "-o", "%A|%k").splitlines()[0].split("|")[0]
    desk.wait(lambda: folder.state().step > 20)
    assert len(cluster.command("squeue", "-h", "-s", "-j", job, "-o", "%i %N").splitlines()) >= 1
    assert cluster.command("squeue", "-h", "-j", job, "-o", "%D %N") == "2 gpu[1-2]"
    words = ("-p", "urgent", "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 2")
    cluster.command("sbatch", "--parsable", *words)
    desk.wait(lambda: folder.state().state.value in {"restarting", "succeeded"})
    assert folder.state().reason == "Preempted"
    desk.wait(lambda: folder.state().state.ended)
    assert folder.state().state.value == "succeeded", folder.log_file.read_text()[-2000:]
    assert (folder.state().attempt, folder.state().lost_steps) == (2, 0)
    assert losses(folder) == losses(plain)
    done, undisturbed = (json.loads(one.result_file.read_text())["metrics"] for one in (folder, plain))
    assert done == undisturbed


def test_stopped_and_refused(desk: Any) -> None:
    """`stop` saves on both nodes; more nodes than there are, or a runner of one machine, is refused before."""
    folder = start(desk, "halted")
    desk.wait(lambda: folder.state().step > 3)
    desk.tonnage("stop", "halted")
    assert (folder.state().state.value, folder.state().checkpoint_step) == ("stopped", folder.state().step)
    assert "does not work on 2 nodes" in desk.tonnage("run", desk.file, "--on", "two", "--name", "one", code=2)
    (desk.home / "places.toml").write_text(PLACE.replace("nodes = 2", "nodes = 3"))
    assert "2 nodes of batch" in desk.tonnage("places", "check", "two", code=4)
